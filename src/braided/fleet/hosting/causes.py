"""The cause of a query's failure in one line: the innermost one among exceptions of Spark, Java and Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from braided.spark.catalyst import causes_of

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_DETAILS = "=== Streaming Query ==="
_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = re.compile(r"(?:Caused by|): ([\w.$]+)(?:: (.*))?")
"""A line of Java's: `Caused by: java.io.IOException: text`; the first one that PySpark shows starts with the colon."""
_PYTHON = re.compile(r"([\w.]+)(?:: (.*))?")
_FRAME = re.compile(r'  File "(?:.*/)?([^"/]+)", line (\d+), in (.+)')
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\b")
_FILE = re.compile(r"while reading file (\S+?)\.?(?:\s|$)")


def describe_failure(query: StreamingQuery) -> str:
    """Return why a query has ended. The text of its exception lacks Java's causes, so they are read one by one."""
    causes = causes_of(query)
    if not causes:
        return "its query has ended"
    return find_cause("\n".join("Caused by: " + cause.partition(_DETAILS)[0] for cause in causes))


def find_cause(text: str) -> str:
    """Return the most informative line of a failure: an error of Braided's, else the innermost exception.

    >>> find_cause("[STREAM_FAILED] Query terminated\\n Py4JException: braided.errors.TopicError: a/b: is gone\\n at x")
    'a/b: is gone'
    >>> find_cause("An error occurred while calling o1.x.\\n: java.io.IOException: no space\\n\\tat A.b(A.java:1)")
    'IOException: no space'
    """
    text = text.partition(_DETAILS)[0]
    lines = [line for line in text.splitlines() if line.strip()]
    ours = [line.partition("braided.errors.")[2].partition(": ")[2] for line in lines if "braided.errors." in line]
    first = lines[0].strip() if lines else "its query failed"
    cause = next((line for line in ours if line), None) or _innermost(lines) or first
    cause = _STATE.sub("", cause).strip()
    file = _FILE.search(text)
    return cause if file is None or file[1].rpartition("/")[2] in cause else f"{file[1]}: {cause}"


def _innermost(lines: list[str]) -> str | None:
    cause = None
    in_traceback, place = False, ""
    for line in lines:
        if _TRACEBACK in line:
            in_traceback, place = True, ""
        elif in_traceback:
            frame = _FRAME.match(line)
            if frame is not None:
                place = f" ({frame[1]}, line {frame[2]}, in {frame[3]})"
            elif not line.startswith(" "):
                in_traceback = False
                raised = _PYTHON.fullmatch(line)
                cause = _named(raised[1], raised[2], place) if raised is not None else line + place
        elif java := _CAUSE.fullmatch(line):
            cause = _named(java[1].rpartition(".")[2], java[2], "")
    return cause


def _named(kind: str, message: str | None, place: str) -> str:
    """Return an exception in one line; for Spark's own, the message is enough."""
    if message and message.startswith("["):
        return message
    return f"{kind}: {message}{place}" if message else kind + place
