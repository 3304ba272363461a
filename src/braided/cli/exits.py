"""What commands have in common when they end: exit codes, and one line about what went wrong."""

from __future__ import annotations

import re

FAILED, CANNOT_START, STOPPED = 1, 2, 130
# How an error of ours ends a traceback that Spark hands on from one of its Python processes.
_OURS = re.compile(r"^\s*braided\.errors\.\w+: (.*\S)", re.MULTILINE)


def first_line(error: Exception) -> str:
    """Return the line of a message that says something: our own, wherever it is, or the first."""
    java = getattr(error, "java_exception", None)  # PySpark does not translate all that comes from the JVM
    text = str(error) if java is None else str(java.toString())
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
