"""The command line: `braided demo`, `run`, `check`, `explain`, `doctor`, `cluster`."""

from braided.cli.arguments import main

__all__ = ["main"]
