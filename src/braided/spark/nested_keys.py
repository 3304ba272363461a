"""Keys that are structs or lists, as strings that are equal exactly when Spark treats the keys as equal.

```
 struct<start: timestamp, end: timestamp>   ->   '{"k":{"a":1714564800000000,"b":1714564810000000}}'
```

Within a struct or a list null is equal to null, as in Spark's comparison; a key that is null itself matches nothing.
"""

from __future__ import annotations

from pyspark.sql import types as T

from braided.spark.names import quoted

_PLAIN = (T.IntegralType, T.StringType, T.BooleanType, T.DateType, T.DecimalType, T.BinaryType)


def flat_key(text: str, kind: T.DataType) -> str | None:
    """Return an expression of a type that can be a key, for a struct or a list; None for other types.

    Also None if a part has no such string, for example a map or a collated string.
    """
    if not isinstance(kind, T.StructType | T.ArrayType):
        return None
    plain = _plain(text, kind, 0)
    if plain is None:
        return None
    return f"CASE WHEN {text} IS NOT NULL THEN to_json(named_struct('k', {plain})) END"


def _plain(text: str, kind: T.DataType, depth: int) -> str | None:
    """Return an expression whose JSON is the same exactly for equal values."""
    if isinstance(kind, T.StructType):
        fields = [_plain(f"({text}).{quoted(field.name)}", field.dataType, depth) for field in kind.fields]
        if None in fields:
            return None
        named = ", ".join(f"'f{at}', {field}" for at, field in enumerate(fields))
        # JSON leaves out fields that are null, so a struct that is null would look like one whose fields are null.
        return f"CASE WHEN {text} IS NOT NULL THEN named_struct('s', 1, {named}) END"
    if isinstance(kind, T.ArrayType):
        element = f"x{depth}"
        of_element = _plain(element, kind.elementType, depth + 1)
        return None if of_element is None else f"transform({text}, {element} -> {of_element})"
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({text})"  # JSON has only milliseconds
    if isinstance(kind, T.TimestampNTZType):
        return f"CAST({text} AS STRING)"
    if isinstance(kind, T.DoubleType | T.FloatType):
        return f"CASE WHEN isnan({text}) THEN 'NaN' ELSE CAST({text} + 0.0D AS STRING) END"  # -0.0 is 0.0
    collated = isinstance(kind, T.StringType) and kind != T.StringType()
    return text if isinstance(kind, _PLAIN) and not collated else None
