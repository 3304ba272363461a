"""Braided: exact stream joins for PySpark that spread any load over all workers."""

__version__ = "0.1.0"
