"""Cuckoo search with Levy flights, combined with a particle swarm (EBS, section 4.3, after Ghodrati and Lotfi).

Each cuckoo has an allocation. It puts new allocations (eggs) into random nests, where the fitter one stays. A cuckoo
whose last moves gained nothing makes a Levy flight: it changes the hosts of a number of components from a heavy-tailed
distribution, mostly few and sometimes most. The others move as a swarm: by a short step towards the best allocation
that they and all have found. The distance is the number of components with different hosts. If nothing is gained for a
while, a hill climb starts from the best and from allocations around it (`descent.py`), which the paper does not have.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from braided.errors import PeerError
from braided.fleet.placement.descent import Descent
from braided.fleet.placement.greedy import greedy
from braided.fleet.placement.problem import Allocation, Floats, Problem

SECONDS = 0.5
"""The paper's time for one search."""
_PATIENCE = 3  # moves without gain after which a cuckoo makes a flight
_STALE = 10  # rounds without gain after which hill climbs start
_FLIGHTS = 4  # flights from the best before this
_CUCKOOS = 24  # new allocations per round
_NESTS = 16  # allocations that are kept
_ABANDON = 0.25  # the part of the nests, the worst ones, that is emptied per round
_TAIL = 1.5  # exponent of the Levy flight, 1 (long) to 3 (short)
# The probability that a component takes, in a swarm's move, its host in the cuckoo's own best allocation, or in the
# best of all; and how many components drift to the host of a partner.
_OWN, _BEST, _DRIFT = 0.3, 0.3, 1.5


@dataclass(frozen=True)
class SearchResult:
    """The best allocation of a search."""

    allocation: Allocation
    fitness: float
    evaluations: int


