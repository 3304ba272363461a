"""Placement with the paper's time: half a second a search."""

from __future__ import annotations

import numpy as np
from support.generators.hierarchies import swing
from support.placements import exhaustive

from braided.fleet.placement.cuckoo import search
from braided.fleet.placement.problem import Problem


def test_the_optimum_of_8_detectors_on_2_nodes_in_95_of_100_seeds_after_each_swap() -> None:
    latency = np.array([[0.0, 0.005], [0.005, 0.0]])
    problems = [Problem(swing(pattern), latency, np.ones(8), np.full(2, 5.0)) for pattern in (0, 1)]
    best = [float(problem.fitness(exhaustive(problem)[None, :])[0]) for problem in problems]
    found = np.zeros((100, 3), dtype=bool)
    for seed in range(100):
        now = np.array([0, 1, 0, 1, 1, 0, 1, 0])
        for swap, pattern in enumerate((0, 1, 0)):
            result = search(problems[pattern], now, seed=seed, seconds=0.5)
            found[seed, swap] = result.fitness >= best[pattern] - 1e-9
            now = result.allocation
    assert (found.sum(axis=0) >= 95).all()
