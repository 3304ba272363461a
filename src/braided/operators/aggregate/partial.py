"""The first half of an aggregate, in the worker that makes the joined rows: pairs of a join never leave the worker.

```
 join -> pairs, a piece at a time -> partials by (pane, keys): counts, sums, least and largest -> a few rows
```

A pane is the longest stretch of time that no window cuts. Partials merge, so it does not matter which worker made them
under which routing, nor how the stream was cut; only the last bits of sums of doubles depend on that.

The last row of every batch, the tick, has the **horizon**: the time from which on results may still come. Whatever
merges the partials may close every window that ends before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import BraidedError
from braided.expressions.formula import Formula
from braided.operators.aggregate.measures import Measure, grouped, timed
from braided.operators.aggregate.ranges import Layout, RangeTotals
from braided.operators.around import Around
from braided.operators.join.window_join import WindowJoin
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, Operator, Outcome, Work, stores_by_hash
from braided.time.clocks import clamp

PANE, TICK, HORIZON = "pane", "tick", "horizon"
PARTIAL_ROWS = 1 << 17
MOST_PARTIALS = 1 << 20
# Before every time that Spark can show.
OLDEST = -62_135_596_800_000_000
# If the groups of a piece are more than this share of its pairs, the next NOT_GROUPED pieces are not grouped.
GROUPS_PER_PAIR = 0.5
NOT_GROUPED = 15
FEW_PAIRS = 1 << 12


@dataclass(frozen=True)
class Panes:
    """How times fall into panes, and how far results of a join may lag behind its clocks.

    width, offset : a pane starts at ``offset + n * width`` microseconds.
    side : the input whose time is windowed.
    reach : how much earlier than a row of the other input a row of `side` in its result may be.
    waits : whether rows are put in order before they are joined, as with a budget.
    """

    width: int
    offset: int
    side: int
    reach: int
    waits: bool = False

    def of(self, times: pa.Array[Any]) -> pa.Array[Any]:
        """Return the start of each time's pane."""
        micros = times.view(pa.int64()).to_numpy()
        starts = micros - (micros - self.offset) % self.width
        if (starts > micros).any():
            raise BraidedError(
                "window: a time is too close to the earliest one that 64 bits can hold; leave such times out"
            )
        return pa.array(starts).view(times.type)

    def horizon(self, streams: list[Json]) -> int:
        """Return the time before which no result can come any more, from a join's report of its streams.

        Every result has a new row. If this row is of the windowed side, it is not before the safe time of that side. If
        it is of the other side, its partner is earlier by the window's reach at most. A row that matches nothing has
        been returned before it is older than that. Rows that wait to be joined may be as old as the least safe time.
        """
        safe = [
            clamp(stream["clock"] - stream["lateness"])
            if stream["clock"] is not None and stream["trust"]["settled"]
            else OLDEST
            for stream in streams
        ]
        if self.waits:
            safe = [min(safe)] * len(safe)
        return max(OLDEST, min(safe[self.side], clamp(safe[1 - self.side] - self.reach)))


