"""Rows of every type that tables have, with nulls and extremes, and names of columns that are hard to quote."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

NAMES = ("a.b", "ünï😀", "quote'", 'quote"', "back`tick", "percent%20", "1abc", "CamelCase", "_x", "-", "x:y", "[x]*?")
ONLY_ICEBERG = ("a b", "ts ", "semi;", "eq=", "a,b", "br(", "a\nb", "a/b")

_LIST = pa.list_(pa.field("element", pa.int64()))
ROWS = pa.record_batch({
    "id": pa.array([1, 2, 3, 4]),
    "ts": pa.array([0, -1, None, 253_402_300_799_999_999], pa.timestamp("us", "UTC")),
    "ntz": pa.array([0, -62_135_596_800_000_000, None, 5], pa.timestamp("us")),
    "d": pa.array([Decimal("1.50"), Decimal("-" + "9" * 35 + ".999"), None, Decimal(0)], pa.decimal128(38, 3)),
    "f": pa.array([1.5, float("nan"), None, float("-inf")]),
    "f4": pa.array([1.5, float("nan"), None, -0.0], pa.float32()),
    "b": pa.array([b"\x00\xff", b"", None, b"x"]),
    "flag": pa.array([True, False, None, True]),
    "i8": pa.array([-128, 127, None, 0], pa.int8()),
    "i16": pa.array([-32_768, 32_767, None, 0], pa.int16()),
    "day": pa.array([0, -719_162, None, 2_932_896], pa.int32()).cast(pa.date32()),
    "s": pa.array(["é😀", "", None, "z" * 100]),
    "st": pa.array(
        [{"a": 1, "in": {"x": [1, None]}}, {"a": None, "in": None}, None, {"a": 2, "in": {"x": []}}],
        pa.struct([("a", pa.int32()), ("in", pa.struct([("x", _LIST)]))]),
    ),
    "m": pa.array([[("k", 1)], [], None, [("a", None), ("b", 2)]], pa.map_(pa.string(), pa.int32())),
})  # fmt: skip


def named(name: str, values: list[str | None]) -> pa.RecordBatch:
    """Return rows with a column of this name."""
    return pa.record_batch({"id": pa.array(range(len(values))), name: pa.array(values, pa.string())})


def shown(rows: pa.RecordBatch | pa.Table) -> list[str]:
    """Return rows in a form that compares NaN too, sorted, with columns by name."""
    found: list[dict[str, Any]] = rows.to_pylist()
    return sorted(repr(sorted(row.items())) for row in found)
