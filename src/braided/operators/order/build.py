"""Building the operator that puts streams in order."""

from __future__ import annotations

import pyarrow as pa

from braided.errors import OptionError
from braided.operators.order.order_operator import LATE, SEQ, OrderOperator
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import Column, ComputedColumn, EngineFeatures, InputColumn, Plan, watermark_after
from braided.operators.stream import Stream, TimeMarks
from braided.time.resolve import are_fixed, least, resolve_idle, resolve_rules


def build_order(spec: OrderSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    schema = streams[0].schema
    for number, stream in enumerate(streams[1:], 1):
        if not stream.schema.equals(schema):
            raise OptionError(
                f"inputs: number {number} has columns {_schema_text(stream.schema)}, number 0 has "
                f"{_schema_text(schema)}; select the same columns in the same order"
            )
    time = streams[0].time_column(spec.time)
    keys = streams[0].key_columns(spec.key)
    given_rules = resolve_rules(spec.lateness, len(streams), floor=0)
    rules = tuple(
        stream.marks_of(time).waiting_lateness(rule) for stream, rule in zip(streams, given_rules, strict=True)
    )
    hasher, idle = streams[0].hasher(keys), resolve_idle(spec.idle)
    operator = OrderOperator(schema, len(streams), time, keys, hasher, rules, spec.late != "drop", idle)
    added = [ComputedColumn(SEQ, pa.int64())] if not keys else []
    added += [ComputedColumn(LATE, pa.bool_())] if operator.flagged else []
    for column in added:
        if column.name in [name.lower() for name in schema.names]:
            raise OptionError(f"column {column.name!r}: the result already has a column of that name; rename it")
    watermark_delays = tuple(
        max(stream.marks_of(time).watermark_delay, least(rule)) for stream, rule in zip(streams, rules, strict=True)
    )
    first = streams[0]
    watermark = watermark_after(first.marks_of(time), max(watermark_delays))
    exact = are_fixed(rules)
    after = TimeMarks(0 if exact else None, max(watermark_delays), watermark, exact, offsets=(0, 0))
    columns: tuple[Column, ...] = (
        *(InputColumn(name, 0, name, _marks_after(streams, name, time, after)) for name in schema.names),
        *added,
    )
    return Plan(
        spec,
        streams,
        operator,
        (time,) * len(streams),
        watermark_delays,
        columns,
        fixed="rows of a key wait for each other on one worker",
        waits=True,
    )


def _marks_after(streams: tuple[Stream, ...], column: str, time: str, after: TimeMarks) -> TimeMarks | None:
    """Return the marks of a column; of several streams only the common time has any."""
    known = len(streams) == 1 or column == time
    return streams[0].marks_after(column, time, after) if known else None


def _schema_text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
