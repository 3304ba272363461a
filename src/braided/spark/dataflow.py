"""The Spark runtime: one shuffle of packed blocks, state in Spark's own state store.

```
 each input -> mapInArrow ROUTE -> union -> observe, drop reports
   -> groupBy(worker).transformWithStateInPandas WORK -> observe, drop reports -> rows
```

Results of flat types leave WORK as rows, as pandas columns backed by Arrow that Spark takes over uncopied.
PySpark converts nested columns of pandas row by row, so results that have any leave as blocks, which a further
mapInArrow unpacks (UNPACK); the hop through a second Python process costs a fifth of a large batch.

Python is fast on columns and Spark's Python state API costs a round trip per call, so rows cross the shuffle
as a few large binary rows and state is read and written in blocks. Reports travel as rows that `observe`
collects into the query's progress; nothing timed crosses the shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from braided.errors import BraidedError
from braided.operator.cache import host_cache
from braided.operator.contract import Operator
from braided.operator.router import Packet, Watch, route_task
from braided.operator.store import Cache
from braided.operator.worker import Place, fingerprint, run_worker
from braided.routing.control import ControlDir
from braided.routing.table import RoutingTable, worker_ids
from braided.time.hand_on import COLUMN, FIELD, HandOn
from braided.version import __version__

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

METRIC = "braided:"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_PARTITIONS = "spark.sql.shuffle.partitions"
_PACKETS = pa.schema(
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
_PACKETS_DDL = (
    "worker int, side int, task int, seq int, late long, copies long, kind int, "
    "note string, block binary, report string"
)
REPORT = "__braided_report"
_BLOCK = "__braided_block"
_MOMENT = "moment"
_WITH_DELAY = "_braided_with_delay"


def check_session(spark: SparkSession, workers: int | None) -> int:
    """Check that the session can run a stateful operator; return the number of workers."""
    provider = spark.conf.get(_PROVIDER)
    if provider != _ROCKSDB:
        raise BraidedError(f"{_PROVIDER}={provider!r}: braided keeps its state in RocksDB; set it to {_ROCKSDB!r}")
    partitions = int(str(spark.conf.get(_PARTITIONS)))
    if workers is not None and workers != partitions:
        raise BraidedError(
            f"workers={workers!r}: differs from {_PARTITIONS}={partitions}; leave it out or set the conf first"
        )
    return partitions


@dataclass(frozen=True)
class Routing:
    """Where router tasks get the table from: a control directory, or one table for good."""

    table: RoutingTable
    control: ControlDir | None = None
    redact: bool = False

    @property
    def workers(self) -> int:
        """The number of workers there are."""
        return self.table.workers

    def table_of(self, batch: int, query: str, join: str) -> RoutingTable:
        """Return the table of a batch."""
        if self.control is None:
            return self.table
        self.control.claim(query, join)
        table = self.control.pin(batch, query)
        if table.workers != self.workers:
            raise BraidedError(
                f"control={self.control.location!r}: its tables are for {table.workers} workers, this query has "
                f"{self.workers}; set {_PARTITIONS}={table.workers} or start anew"
            )
        return table


def stateful(
    operator: Operator,
    inputs: Sequence[DataFrame],
    output: StructType,
    *,
    name: str,
    routing: Routing,
    hand_on: HandOn | None = None,
) -> DataFrame:
    """Run an operator over streaming inputs and return its results as a streaming DataFrame.

    With `hand_on`, an operator that is given this very DataFrame learns from it how late its rows may be.
    """
    results = _stateful(operator, inputs, output, name, routing, None)
    if hand_on is not None:
        # Made once: where a query has the results twice, Spark takes metrics of one name from one plan only.
        setattr(results, _WITH_DELAY, cache(partial(_stateful, operator, inputs, output, name, routing, hand_on)))
    return results


def with_delay(frame: DataFrame) -> DataFrame:
    """Return what an operator made with the delay of its rows in a last column, and any other DataFrame as it is."""
    handing_on: Callable[[], DataFrame] | None = getattr(frame, _WITH_DELAY, None)
    return frame if handing_on is None else handing_on()


def _stateful(
    operator: Operator,
    inputs: Sequence[DataFrame],
    output: StructType,
    name: str,
    routing: Routing,
    hand_on: HandOn | None,
) -> DataFrame:
    routed = None
    for side, input_ in enumerate(inputs):
        packets = input_.mapInArrow(RouteTask(operator, side, routing), _PACKETS_DDL)
        routed = packets if routed is None else routed.unionAll(packets)
    assert routed is not None
    flat = all(not pa.types.is_nested(field.type) for field in operator.output)
    results_schema = operator.output
    if hand_on is not None:
        results_schema = results_schema.append(FIELD)
        output = StructType([*output.fields, StructField(COLUMN, LongType())])
    # Report rows have no values, so every column must admit nulls on the way.
    fields = [StructField(f.name, f.dataType, True, f.metadata) for f in output.fields]
    wire = StructType([*(fields if flat else [StructField(_BLOCK, BinaryType())]), StructField(REPORT, StringType())])
    # Spark fixes it for a micro-batch and keeps it in the offset log. It is part of the code that Spark generates, so
    # every batch compiles that anew: here for a few packets, not for every row.
    moment = F.lit(None).cast("long") if operator.idle is None else F.unix_micros(F.current_timestamp())
    results = (
        routed.observe(f"{METRIC}{name}:route", F.collect_list("report").alias("reports"))
        .where("report is null")
        .drop("report")
        .withColumn(_MOMENT, moment)
        .groupBy("worker")
        .transformWithStateInPandas(
            Worker(operator, routing.workers, flat, routing.control is not None, hand_on), wire, "Append", "None"
        )
        .observe(f"{METRIC}{name}:work", F.collect_list(REPORT).alias("reports"))
        .where(F.col(REPORT).isNull())
        .drop(REPORT)
    )
    return results if flat else results.mapInArrow(Unpack(results_schema), output)


def _check_version(version: str) -> None:
    if version != __version__:
        raise BraidedError(
            f"the driver has braided {version}, this executor {__version__}; install the same version on both"
        )


class RouteTask:
    """ROUTE: rows of one input become packets and a report row."""

    def __init__(self, operator: Operator, side: int, routing: Routing) -> None:
        self._operator = operator
        self._side = side
        self._routing = routing
        self._version = __version__

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _check_version(self._version)
        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        options = fingerprint(self._operator.options)
        table = self._find_table(options)
        workers = self._routing.workers
        ids = worker_ids(workers)
        watch = None if self._routing.control is None else Watch(self._routing.redact)
        for sent in route_task(self._operator, options, table, self._side, task, workers, batches, watch):
            if isinstance(sent, list):
                yield _packet_rows(sent, ids)
            else:
                report = json.dumps(asdict(sent), separators=(",", ":"))
                yield pa.RecordBatch.from_pylist([{"worker": -1, "report": report}], schema=_PACKETS)

    def _find_table(self, options: str) -> RoutingTable:
        """Return the batch's table."""
        if self._routing.control is None:
            return self._routing.table
        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        if batch is None or query is None:
            raise BraidedError("control=: only a streaming query can use it; this plan runs outside of one")
        return self._routing.table_of(int(batch), query, options)


