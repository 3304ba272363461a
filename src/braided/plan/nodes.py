"""The nodes of a logical plan: immutable and comparable, with a JSON form. Every front end makes only such nodes.

```
 Aggregate window 1 minute by cell: n = count(*)
 +- Filter n > 10
    +- Join on phone, time ts, within 10 seconds
       +- Source 0: phone, ts, n
       +- Source 1: phone, ts, cell
```

A `Source` is only a number. Its data, a DataFrame or Arrow data, is in the `LogicalPlan` and not in the nodes, so two
plans that were written in the same way are equal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from braided.durations import format_duration
from braided.operators.spec import Spec
from braided.typing import Control, Json

S = TypeVar("S")


@dataclass(frozen=True)
class Node:
    """One step of a query over the rows of its inputs."""

    kind: ClassVar[str]
    stateful: ClassVar[bool] = False
    """Whether the node stores rows."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes of the input rows."""
        return ()

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the node over other inputs."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return the node as one line of text."""
        raise NotImplementedError

    def options(self) -> Json:
        """Return the node without its inputs, as plain JSON."""
        raise NotImplementedError

    def to_json(self) -> Json:
        """Return the tree as plain JSON."""
        inputs = {"inputs": [node.to_json() for node in self.inputs]} if self.inputs else {}
        return {"kind": self.kind, **self.options(), **inputs}

    def walk(self) -> Iterator[Node]:
        """Yield the node and all nodes below it, each after its inputs."""
        for node in self.inputs:
            yield from node.walk()
        yield self

    def __str__(self) -> str:
        return "\n".join(_lines(self, "", ""))


