"""What the tactics of pairs and of combinations share: an exact join, and a buffer in which a row has one key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.policy import Policy
from braided.eviction.shed import Shed
from braided.eviction.tuning.adaptive import AdaptiveBuffer, main_of
from braided.operators.bounded import driver
from braided.operators.bounded.around_join import AroundJoin
from braided.operators.bounded.driver import Batch, Tactic, budget_options, drive
from braided.operators.join.window_join import WindowJoin
from braided.operators.multijoin.multijoin import MultiJoin
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work, stream_labels
from braided.runtime.rows import Index, Rows


@dataclass(frozen=True)
class BoundedAround(AroundJoin, ABC):
    """An exact join of which a worker keeps at most `capacity` rows, of all streams together."""

    exact: WindowJoin | MultiJoin
    capacity: int
    policy: Policy
    share: Literal["unified", "proportional"] = "unified"
    shed: Shed | None = None
    most_bytes: int | None = None

    @property
    @abstractmethod
    def adapts(self) -> bool:
        """Whether the routing may change, so that rows keep its marks."""

    @property
    @abstractmethod
    def retention(self) -> Sequence[int]:
        """How long a row of each stream can match later ones."""

    @abstractmethod
    def tactic(self, batch: Batch, buffer: bytes | None, recall: bytes | None) -> Tactic:
        """Return what joins the rows of a batch."""

    @property
    def labels(self) -> tuple[str, ...]:
        return stream_labels(len(self.inputs))

    @property
    def keyed(self) -> bool:
        return True

    @property
    def options(self) -> Json:
        exact = self.exact.options
        return {**exact, "operator": f"bounded {exact['operator']}", "share": self.share, **budget_options(self)}

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop rows with a null key; route each other row by its key."""
        return self.exact.admit(side, rows, table)

    def hashes(self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None) -> npt.NDArray[np.uint64]:
        return self.exact.hashes(side, rows, tags)

    def keys(self, side: int, rows: Rows) -> npt.NDArray[np.uint64]:
        """Return the key of each row in the buffer: rows of different grids have different keys."""
        return self.exact.hashes(side, rows.rows, rows.tags if rows.tags.any() else None)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        return drive(self, work, state, blocks)


class OneBuffer:
    """A buffer with the rows that were kept, and the rows that enter as it sees them."""

    def __init__(self, join: BoundedAround, batch: Batch, buffer: Buffer | AdaptiveBuffer) -> None:
        self.buffer = buffer
        self.entering, self.tally = batch.entering, batch.tally
        self._sizes, self._most_bytes = batch.sizes, join.most_bytes or 0
        self.entering.attach(main_of(buffer), join.keys, join.exact.times_of)
        entering = self.entering
        keys = entering.in_order([join.keys(side, rows) for side, rows in enumerate(entering.arriving)])
        self.all_events = Events(keys, entering.times, entering.streams, entering.contents, entering.ids)
        self.entered = np.flatnonzero(entering.ids >= 0)
        """Which of all events were not shed."""
        whole = len(self.entered) == len(keys)
        self.events = self.all_events if whole else self.all_events.pick(self.entered)

    def steps(self, probes: npt.NDArray[np.int8] | None = None) -> Iterator[tuple[int, Index, Index]]:
        """Yield how many events the buffer has processed, and event and row of each pair since, until the next step."""
        pair_event, pair_row = (np.empty(driver.PAIRS_AT_ONCE, np.int64) for _ in range(2))
        known = None
        at = 0
        while at < len(self.events.keys):
            if known is not main_of(self.buffer):  # a buffer that follows another policy is a new one
                known = main_of(self.buffer)
                known.set_facts(sizes=self._sizes, most_bytes=self._most_bytes, probes=probes)
            at, pairs, _ = self.buffer.step(self.events, at, pair_event=pair_event, pair_row=pair_row)
            yield at, pair_event[:pairs], pair_row[:pairs]

    def kept_ids(self) -> Index:
        return main_of(self.buffer).row_ids()

    def counts(self) -> dict[str, int]:
        counts = self.buffer.counts
        return {"stored_rows": self.buffer.rows, **{name: counts[name] for name in ("evicted", "refused")}}

    def buffer_bytes(self) -> bytes:
        """Return the buffer without its rows, which are in separate blocks."""
        main_of(self.buffer).rows_elsewhere = True
        return self.buffer.to_bytes()
