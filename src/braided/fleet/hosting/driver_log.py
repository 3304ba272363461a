"""The log of a peer's driver, and the part of it that is about one job: what the threads of its query have logged."""

from __future__ import annotations

import json
import re
from pathlib import Path

# Spark's own pattern has no thread; that of a query is named for the query.
_PATTERN = "%d{yy/MM/dd HH:mm:ss} %p [%t] %c{1}: %m%n%ex"
_PROPERTIES = f"""\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = {_PATTERN}
"""
_BEGINS = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ ")
_READ = 1 << 20
"""Bytes at the end of a log that are looked through."""
_LONGEST = 24_000
"""Bytes of JSON in an answer, which must fit into a message."""


def log_options(folder: Path) -> str:
    """Write how Spark is to log into a folder, and return the option of Java that names it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "log4j2.properties"
    file.write_text(_PROPERTIES)
    return f"-Dlog4j2.configurationFile=file:{file}"


def lines_of(log: Path, job: str) -> str:
    """Return the last lines of a log that the query of a job has written, with the traces below them.

    A job that has moved away, or was started again, has written into the same log.
    """
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _READ))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    marks = (f"stream execution thread for {job} [", f"Query {job} [")
    kept: list[str] = []
    is_wanted = False
    for line in text.splitlines():
        if _BEGINS.match(line):
            is_wanted = any(mark in line for mark in marks)
        if is_wanted:
            kept.append(line)
    end, size = len(kept), 0
    while end and (size := size + len(json.dumps(kept[end - 1])) + 2) < _LONGEST:
        end -= 1
    return "\n".join(kept[end:])
