"""What a plan does, in lines for people: its tree before and after the rules, and what each rule did."""

from __future__ import annotations

from braided.aggregates.partial import PartialAggregate
from braided.compile.plan import Plan
from braided.plan.optimiser import Optimised


def explain_plan(optimised: Optimised) -> list[str]:
    """Return a plan, the rules that applied or did not, and the plan after them where it differs."""
    lines = ["logical plan:", *_indented(str(optimised.before))]
    if optimised.firings:
        lines += ["rules:", *(f"    {firing}" for firing in optimised.firings)]
    if optimised.after != optimised.before:
        lines += ["optimised plan:", *_indented(str(optimised.after))]
    return lines


def aggregate_notes(plan: Plan) -> list[str]:
    """Return what there is to say of an aggregate that begins in the workers of a join."""
    assert isinstance(plan.operator, PartialAggregate)
    notes = ["the aggregate after it begins in its workers, which hand on partial results"]
    if plan.operator.layout is not None:
        notes.append("they count and sum over ranges of matches, and make no pairs where that is less work")
    return notes


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]
