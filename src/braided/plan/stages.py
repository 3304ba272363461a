"""Split a query into stages, each a separate Spark query, by one of StreamCloud's three strategies (III.A).

```
 where -> join -> where -> join -> aggregate -> select

 "query"      [where   join   where   join   aggregate   select]
 "operator"   [where] [join] [where] [join] [aggregate] [select]
 "subquery"   [where] [join   where] [join   aggregate   select]
```

A subquery is a stateful step with the stateless steps after it. The stateless steps before the first stateful one are a
separate subquery. An aggregate that begins in a join's workers is part of the join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from braided.errors import OptionError
from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.plan.nodes import Aggregate, Filter, Node, Operator, Project, Source, Watermark

Strategy = Literal["query", "operator", "subquery"]
_STEPS = {"filter": "where", "project": "select", "row_windows": "aggregate"}


@dataclass(frozen=True)
class Stage:
    """A part of a query, as a plan. Its sources are those of the whole query, then the results of its `inputs`."""

    name: str
    steps: tuple[str, ...]
    inputs: tuple[Stage, ...]
    root: Node


def split(root: Node, sources: int, strategy: Strategy, is_lateness_learned: Callable[[Operator], bool]) -> list[Stage]:
    """Return the stages of a plan with this number of sources, each stage after its inputs."""
    if strategy not in get_args(Strategy):
        raise OptionError(f"strategy={strategy!r}: unknown value; write {', '.join(map(repr, get_args(Strategy)))}")
    splitter = _Splitter(sources, strategy, is_lateness_learned)
    splitter.stage(root)
    return splitter.stages


class _Splitter:
    """Follows a plan from its end to its sources."""

    def __init__(self, sources: int, strategy: Strategy, is_lateness_learned: Callable[[Operator], bool]) -> None:
        self._sources = sources
        self._strategy = strategy
        self._is_lateness_learned = is_lateness_learned
        self._known: list[tuple[Node, Stage]] = []
        self.stages: list[Stage] = []

    def stage(self, node: Node) -> Stage:
        """Return the stage that ends with a node; a node that is read twice has only one stage."""
        known = next((stage for other, stage in self._known if other == node), None)
        if known is not None:
            return known
        inputs: list[Stage] = []
        steps: list[str] = []
        root = self._inside(node, inputs, steps)
        name = "-".join([str(len(self.stages) + 1), *(steps or ["copy"])])[:60]
        stage = Stage(name, tuple(steps), tuple(inputs), root)
        self._known.append((node, stage))
        self.stages.append(stage)
        return stage

    def _inside(self, node: Node, inputs: list[Stage], steps: list[str]) -> Node:
        """Return a node over the sources of its stage, and add the stages that it reads to `inputs`."""
        if isinstance(node, Source):
            return node
        below = [self._input(node, child, inputs, steps) for child in node.inputs]
        if not isinstance(node, Watermark):  # a part of the aggregate after it
            steps.append(_STEPS.get(node.kind, node.kind))
        return node.with_inputs(below)

    def _input(self, node: Node, child: Node, inputs: list[Stage], steps: list[str]) -> Node:
        if isinstance(child, Source | Watermark) or not self._is_cut(node, child):
            return self._inside(child, inputs, steps)
        if isinstance(node, Aggregate | Watermark):
            self._check_stated(child)
        if node.stateful or isinstance(node, Watermark):
            _check_times(child)
        before = self.stage(child)
        if before not in inputs:
            inputs.append(before)
        return Source(self._sources + inputs.index(before), (before.name,))

    def _is_cut(self, node: Node, child: Node) -> bool:
        """Whether a stage ends between a node and its input."""
        if self._strategy != "subquery":
            return self._strategy == "operator"
        if isinstance(node, Watermark):
            return True
        if node.stateful:
            return not (isinstance(node, Aggregate) and _is_join(child))
        return len(node.inputs) > 1 and any(below.stateful for below in child.walk())

    def _check_stated(self, child: Node) -> None:
        """Raise if Spark would close windows over results with a learned lateness: it would silently drop rows."""
        if not isinstance(child, Operator) or not isinstance(child.spec, JoinSpec | AsofSpec):
            return
        if self._is_lateness_learned(child):
            raise OptionError(
                "strategy: the aggregate after a join needs a fixed lateness of the join's rows; set lateness= of the "
                "join for both streams ('0 seconds' for the result of another join), or deploy with the strategy "
                "'query' or 'subquery'"
            )


def _check_times(child: Node) -> None:
    """Refuse a stage that would have to know how late the smaller time of a join is: topics do not say it."""
    while isinstance(child, Filter | Project):
        if isinstance(child, Project) and child.times:
            raise OptionError(
                f"strategy: {child.times[0].name} is the smaller time of a join (time='min'), and a topic does not say "
                "how late it may be; deploy as a 'query', or write time='left'"
            )
        child = child.input


def _is_join(node: Node) -> bool:
    """Whether a node is a join, possibly with conditions that move into it."""
    while isinstance(node, Filter):
        node = node.input
    return isinstance(node, Operator) and isinstance(node.spec, JoinSpec)
