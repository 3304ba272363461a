"""The command line: `braided demo`."""

from braided.cli.arguments import main

__all__ = ["main"]
