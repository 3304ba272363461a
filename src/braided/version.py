"""The version of the package, compared between driver and executors."""

__version__ = "0.1.0"
