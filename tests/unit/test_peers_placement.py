"""Placement: the fitness, the plain searches, the cuckoo's, and which moves are worth it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.generators.hierarchies import hierarchy, swing
from support.placements import exhaustive, remote_cost
from support.profiles import size

from braided.errors import PeerError
from braided.fleet.placement.cuckoo import search
from braided.fleet.placement.descent import Descent
from braided.fleet.placement.greedy import greedy
from braided.fleet.placement.problem import Allocation, Problem
from braided.fleet.placement.worthwhile import worthwhile


def _latency(hosts: int, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).uniform(0.001, 0.02, size=(hosts, hosts))
    found = (found + found.T) / 2
    np.fill_diagonal(found, 0.0)
    return found


def _swing(pattern: int) -> Problem:
    return Problem(swing(pattern), _latency(2), np.ones(8), np.full(2, 5.0))


def _random(count: int, hosts: int, seed: int, room: float = 1.3) -> Problem:
    traffic, cpu = hierarchy(count, seed=seed)
    each = max(room * cpu.sum() / hosts, 1.05 * cpu.max())
    return Problem(traffic, _latency(hosts, seed), cpu, np.full(hosts, each))


def _by_hand(problem: Problem, allocation: Allocation) -> float:
    """The paper's formula, letter by letter."""
    total = 0.0
    for i, j in itertools.product(range(problem.components), repeat=2):
        t = problem.traffic[i, j]
        if i == j or not t:
            continue
        same = allocation[i] == allocation[j]
        total += problem.per_event * t if same else 0.0
        far = problem.latency[allocation[i], allocation[j]]
        total -= 0.0 if same else problem.per_event * t + problem.per_second * far
    for host in range(problem.hosts):
        if sum(problem.cpu[i] for i in range(problem.components) if allocation[i] == host) > problem.limits[host]:
            return -np.inf
    return total


def test_fitness_is_the_papers() -> None:
    for seed in range(20):
        problem = _random(9, 3, seed, room=1.6)
        allocations = np.random.default_rng(seed).integers(3, size=(30, 9))
        expected = [_by_hand(problem, allocation) for allocation in allocations]
        assert problem.fitness(allocations) == pytest.approx(expected)
        assert np.isfinite(expected).any()


def test_fitness_and_remote_cost_agree_on_the_order() -> None:
    problem = _random(9, 3, 4, room=9.0)
    allocations = np.random.default_rng(4).integers(3, size=(30, 9))
    remote = np.array([remote_cost(problem, allocation) for allocation in allocations])
    latency = np.array([
        sum(problem.per_second * problem.latency[a[i], a[j]] for i, j in zip(*np.nonzero(problem.traffic), strict=True))
        for a in allocations
    ])  # fmt: skip
    # What is not remote is local: f = all - 2 * remote traffic - latency.
    assert problem.fitness(allocations) == pytest.approx(problem.traffic.sum() - 2 * (remote - latency) - latency)


def test_exhaustive_is_the_best_of_all() -> None:
    problem = _random(6, 3, 7)
    best = max(_by_hand(problem, np.array(choice)) for choice in itertools.product(range(3), repeat=6))
    assert problem.fitness(exhaustive(problem)[None, :])[0] == pytest.approx(best)
    with pytest.raises(PeerError, match=r"40 components on 6 hosts: .* allocations are too many"):
        exhaustive(_random(40, 6, 1))


def test_the_optimum_is_found_after_each_swap_of_the_pattern() -> None:
    """With 3,000 evaluations; a search of 0.5 s makes a hundred times as many (`tests/slow/test_placement.py`)."""
    for seed in range(10):
        now = np.array([0, 1, 0, 1, 1, 0, 1, 0])  # the paper's static allocation
        for pattern in (0, 1, 0):
            problem = _swing(pattern)
            found = search(problem, now, seed=seed, evaluations=3000)
            best = problem.fitness(exhaustive(problem)[None, :])[0]
            assert found.fitness == pytest.approx(best)
            assert problem.fitness(now[None, :])[0] < best
            now = found.allocation


def test_it_is_better_than_greedy_on_average_and_never_worse() -> None:
    gains = []
    for seed in range(size(quick=8, slow=60)):
        problem = _random(24, 4, seed)
        simple = greedy(problem)
        found = search(problem, seed=seed, evaluations=20_000)
        assert problem.fits(found.allocation[None, :])[0]
        gains.append(found.fitness - problem.fitness(simple[None, :])[0])
    assert min(gains) >= 0
    assert np.mean(gains) > 0


def test_a_search_is_the_same_for_a_seed_and_never_worse_than_its_start() -> None:
    problem = _random(20, 4, 3)
    one, same = (search(problem, seed=5, evaluations=2000) for _ in range(2))
    assert np.array_equal(one.allocation, same.allocation)
    again = search(problem, one.allocation, seed=6, evaluations=100)
    assert again.fitness >= one.fitness - 1e-6  # sums of another order


def test_time_ends_a_search() -> None:
    ticks = itertools.count()
    search(_random(20, 4, 3), seconds=5.0, clock=lambda: float(next(ticks)))
    assert next(ticks) == 6


def test_cpu_limits_and_what_a_host_may_run_are_kept() -> None:
    traffic, cpu = hierarchy(12, seed=2)
    allowed = np.ones((12, 3), dtype=bool)
    allowed[3] = [False, False, True]
    limits = np.array([0.5, 0.3, 0.4]) * cpu.sum() * 1.2
    problem = Problem(traffic, _latency(3), cpu, limits, allowed)
    for found in (search(problem, seed=1, evaluations=4000).allocation, greedy(problem)):
        assert found[3] == 2
        assert (problem.loads(found[None, :])[0] <= limits + 1e-9).all()


