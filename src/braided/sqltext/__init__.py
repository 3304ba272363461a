"""Continuous queries as Spark SQL: parse the text, find its joins of streams, and decide how each of them is run."""
