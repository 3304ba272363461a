"""The hill climb from an allocation: each step is the single move, or the swap of two components, that gains most."""

from __future__ import annotations

import numpy as np

from braided.fleet.placement.problem import Allocation, Floats, Problem

_LEAST = 1e-9  # a smaller gain is a rounding error


class Descent:
    """Improves allocations of one problem. A step looks at all moves and swaps at once, by products of matrices."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._away = ~np.eye(problem.components, dtype=np.bool_)
        self._weight = problem.per_event * (problem.traffic + problem.traffic.T) * self._away
        self._hears = ((problem.traffic > 0) & self._away).astype(np.float64)
        self._latency = problem.per_second * problem.latency * ~np.eye(problem.hosts, dtype=np.bool_)
        self.looks = problem.components * (problem.hosts - 1) + problem.components * (problem.components - 1) // 2
        """How many allocations a step considers."""

    def climb(self, allocation: Allocation) -> tuple[Allocation, int]:
        """Return the end of the climb, and its number of steps. Precondition: no host is overloaded."""
        at, steps = allocation.copy(), 0
        while True:
            steps += 1
            value = self._values(at)
            room = self._problem.limits - self._problem.loads(at[None, :])[0] + _LEAST
            moves = self._moves(at, value, room)
            swaps = self._swaps(at, value, room)
            best_move, best_swap = int(moves.argmax()), int(swaps.argmax())
            if max(moves.flat[best_move], swaps.flat[best_swap]) <= _LEAST:
                return at, steps
            if moves.flat[best_move] >= swaps.flat[best_swap]:
                component, host = divmod(best_move, self._problem.hosts)
                at[component] = host
            else:
                one, other = divmod(best_swap, self._problem.components)
                at[one], at[other] = at[other], at[one]

    def _values(self, at: Allocation) -> Floats:
        """Return what every component adds to the fitness on every host, if the others stay."""
        there = np.eye(self._problem.hosts)[at]
        far = (self._hears @ there) @ self._latency.T + (self._hears.T @ there) @ self._latency
        return np.asarray(2 * self._weight @ there - self._weight.sum(axis=1, keepdims=True) - far)

    def _moves(self, at: Allocation, value: Floats, room: Floats) -> Floats:
        fits = self._problem.hosts_of & (self._problem.cpu[:, None] <= room[None, :])
        gain = value - value[np.arange(len(at)), at][:, None]
        gain = np.where(fits, gain, -np.inf)
        gain[np.arange(len(at)), at] = -np.inf
        return gain

    def _swaps(self, at: Allocation, value: Floats, room: Floats) -> Floats:
        """Return the gain if two components swap hosts; minus infinity if they cannot."""
        there = value[:, at]  # what i would add on the host of j
        gain = there - np.diag(there)[:, None]
        # Both were counted as together afterwards, but they are still apart, with the latency in the other direction.
        to, fro = self._latency[at[:, None], at[None, :]], self._latency[at[None, :], at[:, None]]
        far, back = self._hears * to + self._hears.T * fro, self._hears * fro + self._hears.T * to
        gain = gain + gain.T - 4 * self._weight - far - back
        more = self._problem.cpu[:, None] - self._problem.cpu[None, :]  # the additional CPU on the host of j
        fits = (more <= room[at][None, :]) & (-more <= room[at][:, None])
        allowed = self._problem.hosts_of[:, at]
        return np.where(fits & allowed & allowed.T & (at[:, None] != at[None, :]), gain, -np.inf)
