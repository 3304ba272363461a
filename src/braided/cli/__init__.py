"""The command line: `braided demo`, `run`, `check`, `explain`, `peer`, `fleet`, `doctor`."""

from braided.cli.arguments import main

__all__ = ["main"]
