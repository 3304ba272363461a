"""Building the operator that puts streams in order."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from braided.errors import OptionError
from braided.operators.order.operator import LATE, SEQ, OrderOperator
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import Column, ComputedColumn, EngineFeatures, InputColumn, Plan, watermark_after
from braided.operators.stream import Stream, TimeMarks
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.time.lateness import Lateness
from braided.time.resolve import least, resolve_idle, resolve_rule, resolve_rules


def build_order(spec: OrderSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    """Return the plan of one or several streams in order."""
    schema = streams[0].schema
    for number, stream in enumerate(streams[1:], 1):
        if not stream.schema.equals(schema):
            raise OptionError(
                f"inputs: number {number} has columns {_shown(stream.schema)}, number 0 has {_shown(schema)}; "
                "select the same columns in the same order"
            )
    time = streams[0].time_column(spec.time)
    keys = () if spec.key is None else (spec.key,) if isinstance(spec.key, str) else tuple(spec.key)
    keys = tuple(streams[0].key_column(name, "key") for name in keys)
    given = resolve_rules(spec.lateness, len(streams), floor=0)
    rules = tuple(_of_stream(stream.marks_of(time), rule) for stream, rule in zip(streams, given, strict=True))
    operator = ordering(schema, len(streams), time, keys, rules, flagged=spec.late != "drop", idle=spec.idle)
    made = [ComputedColumn(SEQ, pa.int64())] if not keys else []
    made += [ComputedColumn(LATE, pa.bool_())] if operator.flagged else []
    for column in made:
        if column.name in [name.lower() for name in schema.names]:
            raise OptionError(f"column {column.name!r}: the result has one of that name; rename it")
    behind = tuple(max(stream.marks_of(time).behind, least(rule)) for stream, rule in zip(streams, rules, strict=True))
    marks = TimeMarks(None, max(behind), watermark_after(streams[0].marks_of(time), max(behind)))
    columns: tuple[Column, ...] = (
        *(InputColumn(name, 0, name, marks if name == time else None) for name in schema.names),
        *made,
    )
    return Plan(
        spec,
        streams,
        operator,
        (time,) * len(streams),
        behind,
        columns,
        fixed="rows of a key wait for each other on one worker",
        waits=True,
    )


def ordering(
    schema: pa.Schema,
    streams: int,
    time: str,
    keys: Sequence[str],
    rules: Sequence[int | Lateness],
    *,
    flagged: bool = True,
    idle: object = None,
) -> OrderOperator:
    """Assemble the operator."""
    for name in keys:
        if pa.types.is_nested(schema.field(name).type):
            raise OptionError(f"key={name!r}: a column of type {schema.field(name).type} cannot be a key")
    kinds = tuple(common_key_type(schema.field(n).type, schema.field(n).type, (n, n)) for n in keys)
    return OrderOperator(
        schema, streams, time, tuple(keys), KeyHasher(kinds), tuple(rules), flagged, resolve_idle(idle)
    )


def _of_stream(marks: TimeMarks, given: int | Lateness | None) -> int | Lateness:
    """Return an input's lateness. A learned one has no floor: every row of `order` would wait for it."""
    if given is None and (marks.delay is not None or marks.watermark is None):
        given = resolve_rule("auto", 0)
    return marks.lateness(given)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
