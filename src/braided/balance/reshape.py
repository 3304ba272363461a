"""When the single grid of a join should change its shape: SSP's switch of the master, or a theta join's grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from braided.balance.observation import Observation
from braided.balance.shapes import Rates, cheapest_grid, ssp_grid, ssp_time
from braided.routing.grid import Grid
from braided.routing.table import RoutingTable
from braided.time.clocks import GroupSpan, Span, Window

# Another shape must be a fifth cheaper, in this many batches in a row, because rows are then copied to both shapes.
GAIN = 0.8
SAMPLES = 2
_CLOCKS = 16
_MOST_BATCHES = 1e4


class Windows:
    """For how many batches the rows of each side are stored, by the speed of the clocks."""

    def __init__(self, window: Window | Span | GroupSpan) -> None:
        self.window = window
        self._clocks: list[tuple[int, int]] = []

    def add(self, seen: Observation) -> None:
        clocks = [clock for clock in seen.clocks if clock is not None]
        if clocks:
            self._clocks = [*self._clocks, (seen.batch, max(clocks))][-_CLOCKS:]

    def batches(self) -> tuple[float, float]:
        """Return the number for the left and the right side; 1 while the speed is unknown."""
        if len(self._clocks) < 2 or self._clocks[-1][0] <= self._clocks[0][0]:
            return 1.0, 1.0
        pace = (self._clocks[-1][1] - self._clocks[0][1]) / (self._clocks[-1][0] - self._clocks[0][0])
        left, right = (min(_MOST_BATCHES, max(0, self.window.retention(side)) / max(1.0, pace)) for side in (0, 1))
        return left, right


class ReshapeRule:
    """Samples both rates over a period, and returns another grid when it was a fifth cheaper for this period."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._rates: list[Rates] = []
        self._better = 0

    def judge(
        self, seen: Observation, windows: tuple[float, float], table: RoutingTable, in_use: Sequence[int]
    ) -> tuple[Grid, str] | None:
        """Take one batch; return the new grid and the reason, or None."""
        now = Rates.of(seen.rows, seen.row_bytes, windows, float(seen.results))
        self._rates = [*self._rates, now][-SAMPLES:]
        names = ("left", "right", "left_cost", "right_cost", "results")
        rates = Rates(*(float(np.mean([getattr(rate, name) for rate in self._rates])) for name in names))
        current = table.grids[int(table.live[0, 0])]
        if table.scheme == "ssp":
            best = ssp_grid(in_use, rates, self._slots)
            gain = ssp_time(best, rates, self._slots) / max(1.0, ssp_time(current, rates, self._slots))
        else:
            best = cheapest_grid(in_use, rates)
            gain = rates.cost(best) / max(1.0, rates.cost(current))
        # A request to scale may have to wait for room. SSP may leave workers out, but a grid never does.
        unused = set(in_use) - set(current.workers) if table.scheme == "grid" else set()
        forced = set(current.workers) - set(in_use) or unused or tuple(in_use) != table.in_use
        self._better = self._better + 1 if best.columns != current.columns and gain < GAIN else 0
        if best.columns == current.columns:
            return None
        if not forced and (self._better < SAMPLES or seen.version < table.version):
            return None
        return best, f"{best.shape} costs {gain:.2f} times as much as {current.shape}: {rates.left:.0f} left and " + (
            f"{rates.right:.0f} right rows per batch, {rates.left_cost:.0f} and {rates.right_cost:.0f} bytes per copy"
        )

    def changed(self) -> None:
        self._better = 0
