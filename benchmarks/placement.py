"""Placement: the remote cost that half a second of cuckoo search finds, against greedy and against scipy's milp.

    pip install scipy; python benchmarks/placement.py [--components 40] [--peers 6] [--seeds 10] [--milp-seconds 60]

Prints one JSON line: the mean ratio of the remote cost to milp's best (1.0 is as good), the worst, and greedy's.
Without scipy only the ratio to greedy is there.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from support.generators.hierarchies import hierarchy
from support.placements import remote_cost

from braided.fleet.placement.cuckoo import search
from braided.fleet.placement.greedy import greedy
from braided.fleet.placement.problem import Allocation, Problem


def random_problem(components: int, peers: int, seed: int) -> Problem:
    """A random hierarchy on peers that have 30% more CPU than it needs."""
    traffic, cpu = hierarchy(components, seed=seed)
    latency = np.random.default_rng(seed).uniform(0.001, 0.02, size=(peers, peers))
    latency = (latency + latency.T) / 2
    np.fill_diagonal(latency, 0.0)
    return Problem(traffic, latency, cpu, np.full(peers, max(1.3 * cpu.sum() / peers, 1.05 * cpu.max())))


def milp_allocation(problem: Problem, seconds: float) -> Allocation:
    """The best that scipy's integer programme finds: x says who is where, w which pair of hosts an edge joins."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    n, m = problem.components, problem.hosts
    source, target, weight = problem.edges
    edges = len(source)
    far = np.where(np.eye(m, dtype=bool), 0.0, weight[:, None, None] + problem.per_second * problem.latency[None])
    cost = np.concatenate((np.zeros(n * m), far.ravel()))
    rows = lil_array((n + m + 2 * edges * m, n * m + edges * m * m))
    low, high = np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
    for i in range(n):
        rows[i, i * m : (i + 1) * m] = 1.0
    low[:n] = high[:n] = 1.0
    for h in range(m):
        rows[n + h, h : n * m : m] = problem.cpu
    low[n : n + m], high[n : n + m] = -np.inf, problem.limits
    at = n + m
    for e in range(edges):
        begin = n * m + e * m * m
        for h in range(m):
            rows[at, begin + h * m : begin + (h + 1) * m] = 1.0
            rows[at, source[e] * m + h] = -1.0
            rows[at + 1, begin + h : begin + m * m : m] = 1.0
            rows[at + 1, target[e] * m + h] = -1.0
            at += 2
    whole = np.concatenate((np.ones(n * m), np.zeros(edges * m * m)))
    found = milp(
        cost,
        constraints=LinearConstraint(rows.tocsr(), low, high),
        integrality=whole,
        bounds=Bounds(0, 1),
        options={"time_limit": seconds},
    )
    if found.x is None:
        raise SystemExit(f"milp found nothing: {found.message}")
    return np.asarray(found.x[: n * m].reshape(n, m).argmax(axis=1), dtype=np.int64)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--components", type=int, default=40)
    parser.add_argument("--peers", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--milp-seconds", type=float, default=60.0)
    options = parser.parse_args()
    try:
        import scipy

        version: str | None = scipy.__version__
    except ImportError:
        version = None
    against_greedy, against_milp, greedy_against_milp = [], [], []
    for seed in range(options.seeds):
        problem = random_problem(options.components, options.peers, seed)
        found = remote_cost(problem, search(problem, seed=seed).allocation)
        simple = remote_cost(problem, greedy(problem))
        against_greedy.append(found / simple)
        if version is not None:
            exact = remote_cost(problem, milp_allocation(problem, options.milp_seconds))
            against_milp.append(found / exact)
            greedy_against_milp.append(simple / exact)
    result = {"benchmark": "placement", "components": options.components, "peers": options.peers, "scipy": version}
    result |= {"cuckoo_over_greedy": round(float(np.mean(against_greedy)), 4)}
    if against_milp:
        result |= {
            "cuckoo_over_milp": round(float(np.mean(against_milp)), 4),
            "worst": round(max(against_milp), 4),
            "greedy_over_milp": round(float(np.mean(greedy_against_milp)), 4),
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
