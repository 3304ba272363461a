"""Building the operator that aggregates windows of a number of rows."""

from __future__ import annotations

import pyarrow as pa

from braided.errors import OptionError
from braided.operators.match.match_operator import MatchOperator
from braided.operators.physical import Column, ComputedColumn, EngineFeatures, InputColumn, Plan, per_key
from braided.operators.row_windows.row_windows import RowValue, RowWindows
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.stream import Stream
from braided.runtime.contract import Json
from braided.time.resolve import least, one_lateness


def build_row_windows(spec: RowWindowsSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    (stream,) = streams
    time = stream.time_column(spec.time)
    keys = stream.key_columns(spec.key)
    if len({*keys, time}) <= len(keys):
        raise OptionError(f"key={spec.key!r}: names a column twice, or the time; name each once")
    values = tuple(_value(name, *called, stream) for name, called in spec.called().items())
    for value in values:
        if value.name.lower() in [name.lower() for name in (*keys, time)]:
            raise OptionError(f"{value.name}=: the result already has a column of that name; choose another")
    marks = stream.marks_of(time)
    rule = marks.waiting_lateness(one_lateness(spec.lateness))
    windows = RowWindows(stream.schema, time, keys, spec.rows, spec.slide, values, spec.forget_us())
    meaning: Json = {"rows": spec.rows, "every": spec.slide, "forget": spec.forget_us()}
    # A window's first row may have any age, so its time has no marks.
    columns: list[Column] = [InputColumn(name, 0, name) for name in (*keys, time)]
    columns += [ComputedColumn(value.name, value.type, nullable=True) for value in values]
    return Plan(
        spec,
        streams,
        MatchOperator(stream.schema, time, stream.hasher(keys), rule, windows, meaning),
        (time,),
        (max(marks.watermark_delay, least(rule)),),
        tuple(columns),
        fixed="a window needs the rows of its key on one worker",
        waits=True,
        description=f"aggregates windows of {spec.rows} rows, every {spec.slide}, in order of {time}, "
        f"{per_key(spec.key)}",
    )


def _value(name: str, kind: str, column: str | None, stream: Stream) -> RowValue:
    if column is None:
        return RowValue(name, kind, None, pa.int64())
    source = stream.find(column, name)
    of = stream.schema.field(source).type
    whole, real = pa.types.is_signed_integer(of), pa.types.is_float32(of) or pa.types.is_float64(of)
    if kind == "count":
        return RowValue(name, kind, source, pa.int64())
    if kind in ("min", "max"):
        if not (whole or real or pa.types.is_timestamp(of) or pa.types.is_date32(of)):
            raise OptionError(f"{name}: {kind} of {of} is not supported; cast it to a number or a time before")
        return RowValue(name, kind, source, of)
    if not (whole or real):
        raise OptionError(f"{name}: {kind} of {of} is not supported; cast it to bigint or double before")
    return RowValue(name, kind, source, pa.int64() if kind == "sum" and whole else pa.float64())
