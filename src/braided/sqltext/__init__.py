"""Continuous queries as Spark SQL: read the text, find its joins of streams, say how each is run."""
