"""Operators for tests, built as users' are: by a spec over streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from braided.operators.bounded.group_spec import GroupSpec, Join
from braided.operators.bounded.join_group import JoinGroup
from braided.operators.join.spec import JoinSpec
from braided.operators.join.window_join import WindowJoin
from braided.operators.multijoin.multijoin import MultiJoin
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.order.order_operator import OrderOperator
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.time.clocks import Span, Window


def micros(count: int) -> str:
    return f"{count} us"


def _streams(spec: Any, schemas: Sequence[pa.Schema]) -> list[Stream]:
    return [Stream(label, schema) for label, schema in zip(spec.labels, schemas, strict=True)]


def join_operator(
    schemas: pa.Schema | Sequence[pa.Schema],
    window: Window,
    *,
    on: Any = "k",
    time: str = "t",
    suffixes: tuple[str, str] = ("", "_r"),
    lateness: Any = None,
    **options: Any,
) -> WindowJoin:
    """A join of two streams, of one schema or two, with a window in microseconds."""
    spec = JoinSpec(
        on=on,
        time=time,
        between=(micros(window.lo), micros(window.hi)),
        lateness=tuple(map(micros, window.lateness)) if lateness is None else lateness,
        suffixes=suffixes,
        **options,
    )
    both = (schemas, schemas) if isinstance(schemas, pa.Schema) else schemas
    operator = build(spec, _streams(spec, both)).operator
    assert isinstance(operator, WindowJoin)
    return operator


def multijoin_operator(schema: pa.Schema, streams: int, window: Span, *, adaptive: bool = False) -> MultiJoin:
    """A join of so many streams of one schema."""
    spec = MultiJoinSpec(
        streams=streams,
        on="k",
        time="t",
        within=micros(window.within),
        lateness=tuple(map(micros, window.lateness)),
    )
    operator = build(spec, _streams(spec, [schema] * streams), EngineFeatures(adaptive=adaptive)).operator
    assert isinstance(operator, MultiJoin)
    return operator


def group_operator(
    joins: Sequence[Join],
    streams: Sequence[str],
    schema: pa.Schema,
    lateness: Sequence[int],
    memory: Any,
    evict: Any,
    *,
    adaptive: bool = False,
) -> JoinGroup:
    """Several joins of streams of one schema under one budget."""
    spec = GroupSpec(
        streams=tuple(streams),
        joins=joins,
        time="t",
        memory=memory,
        evict=evict,
        lateness=dict(zip(streams, map(micros, lateness), strict=True)),
    )
    plan = build(spec, _streams(spec, [schema] * len(streams)), EngineFeatures(adaptive=adaptive))
    assert isinstance(plan.operator, JoinGroup)
    return plan.operator


def ordering_operator(
    schemas: Sequence[pa.Schema], time: str, key: Any, lateness: Any, late: Any = "flag", idle: Any = None
) -> OrderOperator:
    """Streams of one schema in order."""
    given = micros(lateness) if isinstance(lateness, int) else lateness
    spec = OrderSpec(inputs=len(schemas), time=time, key=key, lateness=given, late=late, idle=idle)
    operator = build(spec, _streams(spec, schemas)).operator
    assert isinstance(operator, OrderOperator)
    return operator
