"""The greedy search, from which the cuckoo search starts."""

from __future__ import annotations

import numpy as np

from braided.errors import PeerError
from braided.fleet.placement.problem import Allocation, Problem


def greedy(problem: Problem) -> Allocation:
    """Place components one after the other, those with the most traffic first, each on the host where it gains most.

    Among equal hosts, the one with the most room is chosen. If a component does not fit, the largest ones are placed
    first instead, each on the emptiest host; `PeerError` if this fails too.
    """
    volume = problem.traffic.sum(axis=0) + problem.traffic.sum(axis=1)
    allocation = _in_order(problem, np.argsort(-volume, kind="stable"), by_room=False)
    if allocation is None:
        allocation = _in_order(problem, np.argsort(-problem.cpu, kind="stable"), by_room=True)
    if allocation is not None:
        return allocation
    raise PeerError("the hosts do not have room for all components; add hosts, or remove components")


def _in_order(problem: Problem, order: Allocation, *, by_room: bool) -> Allocation | None:
    allocation = np.full(problem.components, -1, dtype=np.int64)
    room = problem.limits.copy()
    weight = problem.per_event * (problem.traffic + problem.traffic.T)
    for component in order.tolist():
        hosts = np.flatnonzero(problem.hosts_of[component] & (room + 1e-9 >= problem.cpu[component]))
        if not len(hosts):
            return None
        others = np.flatnonzero((allocation >= 0) & (weight[component] > 0))
        gain = np.zeros(len(hosts))
        for place, host in enumerate(hosts.tolist()):
            there = allocation[others] == host
            far = problem.per_second * problem.latency[host, allocation[others]]
            gain[place] = np.where(there, weight[component, others], -(weight[component, others] + far)).sum()
        best = np.lexsort((hosts, -room[hosts], np.zeros(len(hosts)) if by_room else -gain))[0]
        allocation[component] = hosts[best]
        room[hosts[best]] -= problem.cpu[component]
    return allocation
