"""The command line: `braided demo`, `run`, `check`, `explain`, `dash`, `report`, `bench`, `doctor`, `cluster`."""

from braided.cli.arguments import main

__all__ = ["main"]
