"""The buffer that joins share by their average credits, against plain lists: which rows stay, which pairs come out."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_sequences import arrays, sequences
from support.profiles import examples

from braided.errors import BraidedError
from braided.eviction.group_buffer import GroupEvents, GroupWindow
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.shared_buffer import SharedBuffer
from braided.eviction.shared_kernel import LEAST_SHARE

POLICIES = (
    GDJ(initial=0.5, refresh=1), GDJ(initial=0.0, refresh=3), GDJ(constant=2.0, refresh=2), GDJ(gain="none", initial=0.2),
    GDJ(initial=0.5, gain="rank", decay="one", refresh=2), GDJ(initial=0.3, gain="one", decay="mean", refresh=1),
)  # fmt: skip


class Plain:
    """The same by plain loops over dicts: a row has a role and a credit in each join that keeps it."""

    def __init__(self, joins: list[GroupWindow], capacity: int, policy: GDJ, most: int | None) -> None:
        self.joins, self.capacity, self.policy, self.most = joins, capacity, policy, most
        self.rows: list[dict[str, Any]] = []
        self.pairs: list[tuple[int, int, int]] = []
        self.looked: list[list[float]] = [[] for _ in joins]
        self.initial = [policy.constant or 0.0 for _ in joins]
        self.shares = [Fraction(1 / len(joins)) for _ in joins]

    def run(self, events: list[dict[str, Any]]) -> None:
        for number, event in enumerate(events):
            for row in self.rows:
                for j, role in list(row["kept"].items()):
                    if event["t"] - row["t"] > self.joins[j].ages[role][1]:
                        del row["kept"][j]
            self.rows = [row for row in self.rows if row["kept"]]
            roles = {
                j: (w.left, w.right).index(event["s"])
                for j, w in enumerate(self.joins)
                if event["s"] in (w.left, w.right) and event["keys"][j] is not None
            }
            for j, role in roles.items():
                for row in self.rows:
                    age = event["t"] - row["t"]
                    met = row["kept"].get(j) == 1 - role and row["keys"][j] == event["keys"][j]
                    if met and age >= self.joins[j].ages[1 - role][0]:
                        self.pairs.append((number, j, row["id"]))
                        row["credit"][j] += self.gain(j, row["credit"][j])
            if number % (self.policy.refresh or max(1, self.capacity // 8)) == 0:
                self.look()
            kept = {j: role for j, role in roles.items() if self.joins[j].ages[role][1] >= 0}
            if kept and (self.most is None or event["size"] <= self.most):
                self.store(event, kept)

    def gain(self, j: int, credit: float) -> float:
        if self.policy.gain == "rank":
            return 1 + sum(other < credit for other in self.looked[j])
        return float(self.policy.gain == "one")

    def of(self, j: int) -> list[dict[str, Any]]:
        return [row for row in self.rows if j in row["kept"]]

    def look(self) -> None:
        """Each join's credits as they are, and what its rows have gained since they were stored, on average."""
        means = []
        for j in range(len(self.joins)):
            credits = sorted(row["credit"][j] for row in self.of(j))
            gained = [Fraction(row["credit"][j] - row["start"][j]) for row in self.of(j)]
            means.append(sum(gained) / len(gained) if gained else Fraction(0))
            if self.policy.constant is None or self.policy.gain == "rank":
                self.looked[j] = credits
            if self.policy.constant is None:
                place = min(len(credits) - 1, int(float(self.policy.initial) * len(credits)))
                self.initial[j] = credits[place] if credits else 0.0
        even, least = Fraction(1, len(self.joins)), Fraction(LEAST_SHARE)
        shares = [least * even + (1 - least) * (m / sum(means) if sum(means) else even) for m in means]
        self.shares = [Fraction(round(share * 2**20), 2**20) for share in shares]

    def memory(self, row: dict[str, Any]) -> int:
        return 1 if self.most is None else int(row["size"])

    def store(self, event: dict[str, Any], kept: dict[int, int]) -> None:
        newcomer = {**event, "kept": kept, "credit": {j: self.initial[j] for j in kept}}
        newcomer["start"] = dict(newcomer["credit"])
        while len(self.rows) == self.capacity or (
            self.most is not None and sum(row["size"] for row in self.rows) + event["size"] > self.most
        ):
            used = [
                sum(Fraction(self.memory(row), len(row["kept"])) for row in [*self.rows, newcomer] if j in row["kept"])
                for j in range(len(self.joins))
            ]
            above = {j: used[j] - self.shares[j] * sum(used) for j in range(len(self.joins)) if self.of(j)}
            j = max(above, key=lambda j: (above[j], -j))
            victim = min(self.of(j), key=lambda row: (row["credit"][j], row["id"]))
            del victim["kept"][j]
            self.rows = [row for row in self.rows if row["kept"]]
        self.rows.append(newcomer)


