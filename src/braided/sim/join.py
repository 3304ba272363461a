"""One simulated join: the routing table of the package routes its rows, and the controller changes that table.

The simulator writes none of these policies. What a batch of the real runtime is, is here a sampling period.
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
from braided.sim.server_kernel import Floats
from braided.time.clocks import Window

_MICROS = 1_000_000
_ROW_BYTES = 100.0


class SimulatedJoin:
    """A join over some servers of a cluster, under a scheme of the routing (`ssp` or `grid`).

    servers : numbers of its workers in the cluster. adaptive : whether a controller watches. results : results per
    comparison, which the controller counts as work. measure : what the controller takes for a load. In an overloaded
    cluster that drops rows, CPU time says little: weights by it cost 5% of the throughput of Figure 7.
    """

    def __init__(
        self, number: int, servers: npt.NDArray[np.integer], scheme: str, window: float, seed: int, *,
        adaptive: bool = True, results: float = 0.01, measure: str = "work",
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
        self._before = [np.zeros(len(servers)) for _ in range(4)]
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
            servers = self.servers[routes.workers]
            tags = routes.tags.astype(np.int64)
            parts.append(Copies.of(servers, moments[routes.rows], self.number, side, tags, routes.stored))
        return parts

    def observe(self, cluster: Cluster, now: float, seconds: float) -> None:
        """Report a period to the controller, as routers and workers report a batch."""
        state = cluster.state
        totals = [
            part[self.servers, self.number].astype(np.float64)
            for part in (cluster.work(), state.received, state.comparisons, state.processed)
        ]
        work, rows, comparisons, processed = (total - old for total, old in zip(totals, self._before, strict=True))
        self._before = totals
        if self._adaptive:
            # A batch of the real runtime ends when all its rows are processed, so its CPU time is what they need, not
            # what an overloaded server finds time for. A slow server needs longer for the same work.
            cpu = 1000.0 * work / state.speed[self.servers] * rows / np.maximum(1.0, processed)
            clock = int(now * _MICROS)
            results = self._results * comparisons
            seen = Observation(
                self._batch, self._controller.table.version, 1000.0 * seconds, (clock, clock), (0, 0), cpu,
                rows + results, self._rows, (_ROW_BYTES, _ROW_BYTES), int(results.sum()), np.zeros(BUCKETS), {}, {},
                copies=int(rows.sum()),
            )  # fmt: skip
            self.decisions += self._controller.step(seen)
        self._batch += 1