@dataclass(frozen=True)
class _OneInput(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the node over another input."""
        [node] = inputs
        return dataclasses.replace(self, input=node)


@dataclass(frozen=True)
class Source(Node):
    """An input stream of the query."""

    kind: ClassVar[str] = "source"
    number: int
    columns: tuple[str, ...]

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the source itself."""
        assert not inputs
        return self

    def describe(self) -> str:
        """Return its number and columns."""
        return f"Source {self.number}: {', '.join(self.columns)}"

    def options(self) -> Json:
        """Return its number and columns."""
        return {"number": self.number, "columns": list(self.columns)}


@dataclass(frozen=True)
class SmallerTime:
    """The smaller of two times of a join's results, as a column with the marks of both.

    further : how much further behind the largest of its own column it may be than the two are behind theirs, in
        microseconds.

    >>> SmallerTime("ts", "ts_right", "ts_min").expression
    'least(`ts`, `ts_right`)'
    """

    left: str
    right: str
    name: str
    further: int = 0

    @property
    def expression(self) -> str:
        """The column as SQL; a time that is null does not count."""
        left, right = (name.replace("`", "``") for name in (self.left, self.right))
        return f"least(`{left}`, `{right}`)"


@dataclass(frozen=True)
class Project(_OneInput):
    """Selected and computed columns: names, ``*``, or SQL expressions with ``AS``; then the smaller times."""

    kind: ClassVar[str] = "project"
    expressions: tuple[str, ...]
    times: tuple[SmallerTime, ...] = ()

    @property
    def texts(self) -> list[str]:
        """All columns as SQL expressions."""
        return [*self.expressions, *(f"{time.expression} AS `{time.name.replace('`', '``')}`" for time in self.times)]

    def describe(self) -> str:
        """Return the expressions."""
        return f"Project {', '.join(self.texts)}"

    def options(self) -> Json:
        """Return the expressions."""
        return {"expressions": self.texts}


@dataclass(frozen=True)
class Filter(_OneInput):
    """The rows that satisfy a condition in SQL."""

    kind: ClassVar[str] = "filter"
    condition: str

    def describe(self) -> str:
        """Return the condition."""
        return f"Filter {self.condition}"

    def options(self) -> Json:
        """Return the condition."""
        return {"condition": self.condition}


@dataclass(frozen=True)
class Watermark(_OneInput):
    """Rows with a watermark on a time column, by which Spark's own operators close windows."""

    kind: ClassVar[str] = "watermark"
    column: str
    delay: int
    """In microseconds."""

    def describe(self) -> str:
        """Return the column and the delay."""
        return f"Watermark {self.column}, {format_duration(self.delay)}"

    def options(self) -> Json:
        """Return the column and the delay."""
        return {"column": self.column, "delay": self.delay}


@dataclass(frozen=True)
class WithoutWatermark(_OneInput):
    """Rows without the watermark of their stream on a column; the next operator has it as its lateness."""

    kind: ClassVar[str] = "without_watermark"
    column: str

    def describe(self) -> str:
        """Return the column."""
        return f"WithoutWatermark {self.column}"

    def options(self) -> Json:
        """Return the column."""
        return {"column": self.column}


@dataclass(frozen=True)
class Union(Node):
    """The rows of all inputs, which have the same columns."""

    kind: ClassVar[str] = "union"
    streams: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams."""
        return self.streams

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the union of other inputs."""
        return Union(tuple(inputs))

    def describe(self) -> str:
        """Return the name."""
        return "Union"

    def options(self) -> Json:
        """Return nothing: a union has no options."""
        return {}


@dataclass(frozen=True)
class Operator(Node):
    """A stateful operator of Braided: a join, multijoin, order, row windows, match or another kind, by its spec.

    name : its name in reports and events.
    control, redact : where its routing tables are, and whether they have no values of keys.
    """

    stateful: ClassVar[bool] = True
    spec: Spec
    streams: tuple[Node, ...]
    name: str | None = None
    control: Control = None
    redact: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams, in the order of the spec."""
        return self.streams

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The kind of the spec."""
        return self.spec.kind

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Return the operator over other inputs."""
        return dataclasses.replace(self, streams=tuple(inputs))

    def describe(self) -> str:
        """Return the options that the user set."""
        options = {name: value for name, value in self.spec.to_json().items() if name != "kind"}
        kind = self.kind.replace("_", " ").capitalize()
        return f"{kind} {', '.join(f'{name}={value!r}' for name, value in options.items())}"

    def options(self) -> Json:
        """Return the options that the user set."""
        around = {"name": self.name, "control": None if self.control is None else str(self.control)}
        named = {name: value for name, value in around.items() if value is not None}
        return {**self.spec.to_json(), **named, **({"redact": True} if self.redact else {})}


@dataclass(frozen=True)
class Aggregate(_OneInput):
    """An aggregate over windows of time: for each window and group, one aggregate per value.

    by : pairs (name, column or SQL expression) to group by, in addition to the window.
    time : the time column of the windows.
    size, slide, offset : those of the windows, in microseconds.
    values : pairs (name, SQL aggregate).
    in_workers : whether it begins in the workers of the join below, so that pairs never leave them.
    """

    kind: ClassVar[str] = "aggregate"
    stateful: ClassVar[bool] = True
    by: tuple[tuple[str, str], ...]
    time: str
    size: int
    slide: int
    values: tuple[tuple[str, str], ...]
    offset: int = 0
    in_workers: bool = False

    def describe(self) -> str:
        """Return its window, groups and values."""
        every = "" if self.slide == self.size else f" every {format_duration(self.slide)}"
        every += f" from {format_duration(self.offset)}" if self.offset else ""
        by = f" by {', '.join(text for _, text in self.by)}" if self.by else ""
        values = ", ".join(f"{name} = {text}" for name, text in self.values)
        where = ", which begins in the workers of the join" if self.in_workers else ""
        return f"Aggregate {self.time} in windows of {format_duration(self.size)}{every}{by}: {values}{where}"

    def options(self) -> Json:
        """Return all fields."""
        window = {"time": self.time, "size": self.size, "slide": self.slide, "offset": self.offset}
        return {"by": dict(self.by), **window, "values": dict(self.values), "in_workers": self.in_workers}


@dataclass(frozen=True)
class LogicalPlan(Generic[S]):
    """A tree of nodes, and the data of its sources."""

    root: Node
    sources: tuple[S, ...] = field(default=(), compare=False, repr=False)

    def then(self, make: Callable[[Node], Node]) -> LogicalPlan[S]:
        """Return the plan with one more node on top."""
        return LogicalPlan(make(self.root), self.sources)

    def __str__(self) -> str:
        return str(self.root)


def plan_of_source(data: S, columns: Sequence[str]) -> LogicalPlan[S]:
    """Return the plan of an input stream."""
    return LogicalPlan(Source(0, tuple(columns)), (data,))


def combine(plans: Sequence[LogicalPlan[S]], make: Callable[[tuple[Node, ...]], Node]) -> LogicalPlan[S]:
    """Return one plan over several plans; sources with the same object become one source."""
    sources: list[S] = []
    roots = []
    known: dict[tuple[int, tuple[int, ...]], Node] = {}
    for plan in plans:
        numbers = []
        for data in plan.sources:
            at = next((at for at, known in enumerate(sources) if known is data), None)
            if at is None:
                sources.append(data)
                at = len(sources) - 1
            numbers.append(at)
        roots.append(_renumber(plan.root, tuple(numbers), known))
    return LogicalPlan(make(tuple(roots)), tuple(sources))


def _renumber(node: Node, numbers: tuple[int, ...], known: dict[tuple[int, tuple[int, ...]], Node]) -> Node:
    """Return a tree with new numbers of sources; a node that is read twice stays a single node."""
    key = id(node), numbers
    if key not in known:
        if isinstance(node, Source):
            number = numbers[node.number]
            known[key] = node if number == node.number else dataclasses.replace(node, number=number)
        else:
            inputs = [_renumber(child, numbers, known) for child in node.inputs]
            same = all(new is old for new, old in zip(inputs, node.inputs, strict=True))
            known[key] = node if same else node.with_inputs(inputs)
    return known[key]


def _lines(node: Node, first: str, others: str) -> list[str]:
    lines = [first + node.describe()]
    for child in node.inputs:
        lines += _lines(child, f"{others}+- ", f"{others}   ")
    return lines
