"""One simulated join: the routing table of the package routes its rows, and the controller changes that table.

The simulator has no policies of its own. A sampling period here corresponds to a batch of the real runtime.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.balance.controller import Controller, Decision
from braided.balance.observation import Observation
from braided.routing.routes import route
from braided.routing.start import first_table
from braided.routing.table import BUCKETS
from braided.sim.cluster import Cluster, Copies
from braided.sim.server_kernel import SLOTS, Floats
from braided.time.clocks import Window

_MICROS = 1_000_000
_ROW_BYTES = 100.0


class SimulatedJoin:
    """A join over some servers of a cluster, under a scheme of the routing (`ssp` or `grid`).

    servers : numbers of its workers in the cluster. adaptive : whether a controller watches. results : results per
    comparison, which the controller counts as work. measure : what the controller uses as load.
    """

    def __init__(
        self, number: int, servers: npt.NDArray[np.integer], scheme: str, window: float, seed: int, *,
        adaptive: bool = True, results: float = 0.01, measure: str = "cpu",
    ) -> None:  # fmt: skip
        self.number, self.servers, self.window = number, servers, window
        span = int(window * _MICROS)
        table = first_table(scheme, len(servers), keyed=True, version=1)
        self._controller = Controller(table, Window(-span, span, (0, 0)), slots=len(servers), measure=measure)
        self._adaptive = adaptive
        self._results = results
        self._random = np.random.default_rng([seed, number])
        self._batch = 0
        self._rows = (0, 0)
        # Copies by side, server and slot of the grid: all of this period, and the stored ones of earlier periods.
        self._received = np.zeros((2, len(servers), SLOTS))
        self._stored: list[Floats] = []
        self.copies = 0
        self.decisions: list[Decision] = []

    @property
    def shape(self) -> str:
        """The shape of the newest grid."""
        table = self._controller.table
        return table.grids[int(table.live[0, 0])].shape

    def send(self, times: tuple[Floats, Floats]) -> list[Copies]:
        """Route the rows of a period; keys and contents are random words."""
        self._rows = len(times[0]), len(times[1])
        self._received = np.zeros_like(self._received)
        self._stored.insert(0, np.zeros_like(self._received))
        parts = []
        for side, moments in enumerate(times):
            words = self._random.integers(0, 1 << 63, (2, len(moments)), np.uint64) * np.uint64(2)
            if not len(moments):
                continue
            routes = route(self._controller.table, side, words[0], lambda rows, c=words[1]: c[rows])  # type: ignore[misc]
            assert routes.rows is not None
            assert routes.tags is not None
            assert routes.stored is not None
            self.copies += len(routes.rows)
            np.add.at(self._received[side], (routes.workers, routes.tags % SLOTS), 1.0)
            np.add.at(self._stored[0][side], (routes.workers, routes.tags % SLOTS), routes.stored)
            servers = self.servers[routes.workers]
            tags = routes.tags.astype(np.int64)
            parts.append(Copies.of(servers, moments[routes.rows], self.number, side, tags, routes.stored))
        return parts

    def observe(self, cluster: Cluster, now: float, seconds: float) -> None:
        """Report a period to the controller, as routers and workers report a batch.

        A batch of the real runtime ends when all its rows are joined, so its reports have their whole work. Here
        servers run out of time and memory, and do less. So the report is computed from the rows that they received.
        """
        if self._adaptive:
            left, right = (part.sum(axis=1) for part in self._received)
            pairs = self._pairs(seconds)
            cpu = 1000.0 * cluster.work_of(left + right, pairs) / cluster.state.speed[self.servers]
            clock = int(now * _MICROS)
            results, rows = self._results * pairs, left + right
            seen = Observation(
                self._batch, self._controller.table.version, 1000.0 * seconds, (clock, clock), (0, 0), cpu,
                rows + results, self._rows, (_ROW_BYTES, _ROW_BYTES), int(results.sum()), np.zeros(BUCKETS), {}, {},
                copies=int(rows.sum()),
            )  # fmt: skip
            self.decisions += self._controller.step(seen)
        self._batch += 1

    def _pairs(self, seconds: float) -> Floats:
        """Return the pairs that each server would find for the rows of this period with enough time and memory."""
        periods = self.window / seconds
        self._stored = self._stored[: int(np.ceil(periods)) + 1]
        left, right = self._received
        same = 1.0 - max(0.0, 1.0 - periods) ** 2
        pairs = same * self._stored[0][0] * self._stored[0][1]
        for age, (old_left, old_right) in enumerate(self._stored[1:], 1):
            pairs = pairs + _share_within(periods - age) * (left * old_right + right * old_left)
        return np.asarray(pairs.sum(axis=1))


def _share_within(room: float) -> float:
    """Return the share of pairs of two periods that are within the window, which ends `room` periods after the first.

    >>> [_share_within(room) for room in (-1.0, 0.0, 1.0)]
    [0.0, 0.5, 1.0]
    """
    if room >= 0:
        return 1.0 - max(0.0, 1.0 - room) ** 2 / 2
    return max(0.0, 1.0 + room) ** 2 / 2
