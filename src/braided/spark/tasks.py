"""The tasks of an operator on Spark: ROUTE, WORK and UNPACK, and a worker's state in Spark's state store."""

from __future__ import annotations

import gc
import itertools
import json
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from braided.errors import BraidedError, StateError
from braided.routing.table import RoutingTable, worker_ids
from braided.runtime.bookkeeping import lasting
from braided.runtime.cache import host_cache
from braided.runtime.contract import Json, Operator
from braided.runtime.file_blocks import FileBlocks, StateFolder
from braided.runtime.input_parts import COLUMN as PART
from braided.runtime.input_parts import FIELD as PART_FIELD
from braided.runtime.object_blocks import ObjectBlocks, ObjectFolder
from braided.runtime.router import Packet, Watch, route_task
from braided.runtime.shuffle_files import ShuffleFolder
from braided.runtime.store import BlockStore, CachedBlocks
from braided.runtime.worker import WorkerTask, fingerprint, run_worker
from braided.spark.checkpoint_folder import OBJECTS, folder_of_task
from braided.spark.handover_file import WorkersBefore
from braided.spark.place import PROGRESS
from braided.spark.routing import Routing, workers_of_task
from braided.storage.file_reader import FileReader, Part, read_ahead
from braided.storage.files import has_glob_characters, local_path
from braided.storage.topic_progress import Progress, from_text, read_progress, to_text
from braided.storage.writing import DataFile, TableFile, Target, batch_folder
from braided.time.propagated_delay import COLUMN, PropagatedDelay
from braided.version import __version__

if TYPE_CHECKING:
    import pandas as pd

PACKETS = pa.schema(
    [
        ("worker", pa.int32()),
        ("side", pa.int32()),
        ("task", pa.int32()),
        ("seq", pa.int32()),
        ("late", pa.int64()),
        ("copies", pa.int64()),
        ("kind", pa.int32()),
        ("note", pa.string()),
        ("block", pa.binary()),
        ("report", pa.string()),
    ]
)
PACKETS_DDL = (
    "worker int, side int, task int, seq int, late long, copies long, kind int, "
    "note string, block binary, report string"
)
REPORT = "__braided_report"
BLOCK = "__braided_block"
MOMENT = "moment"
_QUERY = "sql.streaming.queryId"
# Spark runs the jobs of a query in a job group named after its run.
_RUN = "spark.jobGroup.id"
# The place of a worker's blocks, as in its bookkeeping.
IN_SPARK, IN_FILES, IN_OBJECTS = "spark", "files", "objects"
# Counts the tasks of this process.
_ended = itertools.count(1)
# The columns that describe written files: name and size; for a table's files also partition and footer; and the
# progress of the time columns of a topic.
FILES = pa.schema(
    [
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("values", pa.string()),
        ("footer", pa.binary()),
        ("progress", pa.string()),
    ]
)
FILES_DDL = "name string, rows long, bytes long, values string, footer binary, progress string"


def freeze_loaded() -> None:
    """Freeze loaded objects, so that the garbage collector skips them, after a process's tasks 1, 2, 4, 8 ...

    PySpark's daemon collects garbage after every task. With pandas, Arrow and numba loaded it visits a hundred thousand
    objects which never become garbage, and takes longer than the work of a small batch. A process loads more with its
    first task of every kind: routers and workers, and those of other queries.
    """
    ended = next(_ended)
    if ended & (ended - 1) == 0:
        gc.collect()
        gc.freeze()


def wire_names(count: int) -> list[str]:
    """Return internal names for columns inside Spark, since users' names may have dots or quotes."""
    return [f"c{number}" for number in range(count)]


def batch_number() -> int:
    """Return the number of the batch that this task belongs to."""
    context = TaskContext.get()
    batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    if batch is None:
        raise BraidedError("braided.write_files: only a streaming query writes files; this plan runs without one")
    return int(batch)


def file_rows(files: list[DataFile]) -> pa.RecordBatch:
    """Return rows that name files."""
    rows = [asdict(file) for file in files]
    for row in rows:
        row["values"] = json.dumps(row["values"]) if "values" in row else None
    return pa.RecordBatch.from_pylist(rows, schema=FILES)


def files_of(rows: Iterable[Any]) -> list[DataFile]:
    """Return the files that rows name, in the order of their names."""
    named: list[DataFile] = [
        DataFile(row["name"], row["rows"], row["bytes"])
        if row["footer"] is None
        else TableFile(row["name"], row["rows"], row["bytes"], tuple(json.loads(row["values"])), bytes(row["footer"]))
        for row in rows
        if row["name"] is not None
    ]
    return sorted(named, key=lambda file: file.name)


