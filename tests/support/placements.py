"""What placements are compared with: the best of all allocations, and what a fleet pays for one."""

from __future__ import annotations

import numpy as np

from braided.errors import PeerError
from braided.fleet.placement.problem import Allocation, Problem

_CHUNK = 1 << 14
MAX_ALLOCATIONS = 1 << 24


def exhaustive(problem: Problem) -> Allocation:
    """Return the best allocation of all; refused where there are too many."""
    count = problem.hosts**problem.components
    if count > MAX_ALLOCATIONS:
        raise PeerError(f"{problem.components} components on {problem.hosts} hosts: {count} allocations are too many")
    powers = problem.hosts ** np.arange(problem.components, dtype=np.int64)
    best: Allocation | None = None
    fittest = -np.inf
    for start in range(0, count, _CHUNK):
        numbers = np.arange(start, min(count, start + _CHUNK), dtype=np.int64)
        allocations = numbers[:, None] // powers[None, :] % problem.hosts
        fitness = problem.fitness(allocations)
        at = int(fitness.argmax())
        if fitness[at] > fittest:
            best, fittest = allocations[at], float(fitness[at])
    if best is None:
        raise PeerError("the hosts do not have room for all components; add hosts, or remove components")
    return best


def remote_cost(problem: Problem, allocation: Allocation) -> float:
    """Return the weighted traffic and latency between hosts alone, which is what a fleet pays."""
    source, target, weight = problem.edges
    one, other = allocation[source], allocation[target]
    return float(np.where(one == other, 0.0, weight + problem.per_second * problem.latency[one, other]).sum())
