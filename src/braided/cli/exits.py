"""How commands end: exit codes, and one line for an error.

| code | meaning |
|---|---|
| 0 | success |
| 1 | it started and failed, or the request was refused |
| 2 | it could not start: a wrong option, a file, a port, Java, or a fleet that does not answer |
| 130 | stopped by Ctrl-C |
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

FAILED, CANNOT_START, STOPPED = 1, 2, 130
# The last line of a traceback from one of Spark's Python processes, if the error is ours.
_OURS = re.compile(r"^\s*braided\.errors\.\w+: (.*\S)", re.MULTILINE)


def first_line(error: Exception) -> str:
    """Return the informative line of a message: that of our own error anywhere in it, else the first line."""
    java = getattr(error, "java_exception", None)  # PySpark does not translate all exceptions of the JVM
    text = str(error) if java is None else str(java.toString())
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def refuse(command: str, why: str, code: int, *, as_json: bool = False, **more: Any) -> int:
    """Print on stderr why a command ends, and with --json also an object on stdout; return its exit code."""
    print(f"braided {command}: {why}", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps({**more, "error": why, "command": command, "exit": code}), flush=True)
    return code
