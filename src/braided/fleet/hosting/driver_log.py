"""The log of a peer's driver, and the part of it about one job: the lines from the threads of its query."""

from __future__ import annotations

import json
import re
from pathlib import Path

# Spark's own pattern has no thread name; a query's thread is named after the query.
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
"""The bytes at the end of a log that are searched."""
_LONGEST = 24_000
"""The bytes of JSON in an answer, which must fit into a message."""


def log_options(folder: Path) -> str:
    """Write Spark's log configuration into a folder, and return the option of Java for it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "log4j2.properties"
    file.write_text(_PROPERTIES)
    return f"-Dlog4j2.configurationFile=file:{file}"


def lines_of(log: Path, job: str) -> str:
    """Return the last lines of a log that the query of a job has written, with the traces below them.

    Earlier runs of the same job at this peer are in the same log.
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
