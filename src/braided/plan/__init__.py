"""The logical plan of a query: its nodes, the optimiser and its rules. Nothing here depends on Spark."""