def _around(problem: Problem, allocation: Allocation) -> np.ndarray:
    """Every allocation that is one move or one change of places away."""
    found = []
    for component, host in itertools.product(range(problem.components), range(problem.hosts)):
        moved = allocation.copy()
        moved[component] = host
        found.append(moved)
    for one, other in itertools.combinations(range(problem.components), 2):
        swapped = allocation.copy()
        swapped[[one, other]] = swapped[[other, one]]
        found.append(swapped)
    return np.array(found)


def test_the_way_uphill_takes_the_best_step_each_time_and_ends_at_the_top() -> None:
    for seed in range(30):
        problem = _random(10, 3, seed, room=1.5)
        latency = np.random.default_rng(seed).uniform(0, 0.05, size=(3, 3))  # not the same both ways
        problem = Problem(problem.traffic, latency * ~np.eye(3, dtype=bool), problem.cpu, problem.limits)
        allocations = np.random.default_rng(seed).integers(3, size=(200, 10))
        start = at = allocations[problem.fits(allocations)][0]
        for _ in range(100):
            around = _around(problem, at)
            fitness = problem.fitness(around)
            if fitness.max() <= problem.fitness(at[None, :])[0] + 1e-9:
                break
            at = around[int(fitness.argmax())]
        top, _ = Descent(problem).climb(start)
        assert problem.fitness(top[None, :])[0] == pytest.approx(problem.fitness(at[None, :])[0])


def test_moves_are_few_and_worth_their_cost() -> None:
    problem = _swing(0)
    now = np.array([0, 0, 0, 1, 0, 1, 1, 1])
    wanted = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    moves = worthwhile(problem, now, wanted, cost=10.0)
    assert sorted(moves) == [(3, 1, 0), (4, 0, 1)]
    assert worthwhile(problem, now, wanted, cost=1000.0) == []
    assert worthwhile(problem, wanted, wanted, cost=0.0) == []
    assert len(worthwhile(problem, now, wanted, cost=0.0, limit=1)) == 1
    with pytest.raises(PeerError, match="cost=-1, limit=3: write a cost of 0 or more"):
        worthwhile(problem, now, wanted, cost=-1)


def test_a_move_that_gains_nothing_does_not_come_along() -> None:
    traffic = np.zeros((3, 3))
    traffic[0, 1] = 1000.0
    problem = Problem(traffic, _latency(2), np.ones(3), np.full(2, 3.0))
    now, wanted = np.array([0, 1, 0]), np.array([1, 1, 1])
    assert worthwhile(problem, now, wanted, cost=10.0) == [(0, 0, 1)]
    # It makes room here, without which nothing is gained.
    tight = Problem(traffic, _latency(2), np.ones(3), np.full(2, 2.0))
    now, wanted = np.array([0, 1, 1]), np.array([1, 1, 0])
    assert worthwhile(tight, now, wanted, cost=10.0) == [(2, 1, 0), (0, 0, 1)]


def test_two_that_change_places_move_together_or_not_at_all() -> None:
    traffic = np.zeros((4, 4))
    traffic[0, 1] = traffic[2, 3] = 10.0
    problem = Problem(traffic, _latency(2), np.ones(4), np.full(2, 3.0))
    now, wanted = np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1])
    # The first alone gains 20 already; with three places on either side both can go one after the other.
    assert len(worthwhile(problem, now, wanted, cost=1.0)) == 2
    full = Problem(traffic, _latency(2), np.ones(4), np.full(2, 2.0))
    assert worthwhile(full, now, wanted, cost=1.0) == []  # no host has room for a third, not even for a moment


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"traffic": np.zeros((2, 3))}, "traffic: give 2 x 2 finite numbers of 0 or more"),
        ({"latency": np.full((2, 2), np.nan)}, "latency: give 2 x 2 finite numbers"),
        ({"cpu": np.array([1.0, -1.0])}, "cpu: give 2 finite numbers"),
        ({"cpu": np.array([1.0, 9.0])}, "component 1: no host is allowed to run it, or has 9 CPU"),
        ({"allowed": np.array([[True, True], [False, False]])}, "component 1: no host is allowed to run it"),
        ({"allowed": np.ones((3, 2), dtype=bool)}, "allowed: give 2 x 2 truth values"),
    ],
)
def test_problems_that_cannot_be_are_refused(change: dict[str, np.ndarray], text: str) -> None:
    values = {"traffic": np.zeros((2, 2)), "latency": np.zeros((2, 2)), "cpu": np.ones(2), "limits": np.ones(2)}
    with pytest.raises(PeerError, match=text):
        Problem(**(values | change))  # type: ignore[arg-type]


def test_searches_that_cannot_find_anything_are_refused() -> None:
    full = Problem(np.zeros((3, 3)), _latency(2), np.ones(3), np.ones(2))
    for find in (greedy, exhaustive):
        with pytest.raises(PeerError, match="the hosts do not have room for all components"):
            find(full)
    with pytest.raises(PeerError, match="every allocation found overloads a host"):
        search(full, evaluations=500)
    with pytest.raises(PeerError, match="allocation: give 3 hosts of 0 to 1"):
        search(full, np.array([0, 1]), evaluations=500)
