"""Turns matches into result batches of bounded size; predicates are applied before columns are copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.pair_kernels import expand_pairs, match_ranges
from braided.operators.join.runs import Run, all_meet
from braided.operators.join.sizes import fixed_row_bytes, row_bytes

if TYPE_CHECKING:
    from braided.operators.join.stored import JoinState
    from braided.operators.join.window_join import WindowJoin
    from braided.routing.tally import Tally

PIECE_ROWS = 1 << 16
PIECE_BYTES = 8 << 20

Index = npt.NDArray[np.int64]
Source = tuple[pa.RecordBatch, Index]


class Ranges(Protocol):
    """A consumer that needs no pairs, only the range of matches of each probe row."""

    def take(self, side: int, probe: Run, stored: Run, rows: Index, starts: Index, ends: Index) -> int | None:
        """Take what `match_ranges` found and return how many of the pairs are results; None to get pairs."""


def find_ranges(probe: Run, stored: Run, low: int, high: int) -> tuple[Index, Index, Index]:
    """Return the probe rows with matches in a stored run: their positions, first matches and running totals."""
    # Only probe rows within the run's span of hashes can match.
    first = int(np.searchsorted(probe.hashes, stored.hashes[0]))
    last = int(np.searchsorted(probe.hashes, stored.hashes[-1], side="right"))
    rows, starts, ends = (np.empty(last - first, np.int64) for _ in range(3))
    count = match_ranges(
        probe.hashes[first:last],
        probe.times[first:last],
        stored.hashes,
        stored.times,
        stored.directory,
        stored.filter,
        stored.shift,
        low,
        high,
        all_meet(probe, stored, low, high),
        rows,
        starts,
        ends,
    )
    return rows[:count] + first, starts[:count], ends[:count]


class Emitter:
    """Collects matched pairs of one batch and releases them in pieces.

    Pairs are collected as positions. Rows are copied once a piece is full, so that many small runs cost one copy of the
    probe's columns together, not one each.
    """

    def __init__(self, join: WindowJoin, tally: Tally | None = None, ranges: Ranges | None = None) -> None:
        self._join = join
        self._tally = tally
        self._ranges = ranges
        self._names = [[c.source for c in join.columns if c.side == side] for side in (0, 1)]
        self._fixed = [fixed_row_bytes(schema) for schema in join.inputs]
        sizes = [int(size[0]) for size in self._fixed if size is not None]
        self._pair_bytes = sum(sizes) if len(sizes) == len(self._fixed) else None
        self._waiting: list[tuple[Source, Source]] = []
        self._rows = self._bytes = 0
        self.results = 0

    def meet(
        self, state: JoinState, new: Sequence[Sequence[Run]], probing: Sequence[Sequence[Run]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the pairs of new rows with stored rows and with each other, and the pairs of rows that only probe."""
        for left in new[0]:
            for right in (*state.runs_for(left, 1), *new[1]):
                yield from self.probe(0, left, right)
        for right in new[1]:
            for left in state.runs_for(right, 0):
                yield from self.probe(1, right, left)
        # Rows sent to an older assignment meet only the rows stored there: no new row is stored under it.
        for side in (0, 1):
            for probe in probing[side]:
                for stored in state.runs_for(probe, 1 - side):
                    yield from self.probe(side, probe, stored)
        yield from self.flush()

    def probe(self, side: int, probe: Run, stored: Run) -> Iterator[pa.RecordBatch]:
        """Yield full pieces of the pairs that probe rows of one side form with a run of the other side."""
        if not len(probe.hashes) or not len(stored.hashes):
            return
        rows, starts, ends = find_ranges(probe, stored, *self._join.window.reach(side))
        if not len(rows):
            return
        if self._tally is not None:
            tags = None if probe.tags is None else probe.tags[rows]
            self._tally.results(probe.hashes[rows], tags, np.diff(ends, prepend=0))
        taken = None if self._ranges is None else self._ranges.take(side, probe, stored, rows, starts, ends)
        if taken is not None:
            self.results += taken
            return
        if self._join.theta is not None:
            past = starts + np.diff(ends, prepend=0)
            yield from self._probe_theta(side, probe, stored, rows, starts, past)
            return
        total = int(ends[-1])
        for at in range(0, total, PIECE_ROWS):
            size = min(PIECE_ROWS, total - at)
            mine, theirs = np.empty(size, np.int64), np.empty(size, np.int64)
            expand_pairs(rows, starts, ends, at, mine, theirs)
            left, right = (probe, stored) if side == 0 else (stored, probe)
            pairs = (mine, theirs) if side == 0 else (theirs, mine)
            yield from self.emit(left, right, *pairs)

    def _probe_theta(
        self, side: int, probe: Run, stored: Run, rows: Index, first: Index, past: Index
    ) -> Iterator[pa.RecordBatch]:
        """Yield full pieces of the pairs that a join without keys accepts, of rows within each other's window."""
        assert self._join.theta is not None
        whole = len(rows) == len(probe.times)
        mine = probe.rows if whole else probe.rows.take(pa.array(rows))
        for at, theirs in self._join.theta.pairs(side, mine, stored.rows, first, past):
            positions = at if whole else rows[at]
            left, right = (probe, stored) if side == 0 else (stored, probe)
            pairs = (positions, theirs) if side == 0 else (theirs, positions)
            yield from self.emit(left, right, *pairs)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left."""
        if not self._waiting:
            return
        sides = [_gather([pair[side] for pair in self._waiting], self._names[side]) for side in (0, 1)]
        at = [iter(columns) for columns in sides]
        # `columns` lists each side's columns in the order of `_names`.
        piece = pa.RecordBatch.from_arrays([next(at[c.side]) for c in self._join.columns], schema=self._join.output)
        self._waiting, self._rows, self._bytes = [], 0, 0
        self.results += piece.num_rows
        yield piece

    def emit(self, left_run: Run, right_run: Run, i: Index, j: Index) -> Iterator[pa.RecordBatch]:
        """Take pairs of positions; yield full pieces of those that are results."""
        yield from self.wait_for_more(left_run.rows, right_run.rows, *self.results_of(left_run, right_run, i, j))

    def results_of(self, left_run: Run, right_run: Run, i: Index, j: Index) -> tuple[Index, Index]:
        """Return the pairs of positions that are results."""
        if left_run.tags is not None or right_run.tags is not None:
            # Hashes of different grids may collide too, however rarely.
            same = _tags_at(left_run, i) == _tags_at(right_run, j)
            i, j = (i, j) if np.all(same) else (i[same], j[same])
        return self._accepted(left_run.rows, right_run.rows, i, j)

    def wait_for_more(
        self, left: pa.RecordBatch, right: pa.RecordBatch, i: Index, j: Index
    ) -> Iterator[pa.RecordBatch]:
        """Collect results; yield full pieces."""
        for start, stop, size in self._cuts(left, right, i, j):
            if self._rows + stop - start > PIECE_ROWS or self._bytes + size > PIECE_BYTES:
                yield from self.flush()
            self._waiting.append(((left, i[start:stop]), (right, j[start:stop])))
            self._rows += stop - start
            self._bytes += size

    def _cuts(self, left: pa.RecordBatch, right: pa.RecordBatch, i: Index, j: Index) -> Iterator[tuple[int, int, int]]:
        """Cut pairs into (start, stop, bytes) so that none exceeds PIECE_BYTES, however large single rows are."""
        if not len(i):
            return
        if self._pair_bytes is not None and len(i) * self._pair_bytes <= PIECE_BYTES:
            yield 0, len(i), len(i) * self._pair_bytes
            return
        sizes = [
            row_bytes(rows) if fixed is None else fixed for rows, fixed in zip((left, right), self._fixed, strict=True)
        ]
        most = len(i) * sum(int(size.max()) for size in sizes)
        if most <= PIECE_BYTES:
            yield 0, len(i), most
            return
        # A single size stands for all rows.
        of_pairs = [
            size[at] if len(size) > 1 else np.broadcast_to(size, len(at))
            for size, at in zip(sizes, (i, j), strict=True)
        ]
        total = np.cumsum(of_pairs[0] + of_pairs[1])
        start = 0
        while start < len(i):
            before = int(total[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(total, before + PIECE_BYTES, side="right")))
            yield start, stop, int(total[stop - 1]) - before
            start = stop

    def _accepted(self, left: pa.RecordBatch, right: pa.RecordBatch, i: Index, j: Index) -> tuple[Index, Index]:
        """Keep the pairs with equal keys (hashes may collide), and of those the pairs that the predicate accepts.

        In this order, because a predicate may raise on a pair that is not a result.
        """
        join = self._join
        if not join.hasher.exact:
            li, rj = pa.array(i), pa.array(j)
            same = join.hasher.equal(
                [left.column(name).take(li) for name in join.keys[0]],
                [right.column(name).take(rj) for name in join.keys[1]],
            )
            i, j = (i, j) if same.all() else (i[same], j[same])
        if join.where is not None and join.theta is None and len(i):
            li, rj = pa.array(i), pa.array(j)
            wanted = join.where.mask(
                {name: left.column(name).take(li) for name in join.where.left},
                {name: right.column(name).take(rj) for name in join.where.right},
            )
            i, j = i[wanted], j[wanted]
        return i, j


def _tags_at(run: Run, at: Index) -> npt.NDArray[np.int32]:
    return np.zeros(len(at), np.int32) if run.tags is None else run.tags[at]


def _gather(sources: list[Source], names: list[str]) -> list[pa.Array]:
    """Copy rows out of their runs, in order; positions in the same run are taken together."""
    if not names:
        return []
    parts: list[pa.RecordBatch] = []
    at = 0
    while at < len(sources):
        rows = sources[at][0]
        same = at
        while same < len(sources) and sources[same][0] is rows:
            same += 1
        index = [positions for _, positions in sources[at:same]]
        parts.append(rows.select(names).take(pa.array(np.concatenate(index) if len(index) > 1 else index[0])))
        at = same
    return list((pa.concat_batches(parts) if len(parts) > 1 else parts[0]).columns)
