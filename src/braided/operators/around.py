"""What an operator around another one takes from it unchanged."""

from __future__ import annotations

import pyarrow as pa

from braided.routing.table import RoutingTable
from braided.runtime.contract import Admitted, Operator
from braided.time.lateness import Lateness


class Around:
    """An operator with something before or after it: the same inputs and times, and rows go to the same workers."""

    inner: Operator

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return self.inner.inputs

    @property
    def times(self) -> tuple[str, ...]:
        return self.inner.times

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        return self.inner.lateness

    @property
    def idle(self) -> int | None:
        return self.inner.idle

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        return self.inner.admit(side, rows, table)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        return self.inner.label(side, row)
