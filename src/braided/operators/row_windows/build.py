"""Building the operator that aggregates windows of a number of rows."""

from __future__ import annotations

import pyarrow as pa

from braided.errors import OptionError
from braided.operators.match.operator import MatchOperator
from braided.operators.physical import Column, ComputedColumn, EngineFeatures, InputColumn, Plan, per_key
from braided.operators.row_windows.row_windows import RowValue, RowWindows
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.stream import Stream
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.runtime.contract import Json
from braided.time.resolve import least, resolve_rule


def build_row_windows(spec: RowWindowsSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    """Return the plan of windows of a number of rows over a stream."""
    (stream,) = streams
    time = stream.time_column(spec.time)
    names = () if spec.key is None else (spec.key,) if isinstance(spec.key, str) else tuple(spec.key)
    keys = tuple(stream.key_column(name, "key") for name in names)
    if len({*keys, time}) <= len(keys):
        raise OptionError(f"key={spec.key!r}: names a column twice, or the time; name each once")
    values = tuple(_value(name, *called, stream) for name, called in spec.called().items())
    for value in values:
        if value.name.lower() in [name.lower() for name in (*keys, time)]:
            raise OptionError(f"{value.name}=: the result has a column of that name already; choose another")
    marks = stream.marks_of(time)
    if isinstance(spec.lateness, list | tuple):
        raise OptionError(f"lateness={spec.lateness!r}: write one for the input")
    given = None if spec.lateness is None else resolve_rule(spec.lateness, 0)
    if given is None and (marks.delay is not None or marks.watermark is None):
        given = resolve_rule("auto", 0)
    rule = marks.lateness(given)
    kinds = tuple(common_key_type(stream.schema.field(n).type, stream.schema.field(n).type, (n, n)) for n in keys)
    windows = RowWindows(stream.schema, time, keys, spec.rows, spec.slide, values, spec.forget_us())
    meaning: Json = {"rows": spec.rows, "every": spec.slide, "forget": spec.forget_us()}
    # A window's first row may be of any age: its time has no marks that another operator could rely on.
    columns: list[Column] = [InputColumn(name, 0, name) for name in (*keys, time)]
    columns += [ComputedColumn(value.name, value.type, nullable=True) for value in values]
    return Plan(
        spec,
        streams,
        MatchOperator(stream.schema, time, KeyHasher(kinds), rule, windows, meaning),
        (time,),
        (max(marks.behind, least(rule)),),
        tuple(columns),
        fixed="a window needs the rows of its key on one worker",
        waits=True,
        words=f"aggregates windows of {spec.rows} rows, every {spec.slide}, in order of {time}, {per_key(spec.key)}",
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