def search(
    problem: Problem,
    start: Allocation | None = None,
    *,
    seed: int = 0,
    seconds: float = SECONDS,
    evaluations: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Return the best allocation found within a time, or within a number of evaluations instead.

    start : the current allocation; a search never returns a worse one, unless the current one overloads a host.
    """
    swarm = _Swarm(problem, start, np.random.default_rng(seed))
    ends = clock() + seconds
    while swarm.evaluations < evaluations if evaluations is not None else clock() < ends:
        swarm.round()
        if swarm.is_settled:
            break
    if not np.isfinite(swarm.fittest):
        raise PeerError("every allocation found overloads a host; add hosts, or remove components")
    return SearchResult(swarm.best, swarm.fittest, swarm.evaluations)


class _Swarm:
    def __init__(self, problem: Problem, start: Allocation | None, random: np.random.Generator) -> None:
        self.problem, self.random = problem, random
        self.evaluations = 0
        self.descent = Descent(problem)
        begin = self._scatter(_CUCKOOS)
        if start is not None:
            problem.check(start)
            begin[0] = start
        with contextlib.suppress(PeerError):  # the search may succeed where greedy fails
            begin[-1] = greedy(problem)
        self.at, self.own = begin, begin.copy()
        self.own_fitness = self._fitness(begin)
        self.luckless = np.zeros(_CUCKOOS, dtype=np.int64)
        self.nests = self._scatter(_NESTS)
        self.nest_fitness = self._fitness(self.nests)
        top = int(self.own_fitness.argmax())
        self.best, self.fittest = self.own[top].copy(), float(self.own_fitness[top])
        self.stale = 0
        self.is_settled = problem.hosts == 1 or not len(problem.edges[0])
        # Levy: the chance of changing d components falls as a power of d.
        chance = np.arange(1, problem.components + 1, dtype=np.float64) ** -_TAIL
        self.levy = np.cumsum(chance / chance.sum())
        # The hosts of a component's partners, for drifting: it is mostly good to be with one of them.
        weight = problem.traffic + problem.traffic.T
        np.fill_diagonal(weight, 0.0)
        total = weight.sum(axis=1, keepdims=True)
        even = np.full_like(weight, 1.0 / problem.components)
        self.partners = np.cumsum(np.where(total > 0, weight / np.maximum(total, 1e-300), even), axis=1)

    def _scatter(self, count: int) -> Allocation:
        scores = np.where(self.problem.hosts_of, self.random.random((count, *self.problem.hosts_of.shape)), -1.0)
        return np.asarray(scores.argmax(axis=2), dtype=np.int64)

    def _fitness(self, allocations: Allocation) -> Floats:
        self.evaluations += len(allocations)
        return self.problem.fitness(allocations)

    def round(self) -> None:
        """Let every cuckoo move once and put its egg into a nest; then empty the worst nests."""
        flies = self.luckless >= _PATIENCE
        moved = np.where(flies[:, None], self._fly(self.at), self._swarm())
        fitness = self._fitness(moved)
        self.at = np.where(np.isfinite(fitness)[:, None], moved, self.own)
        self._lay(moved, fitness)
        better = fitness > self.own_fitness
        self.luckless = np.where(better | flies, 0, self.luckless + 1)
        self.own[better], self.own_fitness[better] = moved[better], fitness[better]
        self._abandon()
        self.stale += 1
        self._note(self.own, self.own_fitness)
        if self.stale >= _STALE:
            self._look_around()
            self.stale = 0

    def _note(self, allocations: Allocation, fitness: Floats) -> None:
        top = int(fitness.argmax())
        if fitness[top] > self.fittest:
            self.best, self.fittest, self.stale = allocations[top].copy(), float(fitness[top]), 0

    def _fly(self, allocations: Allocation) -> Allocation:
        """Change a number of components, the length of a Levy flight, to any hosts that can run them."""
        count, n = allocations.shape
        length = 1 + np.asarray(np.searchsorted(self.levy, self.random.random(count), side="right"))
        rank = self.random.random((count, n)).argsort(axis=1).argsort(axis=1)
        return np.where(rank < length[:, None], self._scatter(count), allocations)

    def _swarm(self) -> Allocation:
        """Take hosts from the cuckoo's own best, from a nest or the best of all; then drift to partners or swap."""
        count, n = self.at.shape
        draw = self.random.random((count, n))
        moved = np.where(draw < _OWN, self.own, self.at)
        leads, nests = self.random.random((count, 1)) < 0.5, self.random.integers(_NESTS, size=count)
        leaders = np.where(leads, self.best[None, :], self.nests[nests])
        moved = np.where((draw >= _OWN) & (draw < _OWN + _BEST), leaders, moved)
        drifts = self.random.random((count, n)) < _DRIFT / n
        picks = (self.partners[None, :, :] < self.random.random((count, n))[:, :, None]).sum(axis=2)
        beside = np.take_along_axis(moved, np.minimum(picks, n - 1), axis=1)
        moved = np.where(drifts, beside, moved)
        swaps = np.flatnonzero(self.random.random(count) < 0.5)
        one, other = self.random.integers(n, size=(2, len(swaps)))
        moved[swaps, one], moved[swaps, other] = moved[swaps, other], moved[swaps, one]
        return moved

    def _lay(self, eggs: Allocation, fitness: Floats) -> None:
        nests = self.random.integers(_NESTS, size=len(eggs))
        for nest, egg in zip(nests.tolist(), np.argsort(fitness, kind="stable").tolist(), strict=True):
            if fitness[egg] > self.nest_fitness[nest]:
                self.nests[nest], self.nest_fitness[nest] = eggs[egg], fitness[egg]

    def _abandon(self) -> None:
        worst = np.argsort(self.nest_fitness, kind="stable")[: int(_ABANDON * _NESTS)]
        self.nests[worst] = self._fly(self.nests[worst])
        self.nest_fitness[worst] = self._fitness(self.nests[worst])
        self._note(self.nests, self.nest_fitness)

    def _look_around(self) -> None:
        """Climb from the best allocation, and from the ends of flights from it and from other nests."""
        starts = np.concatenate((self.best[None, :], self._fly(np.repeat(self.best[None, :], _FLIGHTS, axis=0))))
        starts = np.concatenate((starts, self.nests[self.random.integers(_NESTS, size=1)]))
        fitness = self._fitness(starts)
        for start in starts[np.isfinite(fitness)]:
            top, steps = self.descent.climb(start)
            self.evaluations += steps * self.descent.looks
            self._note(top[None, :], self._fitness(top[None, :]))
            worst = int(self.own_fitness.argmin())
            self.at[worst] = self.own[worst] = top
            self.own_fitness[worst] = self._fitness(top[None, :])[0]
            self.luckless[worst] = 0
