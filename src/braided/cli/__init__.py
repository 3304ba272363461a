"""The command line: `demo`, `run`, `check`, `explain`, `dash`, `report`, `bench`, `doctor`, `cluster`, `fleet`."""

from braided.cli.arguments import main

__all__ = ["main"]
