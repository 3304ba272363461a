"""The tactic of pairs: the window join of two streams with a budget.

Every pair that is returned is a pair of the exact join, once. A pair is missing if one of its rows was not stored, or
evicted. Where the routing changes, copies that only probe an older assignment enter like all others, and meet rows that
are stored under it and had arrived in earlier batches: exactly those that they would meet in the exact join.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.eviction.recall.pair_recall import Recall
from braided.eviction.tuning.adaptive import buffer_from_bytes, make_buffer
from braided.operators.bounded.driver import Batch
from braided.operators.bounded.one_buffer import BoundedAround, OneBuffer
from braided.operators.join.emit import Emitter
from braided.operators.join.runs import Run
from braided.operators.join.window_join import WindowJoin
from braided.runtime.rows import Index, Rows

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class BoundedJoin(BoundedAround):
    """An inner window join that keeps at most `capacity` rows per worker, of both sides together.

    Cost: one pass of the buffer's kernel over the rows in order, and a copy of each result. State: the rows kept and
    those that wait; beside a kept row two bits and its credit, and what a policy has learned.
    """

    exact: WindowJoin
    adapts: bool = False

    @property
    def retention(self) -> tuple[int, int]:
        return self.exact.window.hi, -self.exact.window.lo

    def tactic(self, batch: Batch, buffer: bytes | None, recall: bytes | None) -> Pairs:
        return Pairs(self, batch, buffer, recall)


class Pairs(OneBuffer):
    """Pairs of a row that enters and one in the buffer."""

    def __init__(self, join: BoundedJoin, batch: Batch, buffer: bytes | None, recall: bytes | None) -> None:
        window = (join.exact.window.lo, join.exact.window.hi)
        super().__init__(
            join,
            batch,
            make_buffer(join.capacity, join.policy, window=window, share=join.share)
            if buffer is None
            else buffer_from_bytes(buffer, join.policy),
        )
        self._exact = join.exact
        self._recall = Recall(join.capacity, window=window) if recall is None else Recall.from_bytes(recall)

    def run(self) -> Generator[pa.RecordBatch, None, dict[str, int]]:
        entering, events, all_events, recall = self.entering, self.events, self.all_events, self._recall
        ends = np.append(self.entered, len(all_events.keys))
        probes, arrived = entering.by_id("probes"), entering.by_id("arrived")
        probing = probes if probes.any() else None
        runs = [_as_run(rows) for rows in entering.sides]
        right = int(entering.starts[1])
        recall.place(len(probes), starts=(0, right), probes=probing)
        emitter = Emitter(self._exact)
        fed = 0
        for at, of, theirs in self.steps(probing):
            recall.feed(all_events, fed, ends[at], ends[of], theirs)
            fed = ends[at]
            if probing is not None:
                met = met_before(events.rows[of], theirs, probes, arrived)
                of, theirs = of[met], theirs[met]  # noqa: PLW2901
            mine = events.rows[of]
            if self.tally is not None:
                which, counts = np.unique(of, return_counts=True)
                self.tally.results(events.keys[which], entering.by_id("tags")[events.rows[which]], counts)
            yield from emitter.emit(runs[0], runs[1], np.minimum(mine, theirs), np.maximum(mine, theirs) - right)
        recall.feed(all_events, fed, len(all_events.keys), _NONE, _NONE)
        yield from emitter.flush()
        return {"results": emitter.results}

    def move(self, positions: Index) -> None:
        self._recall.moved(positions)

    def recall(self) -> list[list[float]]:
        return self._recall.sums()

    def to_bytes(self) -> dict[str, bytes]:
        return {"buffer": self.buffer_bytes(), "recall": self._recall.to_bytes()}


def met_before(
    a: Index, b: Index, probes: npt.NDArray[np.int8], arrived: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which pairs are those of the exact join: rows that only probe meet rows of earlier batches."""
    wrong = (probes[a] != 0) & (arrived[b] >= arrived[a]) | (probes[b] != 0) & (arrived[a] >= arrived[b])
    met: npt.NDArray[np.bool_] = ~wrong
    return met


def _as_run(rows: Rows) -> Run:
    """Return rows in a form from which results can be gathered; it is never searched."""
    none = np.zeros(0, np.uint64)
    tags = rows.tags if rows.tags.any() else None
    return Run(rows.rows, none, none.view(np.int64), none.view(np.int32), none.view(np.uint8), tags)
