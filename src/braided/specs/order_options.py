"""Reading the options of `order` and `merge`: what the user wrote becomes an `Ordering`, or an error that helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from braided.errors import BraidedError
from braided.ordering.ordering import LATE, SEQ, Ordering
from braided.routing.keys import KeyHasher, common_key_type
from braided.time.lateness import Lateness
from braided.time.resolve import resolve_idle

LATE_WAYS = ("flag", "drop", "side")


def build_ordering(
    schemas: Sequence[pa.Schema], time: Any, key: Any, rules: Sequence[int | Lateness], late: Any, idle: Any
) -> Ordering:
    """Assemble the operator for inputs of one schema."""
    schema = schemas[0]
    for number, other in enumerate(schemas[1:], 1):
        if not other.equals(schema):
            raise BraidedError(
                f"inputs: number {number} has columns {_shown(other)}, number 0 has {_shown(schema)}; "
                "select the same columns in the same order"
            )
    if late not in LATE_WAYS:
        raise BraidedError(f"late={late!r}: write 'flag', 'drop' or 'side'")
    if not isinstance(time, str) or time not in schema.names:
        raise BraidedError(f"time={time!r}: the input has no such column; it has {', '.join(schema.names)}")
    kind = schema.field(time).type
    if not pa.types.is_timestamp(kind) or kind.unit != "us":
        raise BraidedError(f"time={time!r}: has type {kind}, not a timestamp in microseconds; cast it")
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    for name in keys:
        if name not in schema.names:
            raise BraidedError(f"key={name!r}: the input has no such column; it has {', '.join(schema.names)}")
    kinds = tuple(common_key_type(schema.field(n).type, schema.field(n).type, (n, n)) for n in keys)
    added = [*([] if keys else [SEQ]), *([] if late == "drop" else [LATE])]
    for name in added:
        if name in [column.lower() for column in schema.names]:
            raise BraidedError(f"column {name!r}: the result has one of that name; rename it")
    return Ordering(
        schema, len(schemas), time, keys, KeyHasher(kinds), tuple(rules), late != "drop", resolve_idle(idle)
    )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
