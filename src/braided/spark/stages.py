"""A query cut into stages, each a Spark query of its own: StreamCloud's three ways to lay a query out (III.A).

```
 where -> join -> where -> join -> aggregate -> select

 "query"      [where   join   where   join   aggregate   select]
 "operator"   [where] [join] [where] [join] [aggregate] [select]
 "subquery"   [where] [join   where] [join   aggregate   select]
```

A subquery is a stateful step with the stateless ones after it; stateless steps before the first stateful one are one of
their own. An aggregate that begins in a join's workers is part of the join.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, get_args

from braided.errors import OptionError
from braided.spark.query import Query, Step
from braided.spark.query_join import PendingJoin
from braided.spark.watermark import marks_of
from braided.time.lateness import Lateness

Strategy = Literal["query", "operator", "subquery"]
_Maker = Callable[[Sequence[Query]], Query]


@dataclass(frozen=True, eq=False)
class Stage:
    """A part of a query: its steps, the stages whose results it reads, and how it is made of them."""

    name: str
    steps: tuple[str, ...]
    inputs: tuple[Stage, ...]
    make: _Maker
    query: Query
    """What the user wrote, up to here."""


def split(query: Query, strategy: Strategy) -> list[Stage]:
    """Return the stages of a query, each after those that it reads."""
    if strategy not in get_args(Strategy):
        raise OptionError(f"strategy={strategy!r}: write {', '.join(map(repr, get_args(Strategy)))}")
    splitter = _Splitter(strategy)
    splitter.stage(query)
    return splitter.stages


class _Splitter:
    """Follows a query from its end to its sources."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._known: dict[int, Stage] = {}
        self.stages: list[Stage] = []

    def stage(self, query: Query) -> Stage:
        """Return the stage that ends with a query; what is read twice is made once."""
        if id(query) in self._known:
            return self._known[id(query)]
        inputs: list[Stage] = []
        steps: list[str] = []
        make = self._inside(query, inputs, steps)
        name = "-".join([str(len(self.stages) + 1), *(steps or ["copy"])])[:60]
        found = Stage(name, tuple(steps), tuple(inputs), make, query)
        self._known[id(query)] = found
        self.stages.append(found)
        return found

    def _inside(self, query: Query, inputs: list[Stage], steps: list[str]) -> _Maker:
        """Return how a query is made of the streams of the stages before its own, which are added to `inputs`."""
        step = query.step
        if step is None:
            return lambda streams: query
        makers = [self._input(step, given, inputs, steps) for given in step.inputs]
        steps.append(step.name)
        return lambda streams: step.make([maker(streams) for maker in makers])

    def _input(self, step: Step, given: Query, inputs: list[Stage], steps: list[str]) -> _Maker:
        if given.step is None or not self._is_cut(step, given):
            return self._inside(given, inputs, steps)
        before = self.stage(given)
        if before not in inputs:
            inputs.append(before)
        at = inputs.index(before)
        if not step.by_spark:
            return lambda streams: streams[at]
        _check_stated(given)
        return lambda streams: _with_lateness(streams[at])

    def _is_cut(self, step: Step, given: Query) -> bool:
        """Whether a stage ends between a step and what it is given."""
        if self._strategy != "subquery":
            return self._strategy == "operator"
        if step.stateful:
            return not (step.by_spark and isinstance(given.source, PendingJoin))
        return len(step.inputs) > 1 and _is_stateful(given)


def _is_stateful(query: Query) -> bool:
    step = query.step
    return step is not None and (step.stateful or any(map(_is_stateful, step.inputs)))


def _check_stated(given: Query) -> None:
    """Refuse to let Spark close windows by results whose lateness is learned: it would drop rows without a word."""
    pending = given.source
    if isinstance(pending, PendingJoin) and any(isinstance(r, Lateness) for r in pending.plan.operator.lateness):
        raise OptionError(
            "strategy: the aggregate after a join needs to know how late the join's rows may be; give the join a "
            "lateness= for both streams, '0 seconds' for the result of another join, or deploy it as a 'query' or by "
            "'subquery'"
        )


def _with_lateness(stream: Query) -> Query:
    """Return a stream for Spark's own aggregate, with what an operator before it says of its rows' lateness."""
    if stream.lateness is not None or stream.time is None:
        return stream
    assert not isinstance(stream.source, PendingJoin)
    delay = marks_of(stream.source.schema[stream.time].metadata or {}).delay
    return stream if delay is None else Query(stream.source, stream.time, timedelta(microseconds=delay))
