"""SSP's experiments (Gu and Yu, section 4): joins over unequal servers, with several ways to place their rows.

| way | the rows of a join go |
|---|---|
| `llf` | to one server, the one with the most spare speed: the paper's rival |
| `paper` | each row of one stream to the least loaded server, the other to all; the *slower* is split, as in its text |
| `static` | by `partition="ssp"`, with the left stream always split |
| `ssp` | by `partition="ssp"` with its controller: the stream that costs more is split, as in the paper's formula |
| `grid` | by `partition="grid"` with its controller: the cheapest grid |

`static`, `ssp` and `grid` are the package's own tables and controllers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.sim.cluster import Cluster, Copies
from braided.sim.join import SimulatedJoin
from braided.sim.server_kernel import Costs, Floats, Ints
from braided.sim.streams import arrivals

PERIOD = 10.0
"""The seconds of a sampling period, after which controllers act."""


@dataclass(frozen=True)
class Setup:
    """The parameters of section 4.1; `turn`: after how many seconds all rates change, None for never.

    weights : whether controllers know the speeds of servers, and weigh them.
    """

    joins: int = 10
    servers: int = 100
    rates: tuple[float, float] = (5.0, 20.0)
    speeds: tuple[float, float] = (1000.0, 5000.0)
    memory: tuple[int, int] = (1000, 2000)
    comparison: float = 50.0
    row: float = 10.0
    window: float = 10.0
    seconds: float = 5000.0
    turn: float | None = None
    drop_new: bool = False
    weights: bool = True
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    """A run: comparisons in each period, use of each server, copies, rows dropped without processing, decisions."""

    comparisons: Ints
    use: Floats
    copies: int
    dropped: int
    decisions: list[dict[str, Any]]

    @property
    def throughput(self) -> int:
        """The join operations of the whole run."""
        return int(self.comparisons.sum())


def simulate(setup: Setup, way: str, per_join: int) -> Outcome:
    """Run all joins, each on `per_join` servers chosen at random, the same ones for every way."""
    random = np.random.default_rng([setup.seed, 0])
    speeds = random.uniform(*setup.speeds, setup.servers)
    memory = random.integers(setup.memory[0], setup.memory[1] + 1, setup.servers)
    every = setup.turn or setup.seconds
    rates = random.uniform(*setup.rates, (setup.joins, 2, round(setup.seconds / every)))
    streams = [
        [arrivals(rates[join, side], every, (setup.seed, 1, join, side)) for side in (0, 1)]
        for join in range(setup.joins)
    ]
    orders = [random.permutation(setup.servers) for _ in range(setup.joins)]
    members: list[npt.NDArray[np.integer]] = [order[:per_join] for order in orders]
    if way == "llf":
        members = _least_loaded(speeds, rates, setup)
    costs = Costs(setup.comparison, setup.row, setup.window, setup.drop_new)
    cluster = Cluster(speeds, memory, setup.joins, costs)
    joins = [
        SimulatedJoin(
            join, members[join], "grid" if way == "grid" else "ssp", setup.window, setup.seed,
            adaptive=way in ("ssp", "grid"), measure="cpu" if setup.weights else "work",
            results=0.01 if setup.weights else 0.0,
        )
        for join in range(setup.joins)
    ]  # fmt: skip
    texts = [_TextRule(join, members[join]) for join in range(setup.joins)]
    done, totals = 0, []
    for start in np.arange(0.0, setup.seconds, PERIOD):
        parts = []
        for join, sides in zip(joins, streams, strict=True):
            now = [side[slice(*np.searchsorted(side, (start, start + PERIOD)))] for side in sides]
            sender = texts[join.number] if way == "paper" else join
            parts += sender.send((now[0], now[1]))
        cluster.run(Copies.merge(parts), members, start + PERIOD)
        for join in joins:
            join.observe(cluster, start + PERIOD, PERIOD)
        total = int(cluster.state.comparisons.sum())
        totals.append(total - done)
        done = total
    state = cluster.state
    decisions = [{"join": join.number, **one.to_json()} for join in joins for one in join.decisions]
    return Outcome(
        np.array(totals),
        cluster.join_use(setup.seconds),
        int(state.received.sum()),
        int(state.dropped.sum()),
        decisions,
    )


def _least_loaded(speeds: Floats, rates: Floats, setup: Setup) -> list[npt.NDArray[np.integer]]:
    """Give each join, one after the other, the server with the most speed left."""
    spare = speeds.copy()
    members = []
    for join in rates:
        best = int(spare.argmax())
        members.append(np.array([best]))
        spare[best] -= 2 * setup.window * setup.comparison * join[0, 0] * join[1, 0]
    return members


class _TextRule:
    """The paper's text: split the stream with fewer rows in a period, each row to the least loaded server.

    After a switch, rows still meet those stored under the old master for one window: they probe there, but are not
    stored.
    """

    def __init__(self, number: int, servers: npt.NDArray[np.integer]) -> None:
        self._number, self._servers = number, servers
        self._master: int | None = None

    def send(self, sides: tuple[Floats, Floats]) -> list[Copies]:
        master = int(len(sides[1]) < len(sides[0]))
        parts = self._spread(sides, master, stored=True)
        if self._master not in (None, master):
            parts += self._spread(sides, 1 - master, stored=False)  # a window is a period long
        self._master = master
        return parts

    def _spread(self, sides: tuple[Floats, Floats], master: int, *, stored: bool) -> list[Copies]:
        parts = []
        for side, times in enumerate(sides):
            to = np.array([-1]) if side == master else self._servers
            flags = np.full(len(times) * len(to), stored)
            slots = np.full(len(flags), master)
            parts.append(
                Copies.of(np.tile(to, len(times)), np.repeat(times, len(to)), self._number, side, slots, flags)
            )
        return parts
