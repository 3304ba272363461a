"""What a query keeps in its checkpoint besides Spark's own files, and how its tasks find it.

```
 <checkpoint>/braided/runs/<run id>         a number that the driver writes when the query starts, and every task reads
 <checkpoint>/braided/state/<operator>/     blocks of state (`braided.runtime.file_blocks`)
 <checkpoint>/braided/control/<operator>/   routing tables, pins and decisions (`braided.routing.control_directory`)
 <checkpoint>/braided/rescale/<batch>       what workers left when their number changed (`braided.spark.rescaling`)
 <checkpoint>/braided/blocks/<run id>/      blocks that cross the shuffle by name (`braided.runtime.shuffle_files`)
```

The driver learns where the checkpoint is when the query starts, and puts it into the settings of that query's session.
Spark gives those to all tasks as local properties. A task that reads another number than the driver wrote, or none,
does not see the driver's storage: it stops before it stores anything.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from braided.errors import BraidedError, OptionError, StateError
from braided.runtime.file_blocks import StateFolder
from braided.runtime.shuffle_files import ShuffleFolder
from braided.spark.catalyst import set_for_query
from braided.storage.files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "spark.braided.run"
LEAST = "spark.braided.blocks.least"
_LEAST_BYTES = 64 << 10
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_BATCH = "streaming.sql.batchId"
_MOST_RUNS = 16


# The folders of queries that this process has started, by their ids.
_started: dict[str, RunFolder | None] = {}


@dataclass(frozen=True)
class RunFolder:
    """The folder of a query in its checkpoint, as one run of the query has it."""

    path: Path
    run: str
    retained: int
    least: int
    """Blocks of at least so many bytes cross the shuffle by name."""
    rescaled: int | None = None
    """The batch in which the number of workers changed last."""

    def blocks(self, home: str, batch: int) -> ShuffleFolder:
        """Return where blocks are on their way to the workers of an operator."""
        return ShuffleFolder(self.path / "blocks" / self.run / home, batch, self.least)

    def state(self, home: str, worker: int, batch: int) -> StateFolder:
        """Return where a worker of an operator has its blocks."""
        return StateFolder(self.path / "state", home, worker, batch, self.retained)

    def control(self, operator: str) -> str:
        """Return the control directory of an operator."""
        return str(self.path / "control" / operator)


def open_for_run(session: SparkSession, checkpoint: str, query: str, run: str) -> None:
    """Let the tasks of a run find the checkpoint of their query, where it is on a local path; called by the driver.

    Precondition: the query has started, and no batch of this run has.
    """
    if not is_on_a_path(checkpoint):
        _started[query] = None
        set_for_query(session, query, PROPERTY, json.dumps({"folder": None}))
        return
    folder = Path(local_path(checkpoint)) / "braided"
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    for old in sorted(runs.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_RUNS]:
        old.unlink(missing_ok=True)
    nonce = secrets.token_hex(16)
    (runs / run).write_text(nonce)
    retained, least = int(str(session.conf.get(_RETAIN))), least_bytes(session)
    for old in (folder / "blocks").glob("*"):
        shutil.rmtree(old, ignore_errors=True)
    rescaled = newest_rescaling(folder)
    note = {
        "folder": str(folder),
        "run": run,
        "nonce": nonce,
        "retained": retained,
        "least": least,
        "rescaled": rescaled,
    }
    _started[query] = RunFolder(folder, run, retained, least, rescaled)
    set_for_query(session, query, PROPERTY, json.dumps(note))


def newest_rescaling(folder: Path) -> int | None:
    """Return the batch in which the number of workers changed last, by the files that `braided rescale` completed."""
    return max((int(path.name) for path in (folder / "rescale").glob("*") if path.name.isdigit()), default=None)


def is_on_a_path(checkpoint: str) -> bool:
    """Whether a checkpoint is on a local or mounted path, which Python reaches too.

    >>> [is_on_a_path(place) for place in ("file:/data/check", "/data/check", "dbfs:/check", "s3a://bucket/check")]
    [True, True, False, False]
    """
    return checkpoint.startswith(("file:", "/"))


def close_run(query: str, run: str) -> None:
    """Delete what a run that has ended leaves behind; called by the driver."""
    found = _started.get(query)
    if found is not None and found.run == run:
        shutil.rmtree(found.path / "blocks" / run, ignore_errors=True)


def least_bytes(session: SparkSession) -> int:
    """Return from how many bytes on a block crosses the shuffle by name."""
    text = str(session.conf.get(LEAST, str(_LEAST_BYTES)))
    if not text.isdigit():
        raise OptionError(f"{LEAST}={text!r}: write from how many bytes on a block is a file of the checkpoint")
    return int(text)


def folder_of(query: str) -> RunFolder | None:
    """Return the folder of a query, in a task of it or in the process that started it; None where it has none."""
    if TaskContext.get() is None:
        return _started.get(query)
    found = _note_of_task()
    if found is None:
        raise BraidedError(
            "this task does not know the checkpoint of its query, whose start went unseen; set spark.braided.control "
            "to a path that the driver and all executors reach"
        )
    return _folder(found)


def folder_of_task() -> tuple[RunFolder, int] | None:
    """Return the folder of the query that a task belongs to, and the batch; None where the query has no such folder."""
    note = _note_of_task()
    folder = None if note is None else _folder(note)
    return None if folder is None else (folder, int(TaskContext.get().getLocalProperty(_BATCH)))


def _note_of_task() -> str | None:
    """Return what the driver noted for the tasks of a streaming query."""
    context = TaskContext.get()
    if context is None or context.getLocalProperty(_BATCH) is None:
        return None
    note: str | None = context.getLocalProperty(PROPERTY)
    return note


@lru_cache(maxsize=64)
def _folder(note: str) -> RunFolder | None:
    """Return the folder that the driver described, if this process sees what the driver wrote there."""
    described = json.loads(note)
    if described["folder"] is None:
        return None
    path = Path(described["folder"])
    try:
        nonce = (path / "runs" / described["run"]).read_text()
    except OSError as error:
        raise StateError(f"{_elsewhere(path)} ({error})") from error
    if nonce != described["nonce"]:
        raise StateError(_elsewhere(path))
    retained, least, rescaled = (described.get(name) for name in ("retained", "least", "rescaled"))
    return RunFolder(path, described["run"], int(retained), int(least), None if rescaled is None else int(rescaled))


def _elsewhere(path: Path) -> str:
    return (
        f"this executor does not see the checkpoint of the driver: {path} is another folder here, or none; put the "
        "checkpoint on storage that the driver and all executors share"
    )
