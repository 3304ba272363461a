"""Spark's types in Arrow and back. PySpark's own functions for this are private, and differ from version to version."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import types as T

from braided.errors import OptionError

# By the names of their classes, since not every version has every class.
_ARROW: dict[str, pa.DataType] = {
    "BooleanType": pa.bool_(),
    "ByteType": pa.int8(),
    "ShortType": pa.int16(),
    "IntegerType": pa.int32(),
    "LongType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "StringType": pa.string(),
    "CharType": pa.string(),
    "VarcharType": pa.string(),
    "BinaryType": pa.binary(),
    "DateType": pa.date32(),
    "TimestampType": pa.timestamp("us", tz="UTC"),
    "TimestampNTZType": pa.timestamp("us"),
    "DayTimeIntervalType": pa.duration("us"),
    "TimeType": pa.time64("ns"),
    "NullType": pa.null(),
    # By the mark on the second field Spark distinguishes a variant from any other struct.
    "VariantType": pa.struct(
        [
            pa.field("value", pa.binary(), nullable=False),
            pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
        ]
    ),
}
_SPARK: list[tuple[Callable[[pa.DataType], bool], Callable[[], T.DataType]]] = [
    (pa.types.is_boolean, T.BooleanType),
    (pa.types.is_int8, T.ByteType),
    (pa.types.is_int16, T.ShortType),
    (pa.types.is_int32, T.IntegerType),
    (pa.types.is_int64, T.LongType),
    (pa.types.is_float32, T.FloatType),
    (pa.types.is_float64, T.DoubleType),
    (pa.types.is_string, T.StringType),
    (pa.types.is_large_string, T.StringType),
    (pa.types.is_binary, T.BinaryType),
    (pa.types.is_large_binary, T.BinaryType),
    (pa.types.is_fixed_size_binary, T.BinaryType),
    (pa.types.is_date32, T.DateType),
    (pa.types.is_duration, T.DayTimeIntervalType),
    (pa.types.is_time64, lambda: T.TimeType()),  # noqa: PLW0108  (Spark 4.0 has none)
    (pa.types.is_null, T.NullType),
]


def to_arrow(kind: T.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark passes a column to Python, with the zone UTC; else raise TypeError.

    >>> to_arrow(T.StructType([T.StructField("n", T.LongType(), False)]))
    StructType(struct<n: int64 not null>)
    """
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        return pa.list_(pa.field("element", to_arrow(kind.elementType), nullable=kind.containsNull))
    if isinstance(kind, T.MapType):
        value = pa.field("value", to_arrow(kind.valueType), nullable=kind.valueContainsNull)
        return pa.map_(pa.field("key", to_arrow(kind.keyType), nullable=False), value)
    if isinstance(kind, T.StructType):
        return pa.struct([pa.field(part.name, to_arrow(part.dataType), nullable=part.nullable) for part in kind])
    if isinstance(kind, T.UserDefinedType):
        return to_arrow(kind.sqlType())
    type_ = _ARROW.get(type(kind).__name__)
    if type_ is None:
        raise TypeError(f"{kind.simpleString()} has no type in Arrow")
    return type_


def from_arrow(kind: pa.DataType) -> T.DataType:
    """Return the Spark type of a column that an operator computes; raise TypeError for other types.

    >>> from_arrow(pa.list_(pa.timestamp("us")))
    ArrayType(TimestampNTZType(), True)
    """
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return T.TimestampNTZType() if kind.tz is None else T.TimestampType()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return T.ArrayType(from_arrow(kind.value_type), kind.value_field.nullable)
    if pa.types.is_map(kind):
        return T.MapType(from_arrow(kind.key_type), from_arrow(kind.item_type), kind.item_field.nullable)
    if pa.types.is_struct(kind):
        return T.StructType([T.StructField(part.name, from_arrow(part.type), part.nullable) for part in kind])
    for is_kind, make in _SPARK:
        if is_kind(kind):
            return make()
    raise TypeError(f"{kind} has no type in Spark")


def arrow_of(schema: T.StructType, label: str) -> pa.Schema:
    """Return the Arrow schema of a Spark schema, or refuse a column that Arrow cannot carry."""
    fields = []
    for field in schema.fields:
        try:
            fields.append(pa.field(field.name, to_arrow(field.dataType), nullable=field.nullable))
        except TypeError as error:
            raise OptionError(
                f"{label}: column {field.name!r} of type {field.dataType.simpleString()} cannot be carried in Arrow; "
                "drop or cast it"
            ) from error
    return pa.schema(fields)