@dataclass(frozen=True)
class WrittenResult:
    """Results that workers write: the target, and the columns of the operator's result with their names.

    times : the name of each column that is a time of a stream's rows, and the stream.
    """

    target: Target
    schema: pa.Schema
    columns: tuple[int, ...]
    times: tuple[tuple[str, int], ...] = ()

    def progress(self, report: Json) -> str:
        """Return the progress that a worker promises for the time columns, as text."""
        of_streams = report.get("progress")
        if of_streams is None:
            return to_text({})
        return to_text({name: read_progress(of_streams[stream]) for name, stream in self.times})

    def chosen(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that are written."""
        return pa.RecordBatch.from_arrays([piece.column(at) for at in self.columns], schema=self.schema)


def _check_version(version: str) -> None:
    if version != __version__:
        raise BraidedError(
            f"the driver has braided {version}, this executor {__version__}; install the same version on both"
        )


class FileTask:
    """Turns names of files into their rows, with a last column that numbers each file or part of a file.

    If names may repeat, all repeats of a name are in one task, which reads the file once.
    """

    def __init__(self, reader: FileReader, partitions: tuple[str, ...], *, may_repeat: bool = False) -> None:
        self._reader = reader
        self._partitions = partitions
        self._may_repeat = may_repeat
        self._progress: dict[str, Progress] = {}

    def progress(self, column: int) -> Progress | None:
        """Return the progress of a column once the last row has been read, if its topic has it."""
        return self._progress.get(self._reader.outputs[column])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        taken, number = set(), 0
        self._progress = {}
        for batch in batches:
            for at in range(batch.num_rows):
                path, start, stop, *values = (column[at] for column in batch.columns)
                if start.as_py() == PROGRESS:
                    self._progress = from_text(path.as_py())
                    continue
                part = Part(local_path(path.as_py()), start.as_py(), stop.as_py(), self._given(values))
                if not self._may_repeat:
                    self._check(part)
                elif (part.path, part.start) in taken:
                    continue
                else:
                    taken.add((part.path, part.start))
                number += 1
                for rows in self._reader.read(part):
                    yield rows.append_column(PART_FIELD, pa.array(np.full(rows.num_rows, number)))

    def _given(self, values: Sequence[pa.Scalar[Any]]) -> dict[str, pa.Scalar[Any]]:
        return dict(zip(self._partitions, values, strict=True))

    def _check(self, part: Part) -> None:
        """Refuse a new name with glob characters, which makes Spark repeat other files of the batch."""
        if has_glob_characters(part.path) and not self._reader.committed:
            raise BraidedError(
                f"{part.path}: start the query again. If a name has {{}}, [], * or ?, Spark returns all files of a "
                "batch several times (SPARK-58518); a query that finds such names at its start reads each file once"
            )


class RouteTask:
    """ROUTE: turns rows of one input into packets and a report row.

    With `in_parts`, a last column of the rows distinguishes parts of the input (`braided.runtime.input_parts`).
    """

    def __init__(
        self,
        operator: Operator,
        side: int,
        routing: Routing,
        files: FileTask | None = None,
        *,
        in_parts: bool = False,
        home: str = "",
    ) -> None:
        """`home` is the name of the operator's folder in a new checkpoint; it is unique."""
        self._operator = operator
        self._home = home
        self._side = side
        self._routing = routing
        self._files = files
        self._last = PART if in_parts or files is not None else COLUMN
        self._version = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _check_version(self._version)
        if self._files is not None:
            batches = read_ahead(self._files(batches))
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        options = fingerprint(self._operator.options)
        workers = workers_of_task(self._routing)
        table = self._find_table(fingerprint(lasting(self._operator.options)), workers)
        ids = worker_ids(workers)
        folder = shuffle_folder(self._home)
        watch = None if self._routing.control is None else Watch(self._routing.redact)
        rows = self._named(batches)
        least = None if folder is None else folder.least
        for sent in route_task(
            self._operator, options, table, self._side, task, workers, rows, watch, least, self._promise
        ):
            if isinstance(sent, list):
                yield _packet_rows(sent, ids, folder)
            else:
                report = json.dumps(asdict(sent), separators=(",", ":"))
                yield pa.RecordBatch.from_pylist([{"worker": -1, "report": report}], schema=PACKETS)
        freeze_loaded()

    def _promise(self) -> Progress | None:
        """Return the progress of this input, if it is a topic whose writer recorded it."""
        if self._files is None:
            return None
        return self._files.progress(self._operator.inputs[self._side].names.index(self._operator.times[self._side]))

    def _named(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Restore the columns' own names. One more column distinguishes parts, or is a propagated delay."""
        names = [*self._operator.inputs[self._side].names, self._last]
        for batch in batches:
            yield batch.rename_columns(names[: batch.num_columns])

    def _find_table(self, join: str, workers: int) -> RoutingTable:
        """Return the batch's table, from the control directory of this join if there is one."""
        if self._routing.control is None:
            return self._routing.first(workers)
        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        query = context.getLocalProperty(_QUERY) if context is not None else None
        if batch is None or query is None:
            raise BraidedError("control=: only a streaming query can use it; this plan runs without one")
        return self._routing.table_of(int(batch), query, join, workers, context.getLocalProperty(_RUN))


class TickTask(RouteTask):
    """ROUTE of a batch without rows: its summary makes all workers run."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield from super().__call__(())


def _packet_rows(packets: list[Packet], ids: tuple[int, ...], folder: ShuffleFolder | None) -> pa.RecordBatch:
    packets = packets if folder is None else [folder.send(packet) for packet in packets]
    columns: list[list[Any]] = [
        [ids[p.worker] for p in packets],
        [p.side for p in packets],
        [p.task for p in packets],
        [p.seq for p in packets],
        [p.late for p in packets],
        [p.copies for p in packets],
        [p.kind for p in packets],
        [p.note for p in packets],
        [None if p.block is None else p.block.to_pybytes() for p in packets],
        [None] * len(packets),
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, PACKETS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKETS)


def shuffle_folder(home: str) -> ShuffleFolder | None:
    """Return the folder by which a task's blocks cross the shuffle; None if they travel inline."""
    folder = folder_of_task()
    return None if folder is None else folder[0].blocks(home, folder[1])


class Worker:
    """WORK: turns one worker's packets and state into result blocks and a report row."""

    def __init__(
        self,
        operator: Operator,
        routing: Routing,
        flat: bool,
        propagated_delay: PropagatedDelay | None = None,
        written: WrittenResult | None = None,
        home: str = "",
    ) -> None:
        """`home` is the name of the operator's folder in a new checkpoint; it is unique."""
        self._operator = operator
        self._home = home
        self._written = written
        self._propagated_delay = propagated_delay
        self._routing = routing
        self._flat = flat
        self._version = __version__

    def __call__(
        self, key: tuple[int], rows: Iterator[pd.DataFrame], bookkeeping: Any, blocks: Any
    ) -> Iterator[pd.DataFrame]:
        """Process everything this worker gets in one batch; its state is in the two variables."""
        import pandas as pd

        _check_version(self._version)
        # Not by its partition: in a union of two results, Spark continues counting with the partitions of the second.
        workers = workers_of_task(self._routing)
        worker = worker_ids(workers).index(int(key[0]))
        packets = []
        moment = None
        folder = shuffle_folder(self._home)
        for frame in rows:
            moment = None if self._operator.idle is None else int(frame[MOMENT].iloc[0])
            numbers = (frame[name].tolist() for name in ("side", "task", "seq", "late", "copies", "kind"))
            contents = (None if block is None else pa.py_buffer(block) for block in frame["block"])
            for fields in zip(*numbers, frame["note"], contents, strict=True):
                packet = Packet(worker, *fields)
                packets.append(packet if folder is None else folder.receive(packet))
        options = fingerprint(self._operator.options)
        watched = self._routing.control is not None
        task = WorkerTask(
            worker,
            workers,
            options,
            watched,
            moment=moment,
            propagated_delay=self._propagated_delay,
            control=self._location(),
            rescaling=self._rescaling(),
        )
        results = run_worker(self._operator, task, packets, SparkStore(bookkeeping, blocks, self._folder(worker)))
        if folder is not None:
            folder.clean(worker)
        del packets
        if self._written is not None:
            yield self._write(worker, results, self._written)
            freeze_loaded()
            return
        while True:
            try:
                piece = next(results)
            except StopIteration as end:
                report = json.dumps(end.value, separators=(",", ":"))
                names = (
                    wire_names(len(self._operator.output) + (self._propagated_delay is not None))
                    if self._flat
                    else [BLOCK]
                )
                yield pd.DataFrame({**{name: [None] for name in names}, REPORT: [report]})
                freeze_loaded()
                return
            yield (
                self._rows(piece)
                if self._flat
                else pd.DataFrame({BLOCK: [piece.serialize().to_pybytes()], REPORT: [None]})
            )

    def _folder(self, worker: int) -> StateFolder | ObjectFolder | None:
        """Return the folder of state blocks in the checkpoint; None if this query has no such folder."""
        folder = folder_of_task()
        return None if folder is None else folder[0].state(self._home, worker, folder[1])

    def _rescaling(self) -> WorkersBefore | None:
        """Return the state of the old workers when their number changed; None if it never did."""
        folder = folder_of_task()
        if folder is None or folder[0].rescaled is None:
            return None
        return WorkersBefore(Path(folder[0].location), folder[0].rescaled, folder[1], self._routing.first)

    def _location(self) -> str | None:
        """Return the place of the query's routing tables, without symbolic links, which may change later."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        control = None if query is None else self._routing.directory(query)
        if control is None or "://" in control.location:
            return None if control is None else control.location
        return os.path.realpath(control.location)

    def _write(
        self, worker: int, results: Generator[pa.RecordBatch, None, Json], written: WrittenResult
    ) -> pd.DataFrame:
        """Write the results into files; return rows that name them, and the report."""
        import pandas as pd

        writer = written.target.writer(batch_folder(batch_number()), worker, written.schema)
        try:
            while True:
                try:
                    writer.write(written.chosen(next(results)))
                except StopIteration as end:
                    progress = written.progress(end.value)
                    files, report = writer.close(), json.dumps(end.value, separators=(",", ":"))
                    break
        except BaseException:
            writer.discard()
            raise
        # A row for each file, one with the progress, and the report, which is dropped later.
        columns = {name: [*values, None, None] for name, values in file_rows(files).to_pydict().items()}
        columns["progress"] = [*[None] * len(files), progress, None]
        rows = pd.DataFrame({**columns, REPORT: [*[None] * len(files), None, report]}, dtype=object)
        return rows.astype({"rows": "Int64", "bytes": "Int64"})

    def _rows(self, piece: pa.RecordBatch) -> pd.DataFrame:
        """Return result rows as pandas columns that hold the Arrow arrays themselves."""
        import pandas as pd

        columns = [*piece.columns, pa.nulls(piece.num_rows, pa.string())]
        series = [
            pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([column])), copy=False) for column in columns
        ]
        return pd.DataFrame(dict(zip([*wire_names(piece.num_columns), REPORT], series, strict=True)), copy=False)


_STORES = {type(None): IN_SPARK, StateFolder: IN_FILES, ObjectFolder: IN_OBJECTS}


class SparkStore:
    """A worker's state: the bookkeeping in Spark's state store, blocks there or in the checkpoint."""

    def __init__(self, bookkeeping: Any, blocks: Any, folder: StateFolder | ObjectFolder | None) -> None:
        self._bookkeeping = bookkeeping
        self._blocks = blocks
        self._folder = folder

    def load(self) -> bytes | None:
        """See `Store`."""
        # If a value is missing, Spark logs a warning when it is read: one for each worker of a new query. Asking
        # whether it exists takes 0.2 ms more per batch.
        return bytes(self._bookkeeping.get()[0]) if self._bookkeeping.exists() else None

    def save(self, bookkeeping: bytes) -> None:
        """See `Store`."""
        self._bookkeeping.update((bookkeeping,))

    def open(self, bookkeeping: Json) -> BlockStore:
        """See `Store`. The place of blocks is chosen with the first batch, for the lifetime of the checkpoint."""
        if not bookkeeping["batches"]:
            bookkeeping["store"] = _STORES[type(self._folder)]
        store = bookkeeping.get("store", IN_SPARK)
        if store == IN_SPARK:
            return _SparkBlocks(self._blocks)
        if isinstance(self._folder, StateFolder) and store == IN_FILES:
            return FileBlocks(self._folder, bookkeeping)
        if isinstance(self._folder, ObjectFolder) and store == IN_OBJECTS:
            return ObjectBlocks(self._folder, bookkeeping)
        began = "on a local path" if store == IN_FILES else f"on a store that the driver reached by fsspec ({OBJECTS})"
        raise StateError(
            f"the state is in {store} of the checkpoint, which this query cannot reach: at its first start its "
            f"checkpoint was {began}, and the session was a classic one; start it in the same way"
        )


class _SparkBlocks(CachedBlocks):
    """Blocks in Spark's state store."""

    def __init__(self, blocks: Any) -> None:
        self._blocks = blocks
        self.cache = host_cache()

    def read_block(self, number: int) -> bytes | None:
        """See `CachedBlocks`."""
        row = self._blocks.getValue((number,))
        return None if row is None else bytes(row[0])

    def write_block(self, number: int, content: bytes) -> None:
        """See `CachedBlocks`."""
        self._blocks.updateValue((number,), (content,))

    def remove_block(self, number: int) -> None:
        """See `CachedBlocks`."""
        self._blocks.removeKey((number,))


class Unpack:
    """UNPACK: turns result blocks into rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0):
                rows = pa.ipc.read_record_batch(block.as_buffer(), self._schema)
                yield rows.rename_columns(wire_names(rows.num_columns))
