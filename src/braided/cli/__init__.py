"""The command line: `braided demo`, `run`, `check`, `explain`, `dash`, `report`, `bench`, `doctor`."""

from braided.cli.arguments import main

__all__ = ["main"]
