"""What a query keeps in its checkpoint besides Spark's own files, and how its tasks find it.

```
 <checkpoint>/braided/runs/<run id>       a number that the driver writes when the query starts, and every task reads
 <checkpoint>/braided/state/<operator>/   blocks of state (`braided.runtime.file_blocks`)
```

The driver learns where the checkpoint is when the query starts, and puts it into the settings of that query's session.
Spark gives those to all tasks as local properties. A task that reads another number than the driver wrote, or none,
does not see the driver's storage: it stops before it stores anything.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from braided.errors import StateError
from braided.runtime.file_blocks import StateFolder
from braided.spark.catalyst import set_for_query
from braided.storage.places import is_remote, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "spark.braided.run"
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_BATCH = "streaming.sql.batchId"
_MOST_RUNS = 16


@dataclass(frozen=True)
class RunFolder:
    """The folder of a query in its checkpoint, as one run of the query has it."""

    path: Path
    retained: int

    def state(self, home: str, worker: int, batch: int) -> StateFolder:
        """Return where a worker of an operator has its blocks."""
        return StateFolder(self.path / "state", home, worker, batch, self.retained)


def open_for_run(session: SparkSession, checkpoint: str, query: str, run: str) -> None:
    """Let the tasks of a run find the checkpoint of their query, where it is on a local path; called by the driver.

    Precondition: the query has started, and no batch of this run has.
    """
    if is_remote(checkpoint):
        return
    folder = Path(local_path(checkpoint)) / "braided"
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for old in sorted(runs.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_RUNS]:
        old.unlink(missing_ok=True)
    nonce = secrets.token_hex(16)
    (runs / run).write_text(nonce)
    retained = int(str(session.conf.get(_RETAIN)))
    note = {"folder": str(folder), "run": run, "nonce": nonce, "retained": retained}
    set_for_query(session, query, PROPERTY, json.dumps(note))


def folder_of_task() -> tuple[RunFolder, int] | None:
    """Return the folder of the query that a task belongs to, and the batch; None where the query has no such folder."""
    context = TaskContext.get()
    note = None if context is None else context.getLocalProperty(PROPERTY)
    batch = None if context is None else context.getLocalProperty(_BATCH)
    return None if note is None or batch is None else (_folder(note), int(batch))


@lru_cache(maxsize=64)
def _folder(note: str) -> RunFolder:
    """Return the folder that the driver described, if this process sees what the driver wrote there."""
    described = json.loads(note)
    path = Path(described["folder"])
    try:
        nonce = (path / "runs" / described["run"]).read_text()
    except OSError as error:
        raise StateError(f"{_elsewhere(path)} ({error})") from error
    if nonce != described["nonce"]:
        raise StateError(_elsewhere(path))
    return RunFolder(path, int(described["retained"]))


def _elsewhere(path: Path) -> str:
    return (
        f"this executor does not see the checkpoint of the driver: {path} is another folder here, or none; put the "
        "checkpoint on storage that the driver and all executors share"
    )
