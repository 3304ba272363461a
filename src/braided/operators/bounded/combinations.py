"""The tactic of combinations: the join of many streams with a budget.

The buffer sees rows in order of time, so the row that arrives is the latest of every combination that it completes,
and whatever is stored is within the window of it. Its combinations are then all choices of one stored row of its key
from each other stream:

```
 the buffer's pairs of one event of stream 1     stream 0: x1 x2    stream 2: z1 z2 z3     -> 2 * 3 combinations
```

Every combination that is returned is one of the exact join, once. A combination is missing if one of its rows was not
stored or was evicted. If the routing changes, rows are stored under every assignment that is alive, copies compete with
all other rows for room, and a combination counts where it does in the exact join
(`braided.operators.multijoin.multijoin`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from braided.eviction.buffer import Events
from braided.eviction.recall.key_recall import KeyRecall
from braided.eviction.tuning.adaptive import buffer_from_bytes, make_buffer
from braided.operators.bounded.driver import Batch
from braided.operators.bounded.one_buffer import BoundedAround, OneBuffer
from braided.operators.bounded.ordered_rows import Entering
from braided.operators.join.emit import PIECE_ROWS
from braided.operators.multijoin.combination_emitter import MultiEmitter, OneRun, Places
from braided.operators.multijoin.multijoin import MultiJoin
from braided.operators.multijoin.stamps import with_stamps
from braided.runtime.rows import Index


@dataclass(frozen=True)
class BoundedMultiJoin(BoundedAround):
    """A join of many streams that keeps at most `capacity` rows per worker, of all streams together.

    Cost: one pass of the buffer's kernel over the rows in order, and a copy of each result. State: the rows kept and
    those that wait; beside a kept row a few bits and its credit, what a policy has learned, and a sample of keys.
    """

    exact: MultiJoin

    @property
    def adapts(self) -> bool:
        return self.exact.adaptive

    @property
    def retention(self) -> list[int]:
        return [self.exact.window.within] * len(self.inputs)

    def tactic(self, batch: Batch, buffer: bytes | None, recall: bytes | None) -> Combinations:
        return Combinations(self, batch, buffer, recall)


class Combinations(OneBuffer):
    """Combinations of a row that enters and one of each other stream in the buffer."""

    def __init__(self, join: BoundedMultiJoin, batch: Batch, buffer: bytes | None, recall: bytes | None) -> None:
        within, streams = join.exact.window.within, len(join.inputs)
        window = (-within, within)
        super().__init__(
            join,
            batch,
            make_buffer(
                join.capacity, join.policy, window=window, streams=streams, share=join.share, results="combinations"
            )
            if buffer is None
            else buffer_from_bytes(buffer, join.policy),
        )
        self._join = join
        self._recall = KeyRecall(join.capacity, within=within, streams=streams)
        if recall is not None:
            self._recall.restore(recall)

    def run(self) -> Generator[pa.RecordBatch, None, dict[str, int]]:
        exact = self._join.exact
        emitter = MultiEmitter(exact, self._runs(), self.tally, stamps=exact.adaptive)
        combining = _Combining(self.entering, self.events)
        results = np.zeros(len(self.all_events.keys), np.int64)
        # The pairs of an event may come in several steps; its combinations need them all.
        waiting: list[tuple[Index, Index]] = []
        for at, pair_event, pair_row in self.steps():
            waiting.append((pair_event.copy(), pair_row.copy()))
            of_event, rows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            done = int(np.searchsorted(of_event, at))
            choices = combining.choices(of_event[:done], rows[:done])
            results[self.entered[choices.events]] = choices.size.prod(axis=1)
            for places in combining.places(choices):
                yield from emitter.emit(places)
            waiting = [(of_event[done:], rows[done:])]
        self._recall.feed(self.all_events, results)
        yield from emitter.flush()
        return {"results": emitter.results}

    def _runs(self) -> list[OneRun]:
        """Return the rows of each stream in a form from which results can be gathered."""
        sides = self.entering.sides
        if not self._join.adapts:
            return [OneRun(rows.rows) for rows in sides]
        # Only the keys of the first stream are counted.
        none = np.zeros(0, np.uint64)
        return [
            OneRun(
                with_stamps(rows.rows, np.where(rows.probes != 0, -1 - rows.arrived, 1 + rows.arrived)),
                self._join.keys(side, rows) if side == 0 and self.tally is not None else none,
                rows.tags,
            )
            for side, rows in enumerate(sides)
        ]

    def move(self, positions: Index) -> None:
        """See `Tactic`. Recall is estimated by keys: no row has a position there."""

    def recall(self) -> list[list[float]]:
        counts = self.buffer.counts
        lost = self._join.shed or any(counts[name] for name in ("evicted", "refused", "too_large"))
        return self._recall.sums() if lost else self._recall.sums_of_all()

    def to_bytes(self) -> dict[str, bytes]:
        return {"buffer": self.buffer_bytes(), "recall": self._recall.to_bytes()}


class _Choices(NamedTuple):
    """Events that complete combinations; for each event and stream, the first of its pairs and their number."""

    events: Index
    first: Index
    size: Index
    rows: Index


class _Combining:
    """Forms combinations of the pairs of events, which are in order of (event, stream of the row)."""

    def __init__(self, entering: Entering, events: Events) -> None:
        self._entering, self._events = entering, events
        self._count = len(entering.sides)

    def choices(self, of_event: Index, rows: Index) -> _Choices:
        """Return which events complete combinations, from all pairs of some events."""
        count = self._count
        groups, starts, counts = np.unique(
            of_event * count + self._entering.stream_of(rows), return_index=True, return_counts=True
        )
        events, at = np.unique(groups // count, return_inverse=True)
        first, size = (np.zeros((len(events), count), np.int64) for _ in range(2))
        first[at, groups % count] = starts
        size[at, groups % count] = counts
        size[np.arange(len(events)), self._events.streams[events]] = 1
        whole = (size > 0).all(axis=1)
        return _Choices(events[whole], first[whole], size[whole], rows)

    def places(self, choices: _Choices) -> Iterator[list[Places]]:
        """Yield, in pieces, the places of the rows of all combinations."""
        events, first, size, rows = choices
        starts = self._entering.starts
        own = self._events.streams[events].astype(np.int64)
        own_at = self._events.rows[events] - starts[own]
        total = size.prod(axis=1)
        ends = np.cumsum(total)
        for start in range(0, int(ends[-1]) if len(ends) else 0, PIECE_ROWS):
            number = np.arange(start, min(start + PIECE_ROWS, int(ends[-1])))
            event = np.searchsorted(ends, number, side="right")
            rest = number - (ends[event] - total[event])
            places = []
            for stream in range(self._count):
                here = size[event, stream]
                mine = own[event] == stream
                pair = np.where(mine, 0, first[event, stream] + rest % here)
                places.append(np.where(mine, own_at[event], rows[pair] - starts[stream]))
                rest = rest // here
            yield places
