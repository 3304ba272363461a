"""Pairs of an outer join whose times are ahead of waiting rows: they wait until the clock reaches these rows too.

```
 left join, after a silence of hours:
   right clock |                                                   r, doubted: it has not moved this clock
   left rows that match nothing wait for this clock   ...          (l, r) waits too
   more right rows: the clock leaps; the left rows are returned with nulls, and (l, r) in the same batch
```

A preserved row without a match is returned by the clock of the other stream. So a pair waits while its row of that
stream is more than a jump ahead of this clock. If the pair were returned at once, the next operator might move its
clock before this join does, since few rows can make many pairs, and would then treat the waiting rows as late.

At the start of a stream, before its clock counts, no row without a match is returned. Then a pair waits if it is
further ahead of the first of these rows than results may be behind each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.arrivals import OutputColumn
from braided.operators.join.emit import Emitter, Index
from braided.operators.join.runs import Run
from braided.runtime.blocks import Blocks
from braided.runtime.rows import Rows, in_order
from braided.runtime.waiting_runs import Waiting
from braided.time.clocks import MAX_TIME, MIN_TIME, clamp
from braided.time.quarantine import Quarantine
from braided.time.stream_clock import StreamClock

if TYPE_CHECKING:
    from braided.operators.join.outer_join import OuterJoin

_TIMES = ("__braided_left", "__braided_right")


class HeldPairs:
    """The pairs that wait, by the stream whose clock they wait for, between load and save of one batch."""

    def __init__(self, join: OuterJoin, blocks: Blocks, state: Sequence[Sequence[Sequence[Any]]]) -> None:
        times = [OutputColumn(name, side, join.times[side]) for side, name in enumerate(_TIMES)]
        wide = replace(join, columns=(*join.columns, *times))
        self._sides = tuple(sorted(1 - side for side in join.preserved))
        self._names = list(join.output.names)
        self._emitters = [Emitter(wide) for _ in _TIMES]
        self._waiting = [Waiting(blocks, wide.output, *of) for of in zip(_TIMES, state, strict=True)]
        self._limits = [MAX_TIME, MAX_TIME]
        self._window = join.window  # with the smallest lateness that the next operator may have

    def __len__(self) -> int:
        return sum(map(len, self._waiting))

    def to_json(self) -> list[list[tuple[Any, ...]]]:
        return [waiting.to_json() for waiting in self._waiting]

    def levels(self) -> dict[str, int]:
        """Return how much is stored, by the names of reports. Pairs do not count as stored rows."""
        runs = [run for waiting in self._waiting for run in waiting.runs]
        return {"stored_bytes": sum(run.bytes for run in runs), "runs": len(runs)}

    def begin(
        self,
        clocks: Sequence[StreamClock],
        quarantine: Quarantine,
        patience: Sequence[int],
        earliest: Sequence[int | None],
        *,
        final: bool,
    ) -> None:
        """Set how far pairs may be ahead of the waiting rows, after a batch has moved the clocks.

        earliest : for each stream, the first time of its rows that wait for a clock that does not count yet.
        final : no pair waits.
        """
        self._quarantine, self._patience = quarantine, patience
        furthest = max((clock.limit for clock in clocks if clock.settled), default=MIN_TIME)
        for side in self._sides:
            clock = clocks[side]
            limit = clock.limit if clock.settled else self._limit_at_start(side, earliest[1 - side])
            self._limits[side] = MAX_TIME if final else max(limit, furthest) if clock.idle else limit

    def _limit_at_start(self, side: int, earliest: int | None) -> int:
        """Return the last time of a stream's rows in pairs after which the waiting rows are not late."""
        if earliest is None:
            return MAX_TIME
        return clamp(earliest + self._window.result_delay(1 - side) - self._window.reach(side)[1])

    def release(self) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of earlier batches that no longer wait, and store those of this batch."""
        for side in self._sides:
            waiting, patience = self._waiting[side], self._patience[side]
            limit = self._limits[side]
            pieces = [head.rows for head, _ in waiting.heads(clamp(limit + 1), final=limit == MAX_TIME) if len(head)]
            for run in list(waiting.runs):
                if run.waiting and self._quarantine.judge(side, run.first, run.since, patience) == "discarded":
                    pieces.append(waiting.take(run).rows)
            for piece in pieces:
                yield from self._past(side, piece)
        for side in self._sides:
            self._store(side, self._emitters[side].flush())
            waiting, patience = self._waiting[side], self._patience[side]
            waiting.tidy(lambda since, of=side, most=patience: self._quarantine.same(of, since, most))  # type: ignore[misc]

    def _past(self, side: int, piece: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield pairs that have waited for one stream; those that wait for the other one too are stored for it."""
        for other in self._sides:
            times = piece.column(_TIMES[other]).view(pa.int64()).to_numpy()
            ahead = times > self._limits[other]
            if other > side and ahead.any():
                self._store(other, iter([piece.filter(pa.array(ahead))]))
                piece = piece.filter(pa.array(~ahead))
        if piece.num_rows:
            yield piece.select(self._names)

    def take(self, left: Run, right: Run, i: Index, j: Index) -> npt.NDArray[np.bool_] | None:
        """Take those of some pairs of positions that must wait; return which these are, None if there are none."""
        held: npt.NDArray[np.bool_] | None = None
        for side in self._sides:
            run, at = ((left, i), (right, j))[side]
            if run.span[1] <= self._limits[side]:
                continue
            ahead = run.times[at] > self._limits[side]
            ahead = ahead if held is None else ahead & ~held
            held = ahead if held is None else held | ahead
            self._store(side, self._emitters[side].wait_for_more(left.rows, right.rows, i[ahead], j[ahead]))
        return held if held is not None and held.any() else None

    def _store(self, side: int, pieces: Iterator[pa.RecordBatch]) -> None:
        for piece in pieces:
            rows = Rows(piece)
            self._waiting[side].store(in_order(rows, rows.times(_TIMES[side]))[0], self._quarantine.since(side))
