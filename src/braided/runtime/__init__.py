"""Runtimes: what carries rows to an operator's workers, on Spark and in one process."""
