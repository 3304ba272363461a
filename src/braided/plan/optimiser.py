"""The optimiser: it applies rules to the nodes of a plan, from the sources up, until no rule applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from braided.errors import BraidedError
from braided.operators.physical import Plan
from braided.plan.nodes import LogicalPlan, Node, Operator, S, WithoutWatermark

MOST_PASSES = 50


class NotApplied(Exception):
    """The reason why a rule does not apply to a node of its shape."""


class Analysis(Protocol):
    """The questions of rules to the engine that will run a plan."""

    @property
    def is_ansi(self) -> bool:
        """Whether an arithmetic overflow is an error, as it is in workers."""

    @property
    def needs_time_zone(self) -> bool:
        """Whether windows are closed by Spark's watermark, which needs times with a zone."""

    def columns(self, node: Node) -> list[str]:
        """Return the column names of a node's rows."""

    def is_streaming(self, node: Node) -> bool:
        """Whether the rows of a node are a stream."""

    def has_watermark(self, node: Node) -> bool:
        """Whether Spark takes a watermark from a stream below a node."""

    def why_marked(self, node: WithoutWatermark) -> str | None:
        """Return why a stream must keep its watermark; None if the watermark can be removed."""

    def physical(self, node: Operator) -> Plan:
        """Return the physical plan of an operator over its inputs."""

    def reads_alike(self, node: Node, condition: str, again: str) -> bool:
        """Whether two conditions over a node's rows are the same for the engine."""

    def is_safe(self, node: Node, expression: str) -> bool:
        """Whether an expression can be computed for each row of a node: it never fails and is deterministic."""


class Rule(Protocol):
    """Rewrites one shape of nodes."""

    name: str

    def apply(self, node: Node, analysis: Analysis) -> Node | None:
        """Return the node that replaces this one; None if the node has another shape.

        Raises `NotApplied` if the node has the right shape, but the rule does not apply for another reason.
        """


@dataclass(frozen=True)
class Firing:
    """A rule and a node: the reason why the rule did not apply, or None if it applied."""

    rule: str
    node: str
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.node}" + ("" if self.reason is None else f": not applied, because {self.reason}")


@dataclass(frozen=True)
class Optimised:
    """A plan before and after the rules, and which rules applied."""

    before: Node
    after: Node
    firings: tuple[Firing, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    """The users' names of columns, by their names in the plan, if they differ."""

    def reason_of(self, rule: str) -> str | None:
        """Return why a rule did not apply; None if it applied, or if there was no node of its shape."""
        return next((firing.reason for firing in self.firings if firing.rule == rule and firing.reason), None)


def optimise(plan: LogicalPlan[S], rules: Sequence[Rule], analysis: Analysis) -> Optimised:
    """Apply rules to a plan until no rule applies."""
    run = _Run(rules, analysis)
    after = run.optimise(plan.root)
    return Optimised(plan.root, after, tuple(dict.fromkeys(run.firings)))


class _Run:
    """One run over a plan: a node that is read twice is optimised once, and stays a single node."""

    def __init__(self, rules: Sequence[Rule], analysis: Analysis) -> None:
        self._rules = rules
        self._analysis = analysis
        self._known: dict[int, tuple[Node, Node]] = {}
        self.firings: list[Firing] = []

    def optimise(self, node: Node) -> Node:
        """Return a node after all rules."""
        known = self._known.get(id(node))
        if known is None:
            # The node itself is stored too, so that its id is not used again.
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
        raise BraidedError(f"the rules do not terminate on this plan; please report it:\n{node}")

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
