"""A plan: what an operator is built from, what it hands on, and all that a runtime must know to run it."""

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
    ends : its rows come to an end, as those of a table do.
    """

    adaptive: bool = False
    filters: bool = False
    ansi: bool = True
    ends: bool = True


@dataclass(frozen=True)
class InputColumn:
    """A result column that is a stream's, with the marks of its times."""

    name: str
    stream: int
    source: str
    marks: TimeMarks | None = None
    nullable: bool = False
    """Whether it may be null although the stream's is not."""


@dataclass(frozen=True)
class ComputedColumn:
    """A result column that the operator makes."""

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
    """A predicate that the runtime evaluates on whole pairs; what the operator gives is then wider than the result."""

    where: str
    why: str
    columns: tuple[InputColumn, ...]
    """The operator's own result: every column of both streams."""


class Described(Protocol):
    """A join as people would say it, and as a controller must know it."""

    @property
    def window(self) -> Window | Span | GroupSpan:
        """How long rows can match."""

    @property
    def most_columns(self) -> int | None:
        """How many columns a grid may have; None: any number."""

    @property
    def home(self) -> int | None:
        """The stream whose rows have one home, so that it alone can be split; None: any."""

    def describe(self) -> str:
        """Return the join as people would say it."""


@dataclass(frozen=True)
class Plan:
    """One operator, built: what runs, its result's columns with their marks, and what it asks of its runtime."""

    spec: Spec
    streams: tuple[Stream, ...]
    operator: Operator
    times: tuple[str, ...]
    watermark_delays: tuple[int, ...]
    """How long the watermark of each input must wait for results."""
    columns: tuple[Column, ...]
    joined: Described | None = None
    """The join that a controller may lay out anew; None for what stays where it is."""
    scheme: str = "hash"
    keyed: bool = True
    fixed: str | None = None
    """Why the routing cannot adapt; None where it can."""
    waits: bool = False
    """Whether rows wait to be put in order, so that the end must let them go."""
    description: str | None = None
    """What it does, as people would say it, where it is neither a join nor an order."""
    propagated_delay: PropagatedDelay | None = None
    residual: Residual | None = None

    @property
    def unchosen(self) -> list[int]:
        """The streams of a join whose lateness nobody chose: neither given, nor by a watermark, nor handed on."""
        lateness = getattr(self.spec, "lateness", None)
        each = lateness if isinstance(lateness, tuple) else (lateness,) * len(self.streams)
        return [
            at
            for at, (stream, time, rule) in enumerate(zip(self.streams, self.times, each, strict=True))
            if self.joined is not None and rule is None and stream.marks_of(time) == TimeMarks()
        ]

    def as_stream(self, label: str) -> Stream:
        """Return the result as the input of a further spec: what is handed on travels with it."""
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
    """Return what a plan does as people would say it."""
    if plan.joined is not None:
        return plan.joined.describe()
    if plan.description is not None:
        return plan.description
    inputs = "a stream" if len(plan.streams) == 1 else f"{len(plan.streams)} streams"
    return f"puts {inputs} in order of {plan.times[0]}, {per_key(getattr(plan.spec, 'key', None))}"


def per_key(key: Keys) -> str:
    """Return within what rows are in order, as people would say it."""
    return "as a whole" if key is None else f"per {key if isinstance(key, str) else ', '.join(key)}"


def watermark_after(marks: TimeMarks, delay: int) -> int | None:
    """Return the delay that a watermark has after it was lengthened for results so far behind."""
    return None if marks.watermark is None else max(marks.watermark, -(-delay // 1000) * 1000)
