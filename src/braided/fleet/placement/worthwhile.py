"""The few moves towards a better allocation that are worth their cost."""

from __future__ import annotations

import numpy as np

from braided.errors import PeerError
from braided.fleet.placement.problem import Allocation, Problem

Step = tuple[int, int, int]
"""A component, its host and its new host."""


def worthwhile(problem: Problem, now: Allocation, wanted: Allocation, *, cost: float, limit: int = 3) -> list[Step]:
    """Return at most `limit` moves towards an allocation that gain more than `cost` each in fitness.

    The next move is always the one after which the fitness is best, and no host may be overloaded in between. If single
    moves lose and only several together gain, as in a swap of two components, they are returned together or not at all.
    Gains of earlier moves do not pay for later ones: a move that gains nothing is left out.
    """
    if limit < 1 or not 0 <= cost < float("inf"):
        raise PeerError(f"{cost=}, {limit=}: write a cost of 0 or more, and a limit of at least 1")
    for allocation in (now, wanted):
        problem.check(allocation)
    at = now.copy()
    reached = float(problem.fitness(now[None, :])[0])
    steps: list[Step] = []
    worth: list[Step] = []
    left = np.flatnonzero(now != wanted).tolist()
    while left and len(steps) < limit:
        tries = np.repeat(at[None, :], len(left), axis=0)
        tries[np.arange(len(left)), left] = wanted[left]
        fitness = problem.fitness(tries)
        best = int(fitness.argmax())
        if not np.isfinite(fitness[best]):
            break
        component = left.pop(best)
        steps.append((component, int(at[component]), int(wanted[component])))
        at[component] = wanted[component]
        if fitness[best] - reached > cost * (len(steps) - len(worth)):
            worth, reached = list(steps), float(fitness[best])
    return worth