@dataclass(frozen=True)
class PartialAggregate(Around):
    """A join that returns partial aggregates of its rows instead of the rows.

    computed : columns of the rows that are computed from others, by their names; measures may be of them.
    """

    inner: Operator
    time: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    panes: Panes
    computed: tuple[tuple[str, Formula], ...] = ()

    @property
    def output(self) -> pa.Schema:
        """The pane, the keys, the partial results, and the columns of a tick."""
        rows = self.inner.output
        time = rows.field(self.time).type
        return pa.schema(
            [
                pa.field(PANE, time),
                *(rows.field(name) for name in self.keys),
                *(pa.field(measure.name, measure.type) for measure in self.measures),
                pa.field(TICK, pa.bool_()),
                pa.field(HORIZON, time),
            ]
        )

    @property
    def options(self) -> Json:
        measures = [[measure.kind, measure.source] for measure in self.measures]
        panes = self.panes
        options = {
            **self.inner.options,
            "partials": [self.time, list(self.keys), measures, panes.width, panes.offset],
        }
        if self.computed:
            options["computed"] = [[name, formula.text] for name, formula in self.computed]
        return options

    @cached_property
    def layout(self) -> Layout | None:
        """How the join's matches are totalled without making pairs; None where pairs are made."""
        return Layout.of(self)

    @property
    def by_hash(self) -> bool:
        """See `stores_by_hash`."""
        return stores_by_hash(self.inner)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join one batch and yield the partial results of its pairs; the tick comes last, even if there was no pair."""
        before = OLDEST if state is None else int(state["horizon"])
        partials = _Partials(self)
        inner = None if state is None else state["inner"]
        ranges = None
        if self.layout is not None:
            assert isinstance(self.inner, WindowJoin)
            ranges = RangeTotals(self, self.layout, before, partials.add_totals)
            pieces = self.inner.process(work, inner, blocks, ranges)
        else:
            pieces = self.inner.process(work, inner, blocks)
        late = 0
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                outcome: Outcome = end.value
                break
            if piece.column(self.time).null_count:  # a row without a match is in no window
                piece = piece.filter(piece.column(self.time).is_valid())
            late += _count_before(piece.column(self.time), before)
            pairs = partials.add(piece)
            if pairs is not None:
                yield from self._rows(pairs, before)
            if partials.is_full:
                yield from self._rows(partials.take(), before)
        yield from self._rows(partials.take(), before)
        horizon = max(before, self.panes.horizon(outcome.streams))
        yield self._tick(horizon)
        outcome.counts["late_results"] = late if ranges is None else late + ranges.late
        outcome.state = {"inner": outcome.state, "horizon": horizon}
        return outcome

    def _rows(self, partials: pa.Table, horizon: int) -> Iterator[pa.RecordBatch]:
        schema = self.output
        for batch in partials.to_batches(max_chunksize=PARTIAL_ROWS):
            ends = [pa.repeat(False, batch.num_rows), _repeat(horizon, batch.num_rows, schema.field(HORIZON).type)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *ends], schema=schema)

    def _tick(self, horizon: int) -> pa.RecordBatch:
        schema = self.output
        nulls = [pa.nulls(1, field.type) for field in schema][:-2]
        ends = [pa.array([True]), _repeat(horizon, 1, schema.field(HORIZON).type)]
        return pa.RecordBatch.from_arrays([*nulls, *ends], schema=schema)


def _repeat(moment: int, rows: int, kind: pa.DataType) -> pa.Array[Any]:
    return pa.array(np.full(rows, moment, np.int64)).view(kind)


def _count_before(times: pa.Array[Any], horizon: int) -> int:
    """Return how many rows are older than the promised horizon: results of late rows."""
    return int((times.view(pa.int64()).to_numpy() < horizon).sum())


class _Partials:
    """The groups of the rows added so far. If there are very many, they are returned before the batch ends."""

    def __init__(self, aggregate: PartialAggregate) -> None:
        self._aggregate = aggregate
        rows = aggregate.inner.output
        self._keys = [PANE, *aggregate.keys]
        self._schema = pa.schema(
            [
                pa.field(PANE, rows.field(aggregate.time).type),
                *(rows.field(name) for name in aggregate.keys),
                *(pa.field(measure.name, measure.type) for measure in aggregate.measures),
            ]
        )
        self._parts: list[pa.Table] = []
        self._size = 0
        self._room = 2 * PARTIAL_ROWS
        self._totals: list[pa.RecordBatch] = []
        self._waiting = 0
        self._not_grouped = 0
        """How many more pieces are not grouped."""

    def add_totals(self, totals: pa.RecordBatch) -> None:
        """Take rows that each stand for many pairs: pane, keys and measures, in that order. They are grouped later."""
        self._totals.append(totals)
        self._waiting += totals.num_rows
        if self._waiting > PARTIAL_ROWS:
            self._group_totals()

    def _group_totals(self) -> None:
        if not self._totals:
            return
        together = pa.concat_batches(self._totals)
        self._totals, self._waiting = [], 0
        columns = {name: together.column(at) for at, name in enumerate(self._keys)}
        for at, measure in enumerate(self._aggregate.measures, len(self._keys)):
            columns[measure.name] = _summable(together.column(at), measure)
        self._take(grouped(pa.table(columns), self._keys, self._aggregate.measures))

    def add(self, piece: pa.RecordBatch) -> pa.Table | None:
        """Take rows. If grouping them would save little, return them instead, each as a group."""
        if not piece.num_rows:
            return None
        a = self._aggregate
        columns = {PANE: a.panes.of(piece.column(a.time))}
        columns |= {name: piece.column(name) for name in a.keys}
        for name, formula in a.computed:
            piece = piece.append_column(name, formula.compute(piece))
        for measure in a.measures:
            if measure.timed:
                columns[measure.name] = timed(piece.column(a.time), piece.column(measure.source))
            elif measure.source is not None:
                columns[measure.name] = piece.column(measure.source)
        if self._not_grouped:
            self._not_grouped -= 1
            return self._alone(columns, piece.num_rows)
        for measure in a.measures:
            if measure.source is not None:
                columns[measure.name] = _summable(columns[measure.name], measure)
        groups = grouped(pa.table(columns), self._keys, a.measures, partial=False)
        if piece.num_rows >= FEW_PAIRS and groups.num_rows > GROUPS_PER_PAIR * piece.num_rows:
            self._not_grouped = NOT_GROUPED
        self._take(groups)
        return None

    def _alone(self, columns: dict[str, pa.Array[Any]], rows: int) -> pa.Table:
        arrays = [columns[name] for name in self._keys]
        for measure in self._aggregate.measures:
            if measure.kind == "rows":
                arrays.append(pa.repeat(1, rows))
            elif measure.kind == "count":
                arrays.append(columns[measure.name].is_valid().cast(measure.type))
            else:
                arrays.append(columns[measure.name].cast(measure.type))
        return pa.table(arrays, schema=self._schema)

    def _take(self, groups: pa.Table) -> None:
        self._parts.append(groups.cast(self._schema))
        self._size += groups.num_rows
        if self._size > self._room and len(self._parts) > 1:
            self._merge()
            # Twice what is left: else groups that do not occur again would be merged with every piece.
            self._room = max(2 * PARTIAL_ROWS, 2 * self._size)

    @property
    def is_full(self) -> bool:
        """Whether there are so many groups that they should be returned now; they are merged later anyway."""
        return self._size > MOST_PARTIALS

    def _merge(self) -> None:
        groups = grouped(pa.concat_tables(self._parts), self._keys, self._aggregate.measures)
        self._parts, self._size = [groups.cast(self._schema)], groups.num_rows

    def take(self) -> pa.Table:
        """Return the groups, in an order that every re-run repeats, and start again with none."""
        self._group_totals()
        if len(self._parts) > 1:
            self._merge()
        groups = self._parts[0] if self._parts else self._schema.empty_table()
        self._parts, self._size, self._room = [], 0, 2 * PARTIAL_ROWS
        return groups


def _summable(column: pa.Array[Any], measure: Measure) -> pa.Array[Any]:
    """Return a column whose sums cannot overflow before they reach the type of the partial result."""
    if measure.kind != "sum":
        return column
    if pa.types.is_integer(column.type) and pa.types.is_decimal(measure.type):
        ends = pc.min_max(column)
        largest = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
        return column if largest * len(column) < 1 << 62 else column.cast(measure.type)
    return column.cast(measure.type)
