"""Aggregates over windows of a number of rows."""
