"""Any operator on Spark."""
