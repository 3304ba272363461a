"""What commands have in common when they end: exit codes, and one line about what went wrong."""

from __future__ import annotations

FAILED, CANNOT_START, STOPPED = 1, 2, 130


def first_line(error: Exception) -> str:
    """Return the first line of a message that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
