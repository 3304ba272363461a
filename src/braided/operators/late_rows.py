"""Joins that take late rows out: these are dropped and counted, or returned beside the results with their lateness.

```
 rows of a batch --- on time --------------> the join ---> results:    its columns | nulls
                 '-- behind the horizon ------------------> late rows:  nulls | stream, by how much, the row's columns
```

A row is late if its time is before the horizon that its stream had before the batch; the join itself counts late rows
in the same way. All copies of a row see the same horizon, so a row is late on all workers or on none. It is returned
where it is counted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.around import Around
from braided.operators.physical import ComputedColumn, InputColumn, Plan
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Block, Json, Operator, Outcome, Work, keeps_untimed, stream_labels
from braided.typing import LateRowsOption

STREAM, LATE_BY = "__braided_late_stream", "__braided_late_by"


class JoinOfLateRows(Operator, Protocol):
    """What a join must provide so that its late rows can be taken out."""

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        """The key columns of each input."""

    def late_before(self, state: Json | None) -> Sequence[int]:
        """Return the times before which rows of each stream are late, by the state before a batch."""


def late_names(inputs: int) -> tuple[str, ...]:
    """Return the names of a join's streams in its late rows.

    >>> late_names(2), late_names(3)
    (('left', 'right'), ('stream_1', 'stream_2', 'stream_3'))
    """
    return tuple(label.replace(" ", "_") for label in stream_labels(inputs))


def column_name(side: int, number: int) -> str:
    """Return the internal name of a column of a late row."""
    return f"__braided_late_{side}_{number}"


@dataclass(frozen=True)
class WithoutLateRows(Around):
    """A join that never sees a late row. Where `aside`, late rows are among its results, marked by their stream."""

    inner: JoinOfLateRows
    aside: bool

    @property
    def untimed(self) -> tuple[int, ...]:
        """The inputs whose rows are accepted even without a time."""
        return tuple(side for side in range(len(self.inputs)) if keeps_untimed(self.inner, side))

    @property
    def options(self) -> Json:
        """Those of the join. How late rows are treated does not affect stored state, so it may change."""
        return self.inner.options

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results and, if late rows are returned too, of these."""
        if not self.aside:
            return self.inner.output
        marks = [pa.field(STREAM, pa.string()), pa.field(LATE_BY, pa.int64())]
        rows = [
            pa.field(column_name(side, number), field.type)
            for side, schema in enumerate(self.inputs)
            for number, field in enumerate(schema)
        ]
        return pa.schema([*self.inner.output, *marks, *rows])

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join one batch without its late rows."""
        before = self.inner.late_before(state)
        counts = [0] * len(self.inputs)
        on_time = []
        for block in work.blocks:
            late = self._late(block, before[block.side])
            # A row that is late only within its own task is joined with everything.
            punctual = replace(block, late=0) if late is None else _filtered(block, ~late)
            if punctual.rows.num_rows:
                on_time.append(punctual)
            if late is not None and block.stored:
                has_key = self._has_key(block)
                if not has_key.all():  # they match nothing, are returned, and are never late
                    on_time.append(Block(block.side, block.rows.filter(pa.array(late & ~has_key)), 0, timed=False))
                # Copies are counted where they are primary.
                counted = np.flatnonzero((late & has_key)[: block.rows.num_rows - block.copies])
                counts[block.side] += len(counted)
                if self.aside and len(counted):
                    yield self._late_rows(block.side, block.rows.take(pa.array(counted)), before[block.side])
        pieces = self.inner.process(replace(work, blocks=on_time), state, blocks)
        while True:
            try:
                piece = next(pieces)
            except StopIteration as end:
                outcome: Outcome = end.value
                break
            yield self._with_nulls(piece) if self.aside else piece
        for label, count in zip(stream_labels(len(self.inputs)), counts, strict=True):
            outcome.counts[f"late:{label}"] += count
            if not self.aside and f"lost:{label}" in outcome.counts:
                outcome.counts[f"lost:{label}"] += count
        return outcome

    def _late(self, block: Block, before: int) -> npt.NDArray[np.bool_] | None:
        """Return which rows of a block are behind a time, None where none is."""
        if not block.timed:
            return None
        late = _times(block.rows, self.times[block.side]) < before
        return late if late.any() else None

    def _has_key(self, block: Block) -> npt.NDArray[np.bool_]:
        """Return which rows have a key. Rows without one come only from inputs whose unmatched rows are returned."""
        valid = np.ones(block.rows.num_rows, np.bool_)
        for name in self.inner.keys[block.side]:
            if block.rows.column(name).null_count:
                valid &= block.rows.column(name).is_valid().to_numpy(zero_copy_only=False)
        return valid

    def _late_rows(self, side: int, rows: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Return late rows as results, each with its stream and how late it is."""
        count = rows.num_rows
        columns: list[pa.Array[Any]] = [pa.nulls(count, field.type) for field in self.inner.output]
        columns.append(pa.repeat(pa.scalar(late_names(len(self.inputs))[side]), count))
        columns.append(pa.array(before - _times(rows, self.times[side])))
        for of_side, schema in enumerate(self.inputs):
            columns += rows.columns if of_side == side else [pa.nulls(count, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _with_nulls(self, piece: pa.RecordBatch) -> pa.RecordBatch:
        marks = list(self.output)[len(self.inner.output) :]
        nulls = [pa.nulls(piece.num_rows, field.type) for field in marks]
        return pa.RecordBatch.from_arrays([*piece.columns, *nulls], schema=self.output)


def with_late(plan: Plan, late: LateRowsOption) -> Plan:
    """Return the plan of a join that treats late rows as `late` asks; by default it joins them with what is stored."""
    if late == "join":
        return plan
    operator = WithoutLateRows(plan.operator, aside=late == "side")  # type: ignore[arg-type]
    if late == "drop":
        return replace(plan, operator=operator)
    results = [
        replace(column, nullable=True) if isinstance(column, InputColumn | ComputedColumn) else column
        for column in plan.columns
    ]
    marks = [ComputedColumn(STREAM, pa.string(), True), ComputedColumn(LATE_BY, pa.int64(), True)]
    rows = [
        InputColumn(column_name(side, number), side, name, nullable=True)
        for side, schema in enumerate(operator.inputs)
        for number, name in enumerate(schema.names)
    ]
    return replace(plan, operator=operator, columns=(*results, *marks, *rows))


def _filtered(block: Block, stays: npt.NDArray[np.bool_]) -> Block:
    """Return a block without some of its rows; its copies are still its last ones."""
    first_copy = block.rows.num_rows - block.copies
    return replace(
        block,
        rows=block.rows.filter(pa.array(stays)),
        late=0,
        copies=int(np.count_nonzero(stays[first_copy:])),
        tags=None if block.tags is None else block.tags[stays],
    )


def _times(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = rows.column(column).view(pa.int64()).to_numpy()
    return times
