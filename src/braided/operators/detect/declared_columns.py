"""Columns as a detector declares them: text such as ``"time timestamp, player int"`` read as an Arrow schema."""

from __future__ import annotations

import re

import pyarrow as pa

from braided.errors import OptionError

_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
}
_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s+(\w+)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*")


def read_columns(columns: object, where: str, moment: pa.DataType) -> pa.Schema:
    """Return the columns that text, or an Arrow schema, declares; `moment` is the type of a ``timestamp``.

    >>> read_columns("time timestamp, price decimal(9, 2)", "schema", pa.timestamp("us")).names
    ['time', 'price']
    """
    if isinstance(columns, pa.Schema):
        fields = [pa.field(field.name, field.type) for field in columns]
    elif isinstance(columns, str):
        fields = [_column(part, where, moment) for part in re.split(r",(?![^(]*\))", columns) if part.strip()]
    else:
        raise OptionError(f"{where}={columns!r}: write text such as 'time timestamp, player int', or a pyarrow.Schema")
    names = [field.name.lower() for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"{where}={columns!r}: has two columns {name!r}; name each once")
    return pa.schema(fields)


def _column(text: str, where: str, moment: pa.DataType) -> pa.Field:
    match = _COLUMN.fullmatch(text)
    if not match:
        raise OptionError(f"{where}: {text.strip()!r}: not a column; write a name and a type, such as 'player int'")
    name, kind = match[1].strip("`"), match[2].lower()
    if kind in ("decimal", "numeric"):
        return pa.field(name, pa.decimal128(int(match[3] or 10), int(match[4] or 0)))
    if kind == "timestamp" and not match[3]:
        return pa.field(name, moment)
    if kind not in _TYPES or match[3]:
        known = ", ".join(sorted([*_TYPES, "decimal", "timestamp"]))
        raise OptionError(f"{where}: {text.strip()!r}: unknown type; write one of {known}, or give a pyarrow.Schema")
    return pa.field(name, _TYPES[kind])


def fits(kind: pa.DataType, expected: pa.DataType) -> bool:
    """Whether a column of one type may stand for one of another, if its values fit."""
    if kind == expected or pa.types.is_null(kind):
        return True
    numbers = (pa.types.is_integer, pa.types.is_floating)
    texts = (pa.types.is_string, pa.types.is_large_string)
    return (
        (pa.types.is_integer(kind) and any(test(expected) for test in numbers))
        or (pa.types.is_floating(kind) and pa.types.is_floating(expected))
        or (pa.types.is_timestamp(kind) and pa.types.is_timestamp(expected))
        or (any(test(kind) for test in texts) and any(test(expected) for test in texts))
    )


def schema_text(schema: pa.Schema) -> str:
    """Return columns as text for a message."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)
