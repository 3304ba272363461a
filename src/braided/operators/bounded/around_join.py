"""What an operator that wraps a join takes from this join unchanged."""

from __future__ import annotations

import pyarrow as pa

from braided.operators.join.window_join import WindowJoin
from braided.operators.multijoin.multijoin import MultiJoin
from braided.time.clocks import Span, Window
from braided.time.lateness import Lateness


class AroundJoin:
    """A join with something before or after it: the same inputs, times and results."""

    exact: WindowJoin | MultiJoin

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return self.exact.inputs

    @property
    def times(self) -> tuple[str, ...]:
        return self.exact.times

    @property
    def window(self) -> Window | Span:
        """The time condition, with the least lateness."""
        return self.exact.window

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        return self.exact.lateness

    @property
    def idle(self) -> int | None:
        return self.exact.idle

    @property
    def output(self) -> pa.Schema:
        return self.exact.output

    def label(self, side: int, row: pa.RecordBatch) -> str:
        return self.exact.label(side, row)
