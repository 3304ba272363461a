"""The one optimiser: rules over the nodes of a plan, from the sources up, until none applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braided.errors import BraidedError
from braided.operators.physical import Plan
from braided.plan.nodes import LogicalPlan, Node, Operator, S, WithoutWatermark

MOST_PASSES = 50


class NotApplied(Exception):
    """Why a rule whose shape fits a node does not apply to it."""


class Analysis(Protocol):
    """What rules ask of the engine that will run a plan."""

    @property
    def is_ansi(self) -> bool:
        """Whether arithmetic that overflows fails, as it does in workers."""

    @property
    def needs_time_zone(self) -> bool:
        """Whether windows are closed by a watermark of Spark's, which is on times with a zone."""

    def columns(self, node: Node) -> list[str]:
        """Return the names of the columns of a node's rows."""

    def is_streaming(self, node: Node) -> bool:
        """Whether a node's rows are a stream."""

    def has_watermark(self, node: Node) -> bool:
        """Whether Spark takes a watermark from a stream below a node."""

    def why_marked(self, node: WithoutWatermark) -> str | None:
        """Return why a stream must keep its watermark; None where it can be without it."""

    def physical(self, node: Operator) -> Plan:
        """Return the physical plan of an operator over its inputs."""

    def reads_alike(self, node: Node, condition: str, again: str) -> bool:
        """Whether two conditions over a node's rows are one and the same."""

    def is_safe(self, node: Node, expression: str) -> bool:
        """Whether an expression can be computed for each row of a node: it never fails, and is always the same."""


class Rule(Protocol):
    """Rewrites one shape of nodes."""

    name: str

    def apply(self, node: Node, analysis: Analysis) -> Node | None:
        """Return what replaces a node; None where the node has another shape.

        Raises `NotApplied` where the shape fits and something else does not.
        """


@dataclass(frozen=True)
class Firing:
    """What a rule did to a node: the reason is None where it applied."""

    rule: str
    node: str
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.node}" + ("" if self.reason is None else f": not applied, {self.reason}")


@dataclass(frozen=True)
class Optimised:
    """A plan before and after the rules, and what each rule did."""

    before: Node
    after: Node
    firings: tuple[Firing, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    """What users call columns, by their names in the plan, where those differ."""

    def reason_of(self, rule: str) -> str | None:
        """Return why a rule did not apply; None where it did, or met no node of its shape."""
        return next((firing.reason for firing in self.firings if firing.rule == rule and firing.reason), None)


def optimise(plan: LogicalPlan[S], rules: Sequence[Rule], analysis: Analysis) -> Optimised:
    """Apply rules to a plan until none does any more."""
    run = _Run(rules, analysis)
    after = run.optimise(plan.root)
    return Optimised(plan.root, after, tuple(dict.fromkeys(run.firings)))


class _Run:
    """One run over a plan: a node that is read twice is optimised once, and stays one."""

    def __init__(self, rules: Sequence[Rule], analysis: Analysis) -> None:
        self._rules = rules
        self._analysis = analysis
        self._known: dict[int, tuple[Node, Node]] = {}
        self.firings: list[Firing] = []

    def optimise(self, node: Node) -> Node:
        """Return a node after all rules."""
        known = self._known.get(id(node))
        if known is None:
            # With the node itself, so that its id stays its own.
            known = self._known[id(node)] = node, self._optimise(node)
        return known[1]

    def _optimise(self, node: Node) -> Node:
        for _ in range(MOST_PASSES):
            inputs = [self.optimise(child) for child in node.inputs]
            if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
                node = node.with_inputs(inputs)
            changed = self._apply(node)
            if changed is None:
                return node
            node = changed
        raise BraidedError(f"the rules never end on this plan; report it:\n{node}")

    def _apply(self, node: Node) -> Node | None:
        for rule in self._rules:
            try:
                changed = rule.apply(node, self._analysis)
            except NotApplied as why:
                self.firings.append(Firing(rule.name, node.describe(), str(why)))
                continue
            if changed is not None:
                self.firings.append(Firing(rule.name, node.describe()))
                return changed
        return None
