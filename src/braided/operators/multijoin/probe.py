"""Finds the new combinations of a batch: partial ones grow by one stream at a time, in pieces of bounded size.

```
 new rows of stream 0 -> with rows of stream 1 -> with rows of stream 2 -> results
   (hash, time range)      the range narrows        and narrows again
```
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.emit import PIECE_ROWS
from braided.operators.join.pair_kernels import Index, Times, UInt64s, expand_pairs
from braided.operators.join.runs import Run
from braided.operators.join.stored import JoinState
from braided.operators.multijoin.combination_emitter import MultiEmitter, Places, place_of, times_at
from braided.operators.multijoin.span_kernels import match_spans, narrowed, time_ranges

# The number of decoded runs of one stream that stay in memory while a batch is joined; others are decoded again.
_HELD_BYTES = 128 << 20


class StreamRuns:
    """The runs of one stream by number, those of earlier batches first, then the new ones."""

    def __init__(self, join_state: JoinState, side: int, new: Sequence[Run]) -> None:
        self._kept = join_state
        self._side = side
        self._infos = join_state.infos(side)
        self._new = new
        self._held: OrderedDict[int, Run] = OrderedDict()
        self._bytes = 0
        self.rows = sum(info.rows for info in self._infos) + sum(len(run.times) for run in new)

    def run(self, number: int) -> Run:
        if number >= len(self._infos):
            return self._new[number - len(self._infos)]
        run = self._held.pop(number, None)
        if run is None:
            run = self._kept.load(self._side, self._infos[number])
            self._bytes += run.rows.nbytes
        self._held[number] = run
        while self._bytes > _HELD_BYTES and len(self._held) > 1:
            self._bytes -= self._held.popitem(last=False)[1].rows.nbytes
        return run

    def number_of_new(self, at: int) -> int:
        return len(self._infos) + at

    def meeting(self, partial: Partial, *, new: bool) -> Iterator[tuple[int, Run]]:
        """Yield the runs, of earlier batches or (`new`) all, that may have a row for one of these combinations."""
        times = int(partial.first.min()), int(partial.last.max())
        hashes = int(partial.hashes[0]), int(partial.hashes[-1])
        for number, info in enumerate(self._infos):
            if info.overlaps(times, hashes):
                yield number, self.run(number)
        if new:
            for at, run in enumerate(self._new):
                if len(run.times):
                    yield self.number_of_new(at), run


@dataclass(frozen=True)
class Partial:
    """Combinations of rows of some streams, sorted by hash: the times that a further row may have, and their places."""

    hashes: UInt64s
    first: Times
    last: Times
    places: dict[int, Places]

    def take(self, rows: npt.NDArray[np.int64]) -> Partial:
        """Return the combinations at ascending positions."""
        places = {stream: at[rows] for stream, at in self.places.items()}
        return Partial(self.hashes[rows], self.first[rows], self.last[rows], places)


class Combiner:
    """Joins the new rows of a batch with each other and with stored rows.

    A combination is counted by the first stream, in order, that has a new row in it: streams before that one have
    stored rows only, streams after it stored and new ones.
    """

    def __init__(self, within: int, streams: Sequence[StreamRuns], emitter: MultiEmitter) -> None:
        self._within = within
        self._streams = streams
        self._emitter = emitter

    def combine(self, starting: int, new: Sequence[Run]) -> Iterator[pa.RecordBatch]:
        """Yield full pieces of the combinations whose first new row is of the stream `starting`."""
        others = [stream for stream in range(len(self._streams)) if stream != starting]
        # The stream with the fewest rows first: the others are searched only for the rows that it leaves.
        others.sort(key=lambda stream: (self._streams[stream].rows, stream))
        for at, run in enumerate(new):
            if not len(run.times):
                continue
            number = self._streams[starting].number_of_new(at)
            places = {starting: place_of(number, np.arange(len(run.times)))}
            partial = Partial(run.hashes, *time_ranges(run.times, self._within), places)
            for other in others[1:]:
                partial = self._with_a_match(partial, other, starting)
            yield from self._grow(partial, others, starting)

    def _with_a_match(self, partial: Partial, stream: int, starting: int) -> Partial:
        """Leave out rows without a match in some stream, before other streams multiply them."""
        matched = np.zeros(len(partial.hashes), np.bool_)
        for _, rows, _, _ in self._matches(partial, stream, starting):
            matched[rows] = True
        return partial if matched.all() else partial.take(np.flatnonzero(matched))

    def _grow(self, partial: Partial, rest: Sequence[int], starting: int) -> Iterator[pa.RecordBatch]:
        if not rest:
            yield from self._emitter.emit([partial.places[stream] for stream in range(len(self._streams))])
            return
        for longer in self._extended(partial, rest[0], starting):
            yield from self._grow(longer, rest[1:], starting)

    def _matches(self, partial: Partial, stream: int, starting: int) -> Iterator[tuple[int, Index, Index, Index]]:
        """Yield (number of a run, combinations, their first match in it, their number of matches)."""
        if not len(partial.hashes):
            return
        for number, run in self._streams[stream].meeting(partial, new=stream > starting):
            # Only combinations within the run's span of hashes can match.
            low = int(np.searchsorted(partial.hashes, run.hashes[0]))
            high = int(np.searchsorted(partial.hashes, run.hashes[-1], side="right"))
            rows, starts, counts = (np.empty(high - low, np.int64) for _ in range(3))
            count = match_spans(
                partial.hashes[low:high],
                partial.first[low:high],
                partial.last[low:high],
                run.hashes,
                run.times,
                run.directory,
                run.filter,
                run.shift,
                rows,
                starts,
                counts,
            )
            if count:
                yield number, rows[:count] + low, starts[:count], counts[:count]

    def _extended(self, partial: Partial, stream: int, starting: int) -> Iterator[Partial]:
        """Yield the combinations with a row of one more stream, in pieces, sorted by hash as before."""
        ranges = [
            (rows, place_of(number, starts), counts)
            for number, rows, starts, counts in self._matches(partial, stream, starting)
        ]
        if not ranges:
            return
        rows, starts, counts = (np.concatenate(columns) for columns in zip(*ranges, strict=True))
        order = np.argsort(rows, kind="stable")
        rows, starts, ends = rows[order], starts[order], np.cumsum(counts[order])
        total = int(ends[-1])
        for at in range(0, total, PIECE_ROWS):
            size = min(PIECE_ROWS, total - at)
            mine, theirs = np.empty(size, np.int64), np.empty(size, np.int64)
            expand_pairs(rows, starts, ends, at, mine, theirs)
            times = times_at(self._streams[stream], theirs)
            first, last = narrowed(partial.first, partial.last, mine, times, self._within)
            places = {known: where[mine] for known, where in partial.places.items()}
            yield Partial(partial.hashes[mine], first, last, {**places, stream: theirs})
