"""SQL expressions, such as the `where=` predicate, compiled so that their results equal Spark's."""
