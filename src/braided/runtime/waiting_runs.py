"""Rows of one input that wait for their turn: runs sorted by (time, content) in a worker's store, left from the front.

```
 run 1   ..released..|######
 run 2        ..released..|##########        heads(until): every run gives its rows before `until`;
 run 3                        ##########     a run is written once, or when many are merged
```

Runs are in the order in which their rows came, and only neighbours are merged: rows that nothing tells apart but when
they came leave in that order, however they were cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from braided.runtime.blocks import BLOCK_BYTES, Blocks
from braided.runtime.rows import Rows, Times, in_order, together
from braided.time.quarantine import StreamProgress

# So many runs of one size class (a factor of eight) are merged into one.
_FANOUT = 8
_NOT_DOUBTED = StreamProgress()


@dataclass
class WaitingRun:
    """A stored run: its block, up to which row it is here and how many have left, and its times.

    Of doubted rows `since` says how far their stream had gone on when they came.
    """

    number: int
    bytes: int
    rows: int
    left: int
    first: int
    last: int
    marked: bool
    since: StreamProgress

    @property
    def waiting(self) -> int:
        """How many rows are still here."""
        return self.rows - self.left


class Waiting:
    """The runs of one input between load and save of one batch."""

    def __init__(self, blocks: Blocks, schema: pa.Schema, time: str, state: Sequence[Sequence[Any]]) -> None:
        self._blocks, self._schema, self._time = blocks, schema, time
        self.runs = [WaitingRun(*run[:-1], since=StreamProgress(*run[-1])) for run in state]  # type: ignore[misc]

    def __len__(self) -> int:
        return sum(run.waiting for run in self.runs)

    def to_json(self) -> list[tuple[Any, ...]]:
        return [astuple(run) for run in self.runs]

    def heads(self, until: int, *, final: bool = False) -> list[tuple[Rows, Times]]:
        """Return what each run has before a time, or all, which waits here no longer, with its times."""
        heads = []
        for run in self.runs:
            if (final or run.first < until) and run.waiting:
                rows, times = self._read(run)
                stop = len(times) if final else int(np.searchsorted(times, until))
                heads.append((rows.slice(0, stop), times[:stop]))
                run.left += stop
                run.first = int(times[stop]) if stop < len(times) else run.last
        return heads

    def tails(self, limit: int) -> list[Rows]:
        """Return what each run has after a time, which waits here no longer."""
        tails = []
        for run in self.runs:
            if run.last > limit and run.waiting:
                rows, times = self._read(run)
                stop = int(np.searchsorted(times, limit, side="right"))
                tails.append(rows.slice(stop))
                run.rows = run.left + stop
                run.last = int(times[stop - 1]) if stop else run.first
        return tails

    def store(self, rows: Rows, since: StreamProgress = _NOT_DOUBTED) -> None:
        """Write rows that are in order as runs."""
        for part, content in rows.pieces():
            times, marked = part.times(self._time), part.marks is not None
            self.runs.append(
                WaitingRun(*self._blocks.write(content), len(part), 0, int(times[0]), int(times[-1]), marked, since)
            )

    def take(self, run: WaitingRun) -> Rows:
        """Return the waiting rows of a run and forget it."""
        rows, _ = self._read(run)
        self._delete(run)
        return rows

    def tidy(self, same: Callable[[StreamProgress], bool] = lambda _: True) -> None:
        """Delete runs that have left, and merge the newest, so that few are here however many batches wait.

        Only rows that were put apart at the `same` mark are merged, under the earliest (`Quarantine.same`).
        """
        for run in [run for run in self.runs if not run.waiting]:
            self._delete(run)
        first = self._to_merge(same)
        if first is not None:
            runs = self.runs[first:]
            rows = together([self.take(run) for run in runs], self._schema)
            self.store(in_order(rows, rows.times(self._time))[0], min(run.since for run in runs))

    def _to_merge(self, same: Callable[[StreamProgress], bool]) -> int | None:
        """Return the first of the runs to merge into one: so many are of the largest class from there on."""
        largest = count = size = 0
        for at in reversed(range(len(self.runs))):
            run = self.runs[at]
            class_, size = run.waiting.bit_length() // 3, size + run.bytes
            if size > BLOCK_BYTES or not same(run.since):
                break
            count = (0 if class_ > largest else count) + (class_ >= largest)
            largest = max(largest, class_)
            if count >= _FANOUT:
                return at
        return None

    def _read(self, run: WaitingRun) -> tuple[Rows, Times]:
        """Return the rows of a run that are still here, and their times."""
        rows = Rows.decoded(self._blocks.read(run.number)[0], self._schema, marked=run.marked)
        rows = rows.slice(run.left, run.rows)
        return rows, rows.times(self._time)

    def _delete(self, run: WaitingRun) -> None:
        self._blocks.delete(run.number)
        self.runs.remove(run)
