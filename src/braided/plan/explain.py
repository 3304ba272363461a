"""Explain a plan as text: its tree before and after the rules, and which rules applied."""

from __future__ import annotations

import re
from collections.abc import Mapping

from braided.operators.aggregate.partial import PartialAggregate
from braided.operators.physical import Plan
from braided.plan.nodes import Node, Source
from braided.plan.optimiser import Optimised
from braided.plan.rules.hoist import HoistExpressions
from braided.plan.rules.partial_aggregate import PartialAggregation


def explain_plan(optimised: Optimised) -> list[str]:
    """Return a plan, the rules that applied or did not, and the plan after them if it differs."""
    lines = ["logical plan:", *_indented(str(optimised.before))]
    if optimised.firings:
        lines += ["rules:", *(f"    {firing}" for firing in optimised.firings)]
    if optimised.after != optimised.before:
        lines += ["optimised plan:", *_indented(str(optimised.after))]
    return [spelled(line, optimised.names) for line in lines]


def why_native(optimised: Optimised) -> str | None:
    """Return why Spark alone computes an aggregate after a join; None if no rule found one."""
    return optimised.reason_of(HoistExpressions.name) or optimised.reason_of(PartialAggregation.name)


def is_worth_showing(optimised: Optimised) -> bool:
    """Whether a plan has more than a single operator."""
    return bool(optimised.firings) or any(not isinstance(node, Source) for node in _below(optimised.after))


def _below(node: Node) -> list[Node]:
    return [child for side in node.inputs for child in side.walk()]


def spelled(text: str, names: Mapping[str, str]) -> str:
    """Return a text in which columns have the users' names; those that name their stream need no side of a join.

    >>> spelled("max(`c__n`) by r.c__name", {"c__n": "c.N", "c__name": "c.Name"})
    'max(c.N) by c.Name'
    >>> spelled("l.left_n < r.right_n", {"left_n": "n", "right_n": "n"})
    'l.n < r.n'
    """
    for name in sorted(names, key=len, reverse=True):
        plain, shown = re.escape(name), names[name].replace("\\", r"\\")
        side = r"(?:\b[lr]\.)?" if "." in shown else ""
        text = re.sub(rf"{side}(?:`{plain}`|{plain})", shown, text)
    return text


def aggregate_notes(plan: Plan) -> list[str]:
    """Return notes about an aggregate that begins in the workers of a join."""
    assert isinstance(plan.operator, PartialAggregate)
    notes = ["the aggregate after it begins in its workers, which return partial results"]
    if plan.operator.layout is not None:
        notes.append("they count and sum over ranges of matches without making pairs, if that is less work")
    return notes


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]