@settings(max_examples=examples(400, quick=60), deadline=None)
@given(sequences(), st.sampled_from(POLICIES), st.data())
def test_equals_the_plain_loops_whatever_the_cuts(case: dict[str, Any], policy: GDJ, data: Any) -> None:
    events, joins = case["events"], case["joins"]
    buffer = SharedBuffer(case["capacity"], policy, streams=3, joins=joins)
    sizes = np.array([event["size"] for event in events], np.int64)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(events)), max_size=3)))
    found = []
    pair_event, pair_row = (np.empty(case["room"], np.int64) for _ in range(2))
    pair_join = np.empty(case["room"], np.int8)
    for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
        part, at = arrays(events[start:stop], joins, start), 0
        if case["most"] is not None:
            buffer.set_facts(sizes, case["most"])
        while at < stop - start:
            at, pairs = buffer.step(part, at, pair_event=pair_event, pair_join=pair_join, pair_row=pair_row)
            rows = zip(pair_event[:pairs] + start, pair_join[:pairs], pair_row[:pairs], strict=True)
            found += [(int(e), int(j), int(row)) for e, j, row in rows]
        saved, known = buffer.to_bytes(), buffer.ids
        buffer = SharedBuffer(case["capacity"], policy, streams=3, joins=joins)
        buffer.restore(saved, lambda _, known=known: known)
        assert buffer.to_bytes() == saved
    plain = Plain(joins, case["capacity"], policy, case["most"])
    plain.run(events)
    assert sorted(found) == sorted(plain.pairs)
    assert buffer.ids.tolist() == [row["id"] for row in plain.rows]
    assert buffer.kept == [len(plain.of(j)) for j in range(len(joins))]
    assert buffer.shares == [float(share) for share in plain.shares]
    assert buffer.rows <= case["capacity"]
    assert case["most"] is None or sizes[buffer.ids].sum() <= case["most"]


def two_joins(rows: int, keys: tuple[int, int], seed: int = 3) -> tuple[GroupEvents, list[GroupWindow]]:
    """Rows of four streams in turn: a join of the first two, and one of the others, with so many keys each."""
    random = np.random.default_rng(seed)
    stream = np.tile(np.arange(4), rows // 4)
    key = np.stack([random.integers(0, count, rows).astype(np.uint64) for count in keys], axis=1)
    role = np.full((rows, 2), -1, np.int8)
    role[stream < 2, 0], role[stream > 1, 1] = stream[stream < 2], stream[stream > 1] - 2
    window = rows // 4
    times = np.arange(rows)
    events = GroupEvents(key, role, times, stream.astype(np.int8), key[:, 0], times)
    return events, [GroupWindow(0, 1, -window, window), GroupWindow(2, 3, -window, window)]


def run(buffer: SharedBuffer, events: GroupEvents) -> np.ndarray[Any, Any]:
    """Return how many pairs each join found."""
    room = [np.empty(1 << 12, kind) for kind in (np.int64, np.int8, np.int64)]
    at, found = 0, np.zeros(2, np.int64)
    while at < len(events.times):
        at, pairs = buffer.step(events, at, pair_event=room[0], pair_join=room[1], pair_row=room[2])
        found += np.bincount(room[1][:pairs], minlength=2)
    return found


def test_the_join_whose_rows_match_more_has_more_memory() -> None:
    """A row of the first join matches one row in 20, one of the second one in 200."""
    events, joins = two_joins(8_000, (20, 200))
    buffer = SharedBuffer(400, GDJ(initial=0.2), streams=4, joins=joins)
    found = run(buffer, events)
    assert sum(buffer.kept) == buffer.rows == 400
    assert buffer.shares[0] > 0.7
    assert buffer.kept[0] / 400 == pytest.approx(buffer.shares[0], abs=0.1)
    assert found[1] > 0  # its least share goes on finding some
    alike, joins = two_joins(8_000, (60, 60))
    buffer = SharedBuffer(400, GDJ(initial=0.2), streams=4, joins=joins)
    run(buffer, alike)
    assert buffer.shares[0] == pytest.approx(0.5, abs=0.1)


def test_what_has_no_credits_is_refused() -> None:
    window = [GroupWindow(0, 1, -5, 5)]
    with pytest.raises(BraidedError, match=r"share='credits': evict=PROB\(\) has no credits; write evict='gdj'"):
        SharedBuffer(5, PROB(), streams=2, joins=window)
    with pytest.raises(BraidedError, match=r"share='credits': evict=GDJ\(.*\); \(gain 'one', 'none' or 'rank'"):
        SharedBuffer(5, GDJ(gain="reset"), streams=2, joins=window)
    buffer = SharedBuffer(5, GDJ(), streams=2, joins=window)
    with pytest.raises(BraidedError, match="not a saved buffer that joins share by credits"):
        buffer.restore(b"...", lambda _: buffer.ids)
    with pytest.raises(BraidedError, match="the buffer was saved with another one"):
        SharedBuffer(5, GDJ(initial=0.9), streams=2, joins=window).restore(buffer.to_bytes(), lambda _: buffer.ids)
