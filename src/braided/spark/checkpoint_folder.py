"""The files of Braided in a query's checkpoint, beside Spark's own, and how tasks find them.

```
 <checkpoint>/braided/runs/<run id>         a number that the driver writes when the query starts, and every task reads
 <checkpoint>/braided/state/<operator>/     blocks of state (`braided.runtime.file_blocks`)
 <checkpoint>/braided/control/<operator>/   routing tables, pins and decisions (`braided.routing.control_directory`)
 <checkpoint>/braided/rescale/<batch>       state of the old workers when their number changed
 (`braided.spark.rescaling`) <checkpoint>/braided/blocks/<run id>/      blocks that cross the shuffle by name
 (`braided.runtime.shuffle_files`)
```

On an object store that Python can reach by fsspec, state is in objects (`braided.runtime.object_blocks`), and all
blocks travel inline.

The driver learns where the checkpoint is when the query starts, and puts it into the settings of that query's session.
Spark passes these to all tasks as local properties. If a task reads another number than the driver wrote, or none, it
does not see the driver's storage. It stops before it stores anything.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from braided.errors import BraidedError, OptionError, StateError
from braided.runtime.file_blocks import StateFolder
from braided.runtime.object_blocks import ObjectFolder
from braided.runtime.shuffle_files import ShuffleFolder
from braided.spark.catalyst import fill_file_sink, set_for_query
from braided.storage.files import CHECKPOINT, Files, files_at, is_remote, local_path, python_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "spark.braided.run"
OBJECTS = "spark.braided.objects"
LEAST = "spark.braided.blocks.least"
_LEAST_BYTES = 64 << 10
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_BATCH = "streaming.sql.batchId"
_MOST_RUNS = 16
_log = logging.getLogger("braided")


# The folders of queries that this process has started, by their ids.
_started: dict[str, RunFolder | None] = {}


@dataclass(frozen=True)
class RunFolder:
    """The folder of a query in its checkpoint, during one run of the query."""

    location: str
    """A path, or an fsspec URL."""
    run: str
    retained: int
    least: int
    """Blocks of at least this many bytes cross the shuffle by name."""
    rescaled: int | None = None
    """The batch in which the number of workers changed last."""

    @property
    def files(self) -> Files:
        """The files in the folder."""
        return files_at(self.location, CHECKPOINT)

    def blocks(self, home: str, batch: int) -> ShuffleFolder | None:
        """Return the folder of blocks on their way to the workers of an operator; None if they travel inline.

        On an object store they travel inline: a request for each router and worker would cost more than it saves.
        """
        if is_remote(self.location):
            return None
        return ShuffleFolder(Path(self.location) / "blocks" / self.run / home, batch, self.least)

    def state(self, home: str, worker: int, batch: int) -> StateFolder | ObjectFolder:
        """Return the folder with the blocks of a worker of an operator."""
        if is_remote(self.location):
            return ObjectFolder(f"{self.location}/state", home, worker, batch, self.retained)
        return StateFolder(Path(self.location) / "state", home, worker, batch, self.retained)

    def control(self, operator: str) -> str:
        """Return the control directory of an operator."""
        return f"{self.location}/control/{operator}"


def open_for_run(session: SparkSession, checkpoint: str, query: str, run: str) -> bool:
    """Let the tasks of a run find the checkpoint of their query, if Python can reach it; called by the driver.

    Return whether Python can. Precondition: the query has started, but no batch of this run has.
    """
    location = _reached(session, checkpoint)
    if location is None:
        _started[query] = None
        set_for_query(session, query, PROPERTY, json.dumps({"folder": None}))
        return False
    nonce = secrets.token_hex(16)
    rescaled = None
    if not is_remote(location):
        runs = Path(location) / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        for old in sorted(runs.iterdir(), key=lambda path: path.stat().st_mtime)[:-_MOST_RUNS]:
            old.unlink(missing_ok=True)
        for old in (Path(location) / "blocks").glob("*"):
            shutil.rmtree(old, ignore_errors=True)
        rescaled = newest_rescaling(Path(location))
        if rescaled is not None:
            fill_file_sink(session, query, rescaled)
    folder = RunFolder(location, run, int(str(session.conf.get(_RETAIN))), least_bytes(session), rescaled)
    folder.files.replace(f"runs/{run}", nonce.encode())
    _started[query] = folder
    note = {
        "folder": location,
        "run": run,
        "nonce": nonce,
        "retained": folder.retained,
        "least": folder.least,
        "rescaled": rescaled,
    }
    set_for_query(session, query, PROPERTY, json.dumps(note))
    return True


def _reached(session: SparkSession, checkpoint: str) -> str | None:
    """Return the folder of a checkpoint as a path or URL for Python; None if Python cannot use it."""
    if is_on_a_path(checkpoint):
        return str(Path(local_path(checkpoint)) / "braided")
    if str(session.conf.get(OBJECTS, "true")).lower() == "false":
        return None
    location = f"{python_url(checkpoint)}/braided"
    try:
        files_at(location, CHECKPOINT).check()
    except Exception as error:  # no client, no credentials, no exclusive creation: each store has its own errors
        _log.info("%s: state stays in Spark's state store (%s)", checkpoint, error)
        return None
    return location


def newest_rescaling(folder: Path) -> int | None:
    """Return the batch in which the number of workers changed last, from the files that `braided rescale` completed."""
    return max((int(path.name) for path in (folder / "rescale").glob("*") if path.name.isdigit()), default=None)


def is_on_a_path(checkpoint: str) -> bool:
    """Whether a checkpoint is on a local or mounted path, which Python can reach too.

    >>> [is_on_a_path(place) for place in ("file:/data/check", "/data/check", "dbfs:/check", "s3a://bucket/check")]
    [True, True, False, False]
    """
    return checkpoint.startswith(("file:", "/"))


def close_run(query: str, run: str) -> None:
    """Delete what a run that has ended leaves behind; called by the driver."""
    folder = _started.get(query)
    if folder is not None and folder.run == run and not is_remote(folder.location):
        shutil.rmtree(Path(folder.location) / "blocks" / run, ignore_errors=True)


def least_bytes(session: SparkSession) -> int:
    """Return the least size in bytes of a block that crosses the shuffle by name."""
    text = str(session.conf.get(LEAST, str(_LEAST_BYTES)))
    if not text.isdigit():
        raise OptionError(
            f"{LEAST}={text!r}: write a number of bytes, from which on a block is a file of the checkpoint"
        )
    return int(text)


def folder_of(query: str) -> RunFolder | None:
    """Return the folder of a query, in one of its tasks or in the process that started it; None if it has none."""
    if TaskContext.get() is None:
        return _started.get(query)
    note = _note_of_task()
    if note is None:
        raise BraidedError(
            "this task does not know the checkpoint of its query, because Braided did not see the query start; set "
            "spark.braided.control to a path that the driver and all executors reach"
        )
    return _folder(note)


def folder_of_task() -> tuple[RunFolder, int] | None:
    """Return the folder of the query that a task belongs to, and the batch; None if the query has no such folder."""
    note = _note_of_task()
    folder = None if note is None else _folder(note)
    return None if folder is None else (folder, int(TaskContext.get().getLocalProperty(_BATCH)))


def _note_of_task() -> str | None:
    """Return the driver's note for the tasks of a streaming query."""
    context = TaskContext.get()
    if context is None or context.getLocalProperty(_BATCH) is None:
        return None
    note: str | None = context.getLocalProperty(PROPERTY)
    return note


@lru_cache(maxsize=64)
def _folder(note: str) -> RunFolder | None:
    """Return the folder in the driver's note, if this process sees the number that the driver wrote there."""
    described = json.loads(note)
    if described["folder"] is None:
        return None
    rescaled = described.get("rescaled")
    folder = RunFolder(
        described["folder"],
        described["run"],
        int(described["retained"]),
        int(described["least"]),
        None if rescaled is None else int(rescaled),
    )
    try:
        nonce = folder.files.read(f"runs/{folder.run}")
    except (OSError, BraidedError) as error:
        raise StateError(f"{_elsewhere(folder.location)} ({error})") from error
    if nonce != described["nonce"].encode():
        raise StateError(_elsewhere(folder.location))
    return folder


def _elsewhere(location: str) -> str:
    where = f"this executor does not see the checkpoint of the driver: {location} differs here, or is missing; "
    if is_remote(location):
        return (
            f"{where}give all executors the driver's fsspec client and credentials, or set {OBJECTS}=false: a new "
            "query then keeps its state in Spark's state store"
        )
    return f"{where}put the checkpoint on storage that the driver and all executors share"
