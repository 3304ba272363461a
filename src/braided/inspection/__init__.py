"""What is in the state of a query, read from its checkpoint without changing it (no Spark in here)."""
