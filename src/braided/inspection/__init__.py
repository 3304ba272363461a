"""The content of a query's state, read from its checkpoint without changing it (and without Spark)."""
