"""Turns combinations of rows of many streams into result batches of bounded size.

A row is named by a *place*: the number of its run in the stream's `RunList`, and its position there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.emit import PIECE_BYTES, PIECE_ROWS
from braided.operators.join.runs import Run
from braided.operators.join.sizes import fixed_row_bytes, row_bytes
from braided.operators.multijoin.stamps import counted_here, stamps_of

if TYPE_CHECKING:
    from braided.operators.join.window_join import WindowJoin
    from braided.operators.multijoin.multijoin import MultiJoin
    from braided.routing.tally import Tally

Places = npt.NDArray[np.int64]
T = TypeVar("T", bound=np.generic)
_POSITION_BITS = 32
_POSITION = (1 << _POSITION_BITS) - 1


def place_of(number: int, positions: npt.NDArray[np.int64]) -> Places:
    """Return the places of rows of one run; the next row's place is one more."""
    return positions + (number << _POSITION_BITS)


class RunList(Protocol):
    """The runs of one stream, by number."""

    def run(self, number: int) -> Run:
        """Return a run."""


@dataclass(frozen=True)
class OneRun:
    """All rows of a stream as run number 0; it is never searched, so hashes are used for tallies only."""

    rows: pa.RecordBatch
    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    tags: npt.NDArray[np.int32] | None = None

    def run(self, number: int) -> Run:
        none = np.zeros(0, np.int64)
        return Run(self.rows, self.hashes, none, none.view(np.int32), none.view(np.uint8), self.tags)


class MultiEmitter:
    """Collects combinations of one batch and releases them in pieces."""

    def __init__(
        self, join: MultiJoin | WindowJoin, runs: Sequence[RunList], tally: Tally | None = None, *, stamps: bool = False
    ) -> None:
        self._join = join
        self._runs = runs
        self._tally = tally
        self._stamps = stamps
        self._fixed = [fixed_row_bytes(schema) for schema in join.inputs]
        self._sizes: list[dict[int, npt.NDArray[np.int64]]] = [{} for _ in join.inputs]
        self._waiting: list[list[Places]] = []
        self._rows = self._bytes = 0
        self.results = 0

    def emit(self, places: list[Places]) -> Iterator[pa.RecordBatch]:
        """Take combinations, one array of places per stream; yield full pieces."""
        if not len(places[0]):
            return
        total = np.cumsum(sum(self._row_sizes(stream, at) for stream, at in enumerate(places)))
        start = 0
        while start < len(total):
            before = int(total[start - 1]) if start else 0
            stop = int(np.searchsorted(total, before + PIECE_BYTES, side="right"))
            stop = max(start + 1, min(stop, start + PIECE_ROWS))
            size = int(total[stop - 1]) - before
            if self._rows + stop - start > PIECE_ROWS or self._bytes + size > PIECE_BYTES:
                yield from self.flush()
            self._waiting.append([at[start:stop] for at in places])
            self._rows += stop - start
            self._bytes += size
            start = stop

    def flush(self) -> Iterator[pa.RecordBatch]:
        if not self._waiting:
            return
        join = self._join
        places = [np.concatenate(parts) for parts in zip(*self._waiting, strict=True)]
        self._waiting, self._rows, self._bytes = [], 0, 0
        wanted = self._are_results(places)
        if not wanted.all():
            places = [at[wanted] for at in places]
        if self._tally is not None:
            hashes = _values(self._runs[0], places[0], lambda run: run.hashes, np.uint64)
            known, first, counts = np.unique(hashes, return_index=True, return_counts=True)
            self._tally.results(known, self._tags(0, places[0][first]), counts)
        names = [[c.source for c in join.columns if c.side == stream] for stream in range(len(places))]
        gathered = [iter(self._gather(stream, at, names[stream])) for stream, at in enumerate(places)]
        piece = pa.RecordBatch.from_arrays([next(gathered[c.side]) for c in join.columns], schema=join.output)
        self.results += piece.num_rows
        if piece.num_rows:
            yield piece

    def _are_results(self, places: list[Places]) -> npt.NDArray[np.bool_]:
        """Return which combinations have equal keys (hashes may collide) and are counted here."""
        join = self._join
        wanted = np.ones(len(places[0]), np.bool_)
        if not join.hasher.exact:
            keys = [self._gather(stream, at, join.keys[stream]) for stream, at in enumerate(places)]
            for other in keys[1:]:
                wanted &= join.hasher.equal(keys[0], other)
        if self._stamps:
            # Hashes of different grids may collide too, however rarely.
            tags = [self._tags(stream, at) for stream, at in enumerate(places)]
            for other_tags in tags[1:]:
                wanted &= tags[0] == other_tags
            stamps = [
                _values(self._runs[stream], at, lambda run: stamps_of(run.rows), np.int32)
                for stream, at in enumerate(places)
            ]
            wanted &= counted_here(stamps)
        return wanted

    def _tags(self, stream: int, places: Places) -> npt.NDArray[np.int32]:
        return _values(
            self._runs[stream],
            places,
            lambda run: np.zeros(len(run.times), np.int32) if run.tags is None else run.tags,
            np.int32,
        )

    def _row_sizes(self, stream: int, places: Places) -> npt.NDArray[np.int64]:
        fixed = self._fixed[stream]
        if fixed is not None:
            return np.broadcast_to(fixed, len(places))
        sizes = np.empty(len(places), np.int64)
        for number, which, positions in _by_run(places):
            known = self._sizes[stream].get(number)
            if known is None:
                known = self._sizes[stream][number] = row_bytes(self._runs[stream].run(number).rows)
            sizes[which] = known[positions] if len(known) > 1 else known[0]
        return sizes

    def _gather(self, stream: int, places: Places, names: Sequence[str]) -> list[pa.Array]:
        if not names:
            return []
        parts, order = [], []
        for number, which, positions in _by_run(places):
            parts.append(self._runs[stream].run(number).rows.select(names).take(pa.array(positions)))
            order.append(which)
        if len(parts) == 1:
            return list(parts[0].columns)
        if not parts:
            schema = self._join.inputs[stream]
            return [pa.array([], schema.field(name).type) for name in names]
        back = np.empty(len(places), np.int64)
        back[np.concatenate(order)] = np.arange(len(places))
        return list(pa.concat_batches(parts).take(pa.array(back)).columns)


def _by_run(places: Places) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield (number of a run, which places are in it, their positions in it)."""
    numbers = places >> _POSITION_BITS
    positions = places & _POSITION
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    bounds = [*starts.tolist(), len(places)]
    for number, (start, end) in zip(present.tolist(), pairwise(bounds), strict=True):
        which = order[start:end]
        yield number, which, positions[which]


def times_at(runs: RunList, places: Places) -> npt.NDArray[np.int64]:
    """Return the times of the rows at these places."""
    return _values(runs, places, lambda run: run.times, np.int64)


def _values(runs: RunList, places: Places, of_run: Callable[[Run], npt.NDArray[T]], kind: type[T]) -> npt.NDArray[T]:
    values = np.empty(len(places), kind)
    for number, which, positions in _by_run(places):
        values[which] = of_run(runs.run(number))[positions]
    return values
