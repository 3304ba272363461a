"""The waiting rows of one input: runs sorted by (time, content) in a worker's store, which rows leave from the front.

```
 run 1   ..released..|######
 run 2        ..released..|##########        heads(until): the rows of every run before `until`;
 run 3                        ##########     a run is written once, and again when many are merged
```
Runs are in order of arrival, and only neighbours are merged. So rows that differ only in their arrival leave in order
of arrival, for any cuts into batches.
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

# This many runs of one size class (a factor of eight) are merged into one.
_FANOUT = 8
_NOT_DOUBTED = StreamProgress()


@dataclass
class WaitingRun:
    """A stored run: its block, the number of its rows and how many of them have left, and its times.

    For doubted rows, `since` is the progress of their stream when they arrived.
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
        """The number of rows that still wait."""
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
        """Remove and return the rows of each run before a time, or all rows if `final`, with their times."""
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
        """Remove and return the rows of each run after a time."""
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
        """Store ordered rows as runs."""
        for part, content in rows.pieces():
            times, marked = part.times(self._time), part.marks is not None
            self.runs.append(
                WaitingRun(*self._blocks.write(content), len(part), 0, int(times[0]), int(times[-1]), marked, since)
            )

    def take(self, run: WaitingRun) -> Rows:
        """Return the waiting rows of a run, and delete the run."""
        rows, _ = self._read(run)
        self._delete(run)
        return rows

    def tidy(self, same: Callable[[StreamProgress], bool] = lambda _: True) -> None:
        """Delete empty runs, and merge the newest ones, so that there are few runs even if many batches wait.

        Only rows whose quarantine began at the `same` mark are merged; they get the earliest mark (`Quarantine.same`).
        """
        for run in [run for run in self.runs if not run.waiting]:
            self._delete(run)
        first = self._to_merge(same)
        if first is not None:
            runs = self.runs[first:]
            rows = together([self.take(run) for run in runs], self._schema)
            self.store(in_order(rows, rows.times(self._time))[0], min(run.since for run in runs))

    def _to_merge(self, same: Callable[[StreamProgress], bool]) -> int | None:
        """Return the first of the runs to merge, from which on `_FANOUT` runs are of the largest class; or None."""
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
        """Return the waiting rows of a run, and their times."""
        rows = Rows.decoded(self._blocks.read(run.number)[0], self._schema, marked=run.marked)
        rows = rows.slice(run.left, run.rows)
        return rows, rows.times(self._time)

    def _delete(self, run: WaitingRun) -> None:
        self._blocks.delete(run.number)
        self.runs.remove(run)
