"""What an operator around a join takes from the join as it is."""

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
        """The Arrow schema of each input's rows."""
        return self.exact.inputs

    @property
    def times(self) -> tuple[str, ...]:
        """The event-time column of each input."""
        return self.exact.times

    @property
    def window(self) -> Window | Span:
        """The time condition, with the least lateness."""
        return self.exact.window

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """Each input's lateness, or how it is learned."""
        return self.exact.lateness

    @property
    def idle(self) -> int | None:
        """After how much silence a stream holds the others back no longer."""
        return self.exact.idle

    @property
    def output(self) -> pa.Schema:
        """The schema of the results."""
        return self.exact.output

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key, its columns separated by commas."""
        return self.exact.label(side, row)
