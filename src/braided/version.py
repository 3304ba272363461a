"""The version of the package, compared between driver and executors."""

__version__ = "1.0.0"
