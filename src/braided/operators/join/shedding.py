"""The exact join of a sample: routers drop rows at random before they send them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from braided.eviction.shed import draws
from braided.operators.bounded.around_join import AroundJoin
from braided.operators.join.window_join import WindowJoin
from braided.operators.multijoin.multijoin import MultiJoin
from braided.routing.content import row_hashes
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work


@dataclass(frozen=True)
class SheddingJoin(AroundJoin):
    """A window join of the rows that are left after a share of each stream was dropped.

    A hash of a row's content, and of its ordinal among identical rows of one piece of a task, decides whether it is
    dropped. Cost: one hash per row. State shrinks with the share, and results of two streams with its square.
    """

    exact: WindowJoin | MultiJoin
    shed: float

    @property
    def options(self) -> Json:
        return {**self.exact.options, "shed": self.shed}

    @property
    def by_hash(self) -> bool:
        """See `stores_by_hash`."""
        return self.exact.by_hash

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Drop the share, and rows with a null key; route each other row."""
        drawn = draws(row_hashes(rows), np.full(rows.num_rows, side, np.int8))
        left = rows.filter(pa.array(drawn >= self.shed))
        admitted = self.exact.admit(side, left, table)
        admitted.shed = rows.num_rows - left.num_rows
        return admitted

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        return self.exact.process(work, state, blocks)
