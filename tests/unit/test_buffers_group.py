"""The buffer of several joins against a plain reference: which rows stay, which pairs come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_sequences import arrays, sequences
from support.profiles import examples

from braided.errors import BraidedError
from braided.eviction.group_buffer import GroupBuffer, GroupWindow
from braided.eviction.policies.age import AGE
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.routing.hash_kernels import mix

POLICIES = (
    GDJ(initial=0.5, refresh=1), GDJ(initial=0.0, refresh=3), GDJ(constant=2.0), PROB(), FIFO(), RAND(seed=4),
    GDJ(initial=0.5, gain="rank", decay="one", refresh=2), GDJ(initial=0.3, gain="one", decay="mean", refresh=1),
)  # fmt: skip
"""The last two are the paper's METHODs 2 and 3."""


def reference(
    events: list[dict[str, Any]], joins: list[GroupWindow], capacity: int, policy: Any, most: int | None
) -> tuple[list[tuple[int, int, int]], list[int]]:
    """Return the pairs (event, join, stored row) and the rows kept, by plain loops."""
    stored: list[dict[str, Any]] = []
    pairs, seen, initial = [], {}, getattr(policy, "constant", None) or 0.0
    looked: list[float] = []
    served = [(q, w.ages[r][1]) for w in joins for r, q in enumerate((w.left, w.right))]
    stays = {s: max([-1, *(latest for q, latest in served if q == s)]) for s in (0, 1, 2)}
    for number, event in enumerate(events):
        stored = [row for row in stored if event["t"] - row["t"] <= stays[row["s"]]]
        roles = {j: (w.left, w.right).index(event["s"]) for j, w in enumerate(joins) if event["s"] in (w.left, w.right)}
        roles = {j: role for j, role in roles.items() if event["keys"][j] is not None}
        for j, role in roles.items():
            soonest, latest = joins[j].ages[1 - role]
            for row in stored:
                same = row["roles"].get(j) == 1 - role and row["keys"][j] == event["keys"][j]
                if same and soonest <= event["t"] - row["t"] <= latest:
                    pairs.append((number, j, row["id"]))
                    rank = sum(credit < row["credit"] for credit in looked)
                    row["credit"] += isinstance(policy, GDJ) and (1 + rank if policy.gain == "rank" else 1)
                if same and isinstance(policy, PROB):
                    row["credit"] += 1
            side = (j, role, event["keys"][j])
            seen[side] = seen.get(side, 0) + 1
        if isinstance(policy, GDJ) and policy.constant is None and number % policy.refresh == 0:
            credits = sorted(row["credit"] for row in stored)
            initial = credits[min(len(credits) - 1, int(policy.initial * len(credits)))] if credits else 0.0
            looked = credits
        credit, choosy = initial, isinstance(policy, PROB | RAND)
        if isinstance(policy, PROB):
            credit = sum(seen.get((j, 1 - role, event["keys"][j]), 0) for j, role in roles.items())
        elif isinstance(policy, RAND):
            credit = int(mix(np.uint64(event["content"]) ^ np.uint64(policy.seed * 0x9E3779B97F4A7C15 % 2**64))) >> 11
        if stays[event["s"]] < 0:
            continue
        if most is not None and event["size"] > most:
            continue
        while len(stored) == capacity or (
            most is not None and sum(row["size"] for row in stored) + event["size"] > most
        ):
            worst = min(stored, key=lambda row: (row["credit"], row["id"]))
            if choosy and worst["credit"] > credit:
                break
            stored.remove(worst)
        else:
            stored.append({**event, "roles": roles, "credit": credit})
    return pairs, [row["id"] for row in stored]


@settings(max_examples=examples(150), deadline=None)
@given(sequences(), st.sampled_from(POLICIES), st.data())
def test_equals_the_reference_whatever_the_cuts(case: dict[str, Any], policy: Any, data: Any) -> None:
    events, joins = case["events"], case["joins"]
    buffer = GroupBuffer(case["capacity"], policy, streams=3, joins=joins)
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
        buffer = GroupBuffer(case["capacity"], policy, streams=3, joins=joins)
        buffer.restore(saved, lambda _, known=known: known)
        assert buffer.to_bytes() == saved
    pairs, kept = reference(events, joins, case["capacity"], policy, case["most"])
    assert sorted(found) == sorted(pairs)
    assert buffer.ids.tolist() == kept


def test_what_it_cannot_do_is_refused() -> None:
    for policy in (AGE(), GDJ(gain="reset"), GDJ(constant=1.0, decay="one")):
        with pytest.raises(
            BraidedError,
            match=r"not supported for several joins; use 'gdj' \(gain 'one', 'none' or 'rank'; with constant= no decay\), 'prob'",
        ):
            GroupBuffer(5, policy, streams=2, joins=[GroupWindow(0, 1, -5, 5)])
    buffer = GroupBuffer(5, FIFO(), streams=2, joins=[GroupWindow(0, 1, -5, 5)])
    with pytest.raises(BraidedError, match="these bytes are not a saved buffer of several joins"):
        buffer.restore(b"...", lambda _: buffer.ids)
    with pytest.raises(BraidedError, match="the buffer was saved with"):
        GroupBuffer(5, RAND(), streams=2, joins=[GroupWindow(0, 1, -5, 5)]).restore(
            buffer.to_bytes(), lambda _: buffer.ids
        )
