"""Braided: exact stream joins for PySpark that spread any load over all workers."""

