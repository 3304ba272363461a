"""The `where=` predicate, compiled to answer as Spark does."""
