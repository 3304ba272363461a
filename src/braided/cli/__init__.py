"""The command line: `braided demo`, `run`, `check`, `explain`, `doctor`."""

from braided.cli.arguments import main

__all__ = ["main"]
