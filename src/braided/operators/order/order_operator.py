"""The ordering operator: rows wait until no earlier row can come, and are returned in order of event time.

```
 rows of one or several inputs -> ordering stage (K) -> by (time, input, content) -> results
             late, or discarded from quarantine ------> flagged, dropped or aside -> results
```

With one input this is K-slack; with several it is StreamCloud's transparent input merger. A row is returned when its
time is before the clock minus K of every input that is not idle.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.routing.key_hashes import KeyHasher
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work
from braided.runtime.ordering_stage import OrderingStage, merged_order
from braided.runtime.rows import Rows, together
from braided.time.clocks import MIN_TIME, clamp
from braided.time.lateness import Lateness
from braided.time.stream_clock import lateness_options

SEQ, LATE = "seq", "late"
# The limits of a piece.
_PIECE_ROWS = 1 << 18
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class OrderOperator:
    """Puts rows of one or several inputs of one schema in order of event time, per key or as a whole.

    Without a key all rows go to one worker and get a gap-free number. Cost: a sort of each batch's rows, one write
    and one read of those that wait. State: the rows that wait, once.
    """

    schema: pa.Schema
    streams: int
    time: str
    key: tuple[str, ...]
    hasher: KeyHasher
    lateness: tuple[int | Lateness, ...]
    flagged: bool
    """Whether late rows are returned, with a mark; else they are counted and dropped."""
    idle: int | None = None

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return (self.schema,) * self.streams

    @property
    def times(self) -> tuple[str, ...]:
        return (self.time,) * self.streams

    @property
    def names(self) -> tuple[str, ...]:
        return ("input",) if self.streams == 1 else tuple(f"input {at}" for at in range(self.streams))

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results: the input's, then the number, then the mark of late rows."""
        fields = [*self.schema, *([] if self.key else [pa.field(SEQ, pa.int64())])]
        return pa.schema([*fields, *([pa.field(LATE, pa.bool_())] if self.flagged else [])])

    @property
    def options(self) -> Json:
        return {
            "operator": "order",
            "inputs": self.streams,
            "time": self.time,
            "key": list(self.key),
            "lateness": lateness_options(self.lateness),
            "idle": self.idle,
            "rows": [f"{field.name} {field.type}" for field in self.schema],
        }

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Route each row by its key; rows whose key has a null go together."""
        hashes = np.zeros(rows.num_rows, np.uint64)
        if self.key:
            valid = np.ones(rows.num_rows, np.bool_)
            for name in self.key:
                valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
            keyed = rows.select(list(self.key))
            keyed = keyed if valid.all() else keyed.filter(pa.array(valid))
            hashes[valid] = self.hasher.hash(keyed.columns, keyed.num_rows)
        routes = route(table, side, hashes, lambda at: hashes[at])
        return Admitted(rows, routes, _times(rows, self.time), 0)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.key)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        old: Json = state or {"stage": None, "seq": 0}
        stage = OrderingStage(self, old["stage"], blocks)
        aside = stage.take(work, self._missed(work, stage))
        out = _Numbering(self, old["seq"])
        if self.flagged:
            for sides in aside:
                yield from out.add(sides, late=True)
        for sides in stage.release():
            yield from out.add(sides, late=False)
        return Outcome(
            {"stage": stage.to_json(), "seq": out.next},
            counts={"results": out.next - old["seq"], **stage.counts(self.names)},
            levels={**stage.stored(), **stage.levels(self.names)},
            streams=[{"name": name, **known} for name, known in zip(self.names, stage.report(), strict=True)],
            progress=[stage.progress()] * self.streams,
        )

    def _missed(self, work: Work, stage: OrderingStage) -> list[int] | None:
        """Return how many rows of each input come too late, for a recall target; None if no worker sees all rows.

        Without a key worker 0 has all rows, and its K is the only one that counts. With keys the workers have released
        different rows, but all must learn the same K: they use what the routers report to all of them.
        """
        targets = [rule for rule in self.lateness if isinstance(rule, Lateness) and rule.recall is not None]
        if self.key or work.worker or not targets:
            return None
        missed = [0] * self.streams
        for block in work.blocks:
            clock = stage.clocks[block.side]
            times = _times(block.rows, self.time)
            known = MIN_TIME if clock.clock is None else clamp(clock.clock - clock.jump)
            missed[block.side] += int(((times < stage.last) & (times >= known)).sum())
        return missed


class _Numbering:
    """Turns ordered rows into results."""

    def __init__(self, ordering: OrderOperator, next_: int) -> None:
        self._ordering = ordering
        self.next = next_

    def add(self, sides: list[Rows], *, late: bool) -> Iterator[pa.RecordBatch]:
        """Yield rows of all inputs as results, in order, with their numbers and the mark, in pieces."""
        order = merged_order([rows.times(self._ordering.time) for rows in sides])
        rows = together([rows for rows in sides if len(rows)], self._ordering.schema).rows
        for piece in _pieces(rows if order is None else rows.take(pa.array(order))):
            count = piece.num_rows
            columns = piece.columns
            if not self._ordering.key:
                columns.append(pa.array(np.arange(self.next, self.next + count)))
            if self._ordering.flagged:
                columns.append(pa.array(np.full(count, late)))
            self.next += count
            yield pa.RecordBatch.from_arrays(columns, schema=self._ordering.output)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut rows in halves until each part is small; rows of one time may be many and large."""
    if rows.num_rows > 1 and (rows.num_rows > _PIECE_ROWS or rows.nbytes > _PIECE_BYTES):
        middle = rows.num_rows // 2
        yield from _pieces(rows.slice(0, middle))
        yield from _pieces(rows.slice(middle))
    elif rows.num_rows:
        yield rows


def _times(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = rows.column(column).view(pa.int64()).to_numpy()
    return times
