"""Outer, semi and anti joins stay exact while the routing changes, in a model; and the model notices every missing rule."""

from __future__ import annotations

from collections import Counter

import pytest
from support.outer_model import judge_history
from support.outer_rules import OF_FULL, RULES
from support.outer_streams import PRESERVED, doubted_before_silence
from support.profiles import examples, size

# Every history is read as an outer, a semi and an anti join.
SEEDS = examples(10_000, quick=350)
MOST = size(quick=1_000, slow=3_000)
RARE = "oldest doubted"
EVENTS = (
    "settle", "several old", "return", "follow", "merge", "cancel", "restart", "promote", "demote", "move",
    "scale in", "scale out", "late", "discarded", "leap", "idle",
)  # fmt: skip


@pytest.mark.parametrize("kind", PRESERVED)
def test_by_all_rules_every_history_is_exact(kind: str) -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS):
        history, wrong = judge_history(seed, kind)
        assert not wrong, f"{seed=}"
        events += history.events
    missing = [event for event in EVENTS if not events[event] and (kind, event) != ("full", "several old")]
    assert not missing, "histories in which nothing happens prove nothing"


@pytest.mark.parametrize("rule", sorted({*RULES} - {RARE}))
def test_without_a_rule_some_history_is_wrong(rule: str) -> None:
    kinds = ("full",) if rule in OF_FULL else ("left", "right")
    wrong = (seed for seed in range(MOST) if any(judge_history(seed, kind, rule)[1] for kind in kinds))
    assert next(wrong, None) is not None, f"{MOST} histories are exact without the rule: {RULES[rule]}"


def test_a_controller_may_not_guess_when_workers_discard_a_doubted_row() -> None:
    streams = doubted_before_silence()
    assert not any(judge_history(seed, "left", None, streams)[1] for seed in range(MOST // 5))
    wrong = (seed for seed in range(MOST // 5) if judge_history(seed, "left", RARE, streams)[1])
    assert next(wrong, None) is not None, RULES[RARE]


def test_an_unknown_rule_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="not a rule"):
        judge_history(0, "left", "no such")
