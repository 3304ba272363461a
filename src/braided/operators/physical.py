"""A plan: what an operator is built from, what it propagates, and what a runtime must know to run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from braided.operators.spec import Spec
from braided.operators.stream import Stream, TimeMarks
from braided.runtime.contract import Operator
from braided.time.clocks import GroupSpan, Span, Window
from braided.time.propagated_delay import PropagatedDelay
from braided.typing import Keys


@dataclass(frozen=True)
class EngineFeatures:
    """What the runtime that will run a plan can do.

    adaptive : the routing may change while it runs.
    filters : it can evaluate a predicate on whole pairs after the join.
    ansi : it evaluates predicates by ANSI rules, as the compiled ones do.
    ends : its inputs end, as tables do.
    """

    adaptive: bool = False
    filters: bool = False
    ansi: bool = True
    ends: bool = True


@dataclass(frozen=True)
class InputColumn:
    """A result column that is taken from a stream, with the marks of its times."""

    name: str
    stream: int
    source: str
    marks: TimeMarks | None = None
    nullable: bool = False
    """Whether it may be null although the stream's column may not."""


@dataclass(frozen=True)
class ComputedColumn:
    """A result column that the operator computes."""

    name: str
    kind: pa.DataType
    nullable: bool = False


@dataclass(frozen=True)
class Nested:
    """A result column that holds the columns of one join of a group."""

    name: str
    columns: tuple[InputColumn, ...]


Column = InputColumn | ComputedColumn | Nested


@dataclass(frozen=True)
class Residual:
    """A predicate that the runtime evaluates on whole pairs. The operator then returns more columns than the result."""

    where: str
    why: str
    columns: tuple[InputColumn, ...]
    """The operator's own result: every column of both streams."""


class Described(Protocol):
    """The description of a join, and what a controller must know about it."""

    @property
    def window(self) -> Window | Span | GroupSpan:
        """How long rows can match."""

    @property
    def most_columns(self) -> int | None:
        """How many columns a grid may have; None: any number."""

    @property
    def home(self) -> int | None:
        """The stream whose rows have one home, so that only this stream can be split; None: any stream can."""

    def describe(self) -> str:
        """Return a description of the join."""


@dataclass(frozen=True)
class Plan:
    """A built operator: what runs, the columns of its result with their marks, and what it requires of its runtime."""

    spec: Spec
    streams: tuple[Stream, ...]
    operator: Operator
    times: tuple[str, ...]
    watermark_delays: tuple[int, ...]
    """How long the watermark of each input must wait for results."""
    columns: tuple[Column, ...]
    joined: Described | None = None
    """The join whose routing a controller may change; None if the routing never changes."""
    scheme: str = "hash"
    keyed: bool = True
    fixed: str | None = None
    """Why the routing cannot adapt; None where it can."""
    waits: bool = False
    """Whether rows wait to be put in order, so that the end of the streams must release them."""
    description: str | None = None
    """A description of what it does, if it is neither a join nor an order."""
    propagated_delay: PropagatedDelay | None = None
    residual: Residual | None = None

    @property
    def unchosen(self) -> list[int]:
        """The streams of a join whose lateness is not set, neither by an option nor by a watermark or an operator."""
        lateness = getattr(self.spec, "lateness", None)
        each = lateness if isinstance(lateness, tuple) else (lateness,) * len(self.streams)
        return [
            at
            for at, (stream, time, rule) in enumerate(zip(self.streams, self.times, each, strict=True))
            if self.joined is not None and rule is None and stream.marks_of(time) == TimeMarks()
        ]

    def as_stream(self, label: str) -> Stream:
        """Return the result as the input of another spec, with the time marks that it propagates."""
        plain = [column for column in self.columns if isinstance(column, InputColumn)]
        marks = {column.name: column.marks for column in plain if column.marks is not None}
        kinds = {column.name: self.streams[column.stream].schema.field(column.source).type for column in plain} | {
            column.name: column.kind for column in self.columns if isinstance(column, ComputedColumn)
        }
        fields = [
            pa.field(column.name, pa.struct(list(self.operator.output.field(column.name).type)))
            if isinstance(column, Nested)
            else pa.field(column.name, kinds[column.name])
            for column in self.columns
        ]
        sensitive = any(stream.case_sensitive for stream in self.streams)
        collated = {c.name for c in plain if c.source in self.streams[c.stream].collated}
        return Stream(label, pa.schema(fields), marks, frozenset(collated), sensitive)


def describe(plan: Plan) -> str:
    """Return a description of what a plan does."""
    if plan.joined is not None:
        return plan.joined.describe()
    if plan.description is not None:
        return plan.description
    inputs = "a stream" if len(plan.streams) == 1 else f"{len(plan.streams)} streams"
    return f"puts {inputs} in order of {plan.times[0]}, {per_key(getattr(plan.spec, 'key', None))}"


def per_key(key: Keys) -> str:
    """Return a description of the groups of rows that are put in order."""
    return "as a whole" if key is None else f"per {key if isinstance(key, str) else ', '.join(key)}"


def watermark_after(marks: TimeMarks, delay: int) -> int | None:
    """Return a watermark's delay after it was lengthened for results that are `delay` behind."""
    return None if marks.watermark is None else max(marks.watermark, -(-delay // 1000) * 1000)
