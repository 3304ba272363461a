"""What commands have in common when they end: exit codes, and one line about what went wrong.

| code | meaning |
|---|---|
| 0 | done |
| 1 | it began and failed, or what was asked for was refused |
| 2 | it could not begin: a wrong option, a file, a port, Java, or a fleet that does not answer |
| 130 | stopped by Ctrl-C |
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

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


def refuse(command: str, why: str, code: int, *, as_json: bool = False, **more: Any) -> int:
    """Say on stderr why a command ends, and with --json as an object on stdout too; return its exit code."""
    print(f"braided {command}: {why}", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps({**more, "error": why, "command": command, "exit": code}), flush=True)
    return code