def _packet_rows(packets: list[Packet], ids: tuple[int, ...]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [ids[p.worker] for p in packets],
        [p.side for p in packets],
        [p.task for p in packets],
        [p.seq for p in packets],
        [p.late for p in packets],
        [p.copies for p in packets],
        [p.kind for p in packets],
        [p.note for p in packets],
        [p.block for p in packets],
        [None] * len(packets),
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _PACKETS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PACKETS)


class Worker(StatefulProcessor):  # type: ignore[misc]
    """WORK: one worker's packets and state become result blocks and a report row."""

    def __init__(
        self, operator: Operator, workers: int, flat: bool, watched: bool, hand_on: HandOn | None = None
    ) -> None:
        self._operator = operator
        self._watched = watched
        self._hand_on = hand_on
        self._workers = workers
        self._flat = flat
        self._version = __version__

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the two state variables."""
        self._book = handle.getValueState("book", "content binary")
        self._blocks = handle.getMapState("blocks", "id long", "content binary")

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Process everything this worker gets in one batch."""
        import pandas as pd

        _check_version(self._version)
        # Its partition would not tell: where two results are united, those of the second are counted on.
        worker = worker_ids(self._workers).index(int(key[0]))
        packets = []
        moment = None
        for frame in rows:
            moment = None if self._operator.idle is None else int(frame[_MOMENT].iloc[0])
            numbers = (frame[name].tolist() for name in ("side", "task", "seq", "late", "copies", "kind"))
            for fields in zip(*numbers, frame["note"], frame["block"], strict=True):
                packets.append(Packet(worker, *fields))
        options = fingerprint(self._operator.options)
        place = Place(worker, self._workers, options, self._watched, stamp=moment, hand_on=self._hand_on)
        results = run_worker(self._operator, place, packets, SparkStore(self._book, self._blocks))
        del packets
        while True:
            try:
                piece = next(results)
            except StopIteration as end:
                report = json.dumps(end.value, separators=(",", ":"))
                names = [*self._operator.output.names, *([] if self._hand_on is None else [COLUMN])]
                yield pd.DataFrame({**{name: [None] for name in (names if self._flat else [_BLOCK])}, REPORT: [report]})
                return
            yield (
                self._rows(piece)
                if self._flat
                else pd.DataFrame({_BLOCK: [piece.serialize().to_pybytes()], REPORT: [None]})
            )

    def _rows(self, piece: pa.RecordBatch) -> pd.DataFrame:
        """Return result rows as pandas columns that hold the Arrow arrays themselves."""
        import pandas as pd

        columns = [*piece.columns, pa.nulls(piece.num_rows, pa.string())]
        series = [
            pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([column])), copy=False) for column in columns
        ]
        return pd.DataFrame(dict(zip([*piece.schema.names, REPORT], series, strict=True)), copy=False)

    def close(self) -> None:
        """Nothing is held between batches."""


class SparkStore:
    """A worker's state in Spark's state store."""

    def __init__(self, book: Any, blocks: Any) -> None:
        self._book = book
        self._blocks = blocks
        self.cache: Cache = host_cache()

    def load(self) -> bytes | None:
        """See `Store`."""
        row = self._book.get()
        return None if row is None else bytes(row[0])

    def save(self, book: bytes) -> None:
        """See `Store`."""
        self._book.update((book,))

    def get(self, block: int) -> bytes:
        """See `Store`."""
        return bytes(self._blocks.getValue((block,))[0])

    def put(self, block: int, content: bytes) -> None:
        """See `Store`."""
        self._blocks.updateValue((block,), (content,))

    def delete(self, block: int) -> None:
        """See `Store`."""
        self._blocks.removeKey((block,))


class Unpack:
    """UNPACK: result blocks become rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in batch.column(0):
                yield pa.ipc.read_record_batch(block.as_buffer(), self._schema)
