"""The command line: jobs, fleets, the dashboard, the state in checkpoints, the demo, the papers' figures."""

from braided.cli.arguments import main

__all__ = ["main"]
