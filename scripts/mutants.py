"""The mutations of `mutations.py`: faults that this project has had or fears, and the tests that notice each."""

from __future__ import annotations

from dataclasses import dataclass

_JOIN = ("tests/unit/test_join_local.py", "tests/unit/test_routing_exact.py", "tests/unit/test_join_time.py")
_STATE = (*_JOIN, "tests/unit/test_state.py")
_BUFFERS = ("tests/unit/test_buffers.py", "tests/unit/test_byte_budget.py", "tests/unit/test_bounded_join.py")
_ORDER = ("tests/unit/test_order_local.py",)
_STAGE = ("tests/unit/test_ordering_stage.py", *_ORDER)
_MATCH = ("tests/unit/test_match_local.py",)
_HALVES = (*_STATE, "tests/unit/test_routing.py", "tests/unit/test_options.py", "tests/unit/test_multijoin.py")

# Where random faults are put, and the tests that ought to notice them.
CORE: dict[str, tuple[str, ...]] = {
    "joins/window_join.py": _STATE,
    "joins/stored.py": _STATE,
    "joins/arrivals.py": _STATE,
    "buffers/kernel.py": _BUFFERS,
    "buffers/heap.py": _BUFFERS,
    "buffers/index.py": _BUFFERS,
    "ordering/ordering.py": _ORDER,
    "operator/ordering_stage.py": _STAGE,
    "operator/waiting.py": _STAGE,
    "operator/blocks.py": ("tests/unit/test_blocks.py", "tests/unit/test_state.py"),
    "matching/kernel.py": (*_MATCH, "tests/unit/test_match_search.py"),
    "matching/matching.py": _MATCH,
    "matching/open_rows.py": _MATCH,
    "operator/router.py": _HALVES,
    "operator/worker.py": _HALVES,
}


@dataclass(frozen=True)
class Mutation:
    """A way to break the code, and the tests that must turn red."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ("tests/unit/test_routing_exact.py",)


MUTATIONS = (
    Mutation(
        "no probe-only copies to older assignments",
        "routing/routes.py",
        "for place in range(MAX_LIVE):",
        "for place in range(1):",
    ),
    Mutation(
        "one shared clock for both streams",
        "joins/window_join.py",
        "        kept.advance(work)\n",
        "        kept.advance(work)\n"
        "        for stream in kept.streams:\n"
        "            stream.trust.clock = max((c for c in kept.clocks if c is not None), default=None)\n",
        ("tests/unit/test_join_local.py",),
    ),
    Mutation(
        "expiry before probing",
        "joins/window_join.py",
        "        for left in new[0]:\n            for right in (*kept.runs_for",
        "        kept.advance(work)\n"
        "        for side in (0, 1):\n"
        "            kept.absorb(side, [])\n"
        "        for left in new[0]:\n            for right in (*kept.runs_for",
        ("tests/unit/test_join_local.py",),
    ),
    Mutation(
        "an assignment declared dead one window early",
        "routing/deaths.py",
        "end.top < self.window.horizon(side, now)",
        "end.top < self.window.horizon(side, now) + self.window.hi - self.window.lo",
    ),
    Mutation(
        "routers that ignore the pin",
        "spark/routing.py",
        "table = self.control.pin(batch, query)",
        "table = self.control.newest()",
        ("tests/unit/test_routing.py",),
    ),
    Mutation(
        "new rows stored under every live assignment",
        "routing/routes.py",
        "        stored = place == 0\n",
        "        stored = True\n",
    ),
    Mutation(
        "a returning assignment keeps its old place",
        "routing/edit.py",
        "np.where(live == assignment, -1, live)",
        "live",
    ),
    Mutation(
        "a demoted key does not follow its bucket",
        "routing/edit.py",
        "follow = BUCKETS + np.flatnonzero(self._demoted & np.isin(home, buckets))",
        "follow = np.zeros(0, np.int64)",
        ("tests/unit/test_table_edit.py",),
    ),
    Mutation(
        "a promoted key forgets where its bucket stored it",
        "routing/edit.py",
        "        self.assign(np.array([group]), self.add_grid(grid))",
        "        self.assign(np.array([group]), self.add_grid(grid))\n        self._live[group, 1:] = -1",
    ),
    Mutation(
        "a left row in one column of a grid only",
        "routing/grid.py",
        "for column, bounds in zip(self.columns, self._row_bounds, strict=True):",
        "for column, bounds in list(zip(self.columns, self._row_bounds, strict=True))[:1]:",
    ),
    Mutation(
        "every time moves a clock",
        "time/trust.py",
        "ahead = [cluster for cluster in clusters if cluster.first - clock > jump]",
        "ahead: list[Cluster] = []",
        ("tests/unit/test_trust.py",),
    ),
    Mutation(
        "a leap of the clock counts as going on",
        "time/quarantine.py",
        "(since.moved, since.rows) if since.leaps == self.leaps else (0, 0)",
        "since.moved, since.rows",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "rows are given up before anybody asks whether their time has come",
        "time/quarantine.py",
        "if first <= self.limit:",
        "if first <= self.limit and not self._gone[side].on_for(since, patience):",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "the first row of a stream is its clock",
        "time/trust.py",
        "settled: bool = False",
        "settled: bool = True",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "an assignment dies by clocks alone",
        "balance/controller.py",
        "seen.clocks, seen.ahead",
        "seen.clocks",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "quarantined rows are not met",
        "joins/stored.py",
        "groups = [*self.sides[side], *(infos for _, infos in self.apart[side])]",
        "groups = [*self.sides[side]]",
        ("tests/unit/test_join_time.py",),
    ),
    Mutation(
        "a row of several streams stored under its newest assignment only",
        "joins/many/stamps.py",
        "batch if block.stored else -batch",
        "batch",
        ("tests/unit/test_multijoin_routing.py",),
    ),
    Mutation(
        "a match ends a moment before its time has run out",
        "matching/kernel.py",
        "deadline < horizon, limit",
        "deadline <= horizon, limit",
        _MATCH,
    ),
    Mutation(
        "an open match whose key has nothing new is never decided",
        "matching/kernel.py",
        "and deadline_of(times[start], within) >= horizon:",
        "and within < horizon:",
        _MATCH,
    ),
    Mutation(
        "a negation is decided by the rows that are there",
        "matching/kernel.py",
        "return _FOUND if closed else _WAITS",
        "return _FOUND",
        ("tests/unit/test_match_search.py",),
    ),
    Mutation(
        "what failed for one start fails for the next",
        "matching/kernel.py",
        "    space.numbers[_STAMP] += 1\n",
        "    space.numbers[_STAMP] = 1\n",
        ("tests/unit/test_match_search.py",),
    ),
    Mutation(
        "a row behind the horizon is taken where no later one has left",
        "matching/matching.py",
        "blocks, agreed=True)",
        "blocks)",
        _MATCH,
    ),
    Mutation(
        "open rows of a leaf wait for its next row",
        "matching/open_rows.py",
        "leaf.oldest < expired",
        "leaf.oldest < expired - 1",
        _MATCH,
    ),
    Mutation(
        "reluctant quantifiers are greedy",
        "matching/automaton.py",
        "if greedy else [_DONE, *begin]",
        "if greedy else [*begin, _DONE]",
        _MATCH,
    ),
    Mutation(
        "the row before is the row itself",
        "matching/machine.py",
        "missing if place < 0 else place - c",
        "missing if place < 0 else place",
        _MATCH,
    ),
)
