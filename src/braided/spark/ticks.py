"""Batches without rows, for operators with `idle=`: our own source, whose offset moves if rows wait during a silence.

```
 workers -> report: "rows wait" -> listener on the driver -> a file: when the tick is due
                                                                |
 a batch without rows, whose timestamp all workers see  <-  the source: a new offset, once the tick is due
```

A batch that Spark makes without data has no tasks, so workers would not see it. Spark's processing-time timers would
request batches for ever. This source makes one batch when `idle` has passed since the last one and rows still wait, and
one batch `idle` after every start, since a stopped query may have waiting rows. Offsets have no meaning: a batch is the
same however often it runs, and its timestamp is in Spark's offset log.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from braided.runtime.contract import Json

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2 a source could not be limited
    SupportsTriggerAvailableNow = object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "braided_ticks"
_SCHEMA = pa.schema([("tick", pa.int64())])


class TickSource(DataSource):  # type: ignore[misc]
    """Options: path (of the file that `TickRequests` writes), idle (microseconds)."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return NAME

    def schema(self) -> str:
        """See `DataSource`."""
        return "tick long"

    def streamReader(self, schema: Any) -> TickReader:
        """See `DataSource`."""
        return TickReader(self.options["path"], int(self.options["idle"]))


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Moves its offset by one when a tick is due. It returns one row then, so that the batch has a task."""

    def __init__(self, path: str, idle: int) -> None:
        self._path = path
        self._first = _now() + idle
        """When the tick after a start is due."""
        self._served = 0
        self._known: int | None = None
        self._ends = False

    def initialOffset(self) -> dict[str, int]:
        """See `DataSourceStreamReader`."""
        self._known = 0
        return {"tick": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """See `SupportsTriggerAvailableNow`: such a run ends, so it has no silence."""
        self._ends = True

    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:
        """See `DataSourceStreamReader`. Before Spark 4.2 a restarted query does not pass its last offset."""
        if start is not None:
            self._known = start["tick"]
        elif self._known is None:
            self._known = _now()
        if not self._ends and self._is_due():
            self._known += 1
        return {"tick": self._known}

    def _is_due(self) -> bool:
        now = _now()
        due = [moment for moment in (self._first, *self._requests()) if self._served < moment <= now]
        if due:
            self._served = max(due)
        return bool(due)

    def _requests(self) -> list[int]:
        try:
            return [int(moment) for moment in json.loads(Path(self._path).read_text()).values()]
        except FileNotFoundError:  # no batch has run so far, or the driver is on another machine
            return []

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """See `DataSourceStreamReader`: none for the first batch of a query, which has the first offset."""
        return [InputPartition(end["tick"])] if end != start else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See `DataSourceStreamReader`."""
        yield pa.RecordBatch.from_arrays([pa.array([partition.value], pa.int64())], schema=_SCHEMA)


class TickRequests:
    """When an operator needs a batch without rows, for each run of a query with it; in a file for its source."""

    def __init__(self, path: str, idle: int) -> None:
        self.path = path
        self.idle = idle
        self._due: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, run: str, reports: Sequence[Json]) -> None:
        """Take the reports of a batch's workers: a tick is due `idle` after the batch if rows wait, else never."""
        moments = [report["moment"] for report in reports if "moment" in report]
        waits = any(report["last"].get("releasable") for report in reports)
        self._write(run, moments[0] + self.idle if moments and waits else None)

    def forget(self, run: str) -> None:
        """Remove a run that has ended."""
        self._write(run, None)

    def _write(self, run: str, due: int | None) -> None:
        with self._lock:
            if self._due.get(run) == due:
                return
            self._due.pop(run, None)
            if due is not None:
                self._due[run] = due
            new = Path(f"{self.path}.new")
            new.write_text(json.dumps(self._due))
            new.replace(self.path)


def make_ticks(session: SparkSession, idle: int, name: str) -> tuple[DataFrame, TickRequests]:
    """Return a stream that has a row when a tick is due, and the object by which an operator requests ticks."""
    requests = TickRequests(os.path.join(_folder(), f"{name}.json"), idle)
    session.dataSource.register(TickSource)
    options = {"path": requests.path, "idle": str(idle)}
    return session.readStream.format(NAME).options(**options).load(), requests


@cache
def _folder() -> str:
    """Return a folder for this process that only its user can read; Spark runs sources on the driver's machine."""
    path = tempfile.mkdtemp(prefix="braided-ticks-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _now() -> int:
    return time.time_ns() // 1000
