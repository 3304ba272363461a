"""A cluster of simulated servers: speeds, memory in rows, one queue each; deterministic, without Spark."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braided.sim.server_kernel import SLOTS, Costs, Floats, Ints, ServerState, run_copies


@dataclass(frozen=True)
class Copies:
    """Copies of rows in order of time: the server of each (below 0: the least loaded one of its join), and its kind."""

    servers: Ints
    times: Floats
    codes: Ints

    @classmethod
    def of(
        cls,
        servers: npt.NDArray[np.integer],
        times: Floats,
        join: int,
        side: int,
        slots: Ints,
        stored: npt.NDArray[np.bool_],
    ) -> Copies:
        """Describe copies of rows of one side of a join; rows meet only rows of the same slot."""
        codes = ((join * 2 + side) * SLOTS + slots % SLOTS) * 2 + stored
        return cls(servers.astype(np.int64), times, codes.astype(np.int64))

    @classmethod
    def merge(cls, parts: list[Copies]) -> Copies:
        """Put all copies in order of time; for equal times, copies of the earlier part come first."""
        times = np.concatenate([part.times for part in parts])
        order = np.argsort(times, kind="stable")
        servers, codes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("servers", "codes"))
        return cls(servers[order], times[order], codes[order])


class Cluster:
    """Servers that join streams. `run` lets time pass; the counts of `state` only grow.

    speeds : work per second of each server; memory : rows that each can store, in windows or waiting.

    >>> cluster = Cluster(np.array([100.0]), np.array([10]), 1, Costs(50.0, 10.0, 10.0, False))
    >>> both = [Copies.of(np.zeros(1), np.array([at]), 0, side, np.zeros(1, np.int64), np.array([True]))
    ...         for side, at in ((0, 1.0), (1, 2.0))]
    >>> cluster.run(Copies.merge(both), [np.array([0])], 5.0)
    >>> int(cluster.state.comparisons.sum()), cluster.join_use(5.0).tolist()
    (1, [0.1])
    """

    def __init__(self, speeds: Floats, memory: Ints, joins: int, costs: Costs) -> None:
        servers, ring = len(speeds), 1 << int(memory.max()).bit_length()
        self.costs = costs

        def zeros(*shape: int) -> Ints:
            return np.zeros(shape, np.int64)

        self.state = ServerState(
            np.asarray(speeds, np.float64), np.asarray(memory, np.int64), np.zeros((servers, ring)),
            zeros(servers, ring), zeros(servers), zeros(servers), zeros(servers), np.zeros(servers),
            zeros(servers, joins * 2 * SLOTS), *(zeros(servers, joins) for _ in range(4)),
        )  # fmt: skip

    def run(self, copies: Copies, members: list[npt.NDArray[np.integer]], until: float) -> None:
        """Receive copies and work until a point in time; `members` are the servers of each join."""
        sizes = np.array([len(servers) for servers in members])
        table = np.zeros((len(members), int(sizes.max())), np.int64)
        for join, servers in enumerate(members):
            table[join, : len(servers)] = servers
        run_copies(self.state, self.costs, copies.servers, copies.times, copies.codes, table, sizes, float(until))

    def work_of(self, rows: Floats, pairs: Floats) -> Floats:
        """Return the work of a number of rows and comparisons."""
        return np.asarray(self.costs.comparison * pairs + self.costs.row * rows)

    def join_use(self, seconds: float) -> Floats:
        """Return the share of each server's capacity that went into comparisons (SSP's effective CPU utilization)."""
        done = self.costs.comparison * self.state.comparisons.sum(axis=1)
        return np.asarray(done / (self.state.speed * seconds))
