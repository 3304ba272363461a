"""The columns of an operator's result for Spark: types, and metadata with the marks of their times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from braided.operators.physical import Column, ComputedColumn, InputColumn
from braided.operators.stream import TimeMarks
from braided.spark.arrow_types import from_arrow
from braided.spark.watermark import MARKS, to_metadata

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Marks = Callable[[InputColumn, TimeMarks], dict[str, int]]


def result_field(column: Column, frames: Sequence[DataFrame], marks: _Marks) -> StructField:
    """Return a result column with its earlier metadata and, if it is a time, the marks from `marks`."""
    if isinstance(column, ComputedColumn):
        return StructField(column.name, from_arrow(column.kind), column.nullable)
    if isinstance(column, InputColumn):
        field = frames[column.stream].schema[column.source]
        metadata = {key: value for key, value in (field.metadata or {}).items() if key not in MARKS}
        if column.marks is not None:
            metadata |= marks(column, column.marks)
        return StructField(column.name, field.dataType, field.nullable or column.nullable, metadata)
    return StructField(column.name, StructType([result_field(part, frames, marks) for part in column.columns]))


def planned_field(column: Column, frames: Sequence[DataFrame]) -> StructField:
    """Return a result column as it is if every watermark can be lengthened."""

    def marks(_: InputColumn, time_marks: TimeMarks) -> dict[str, int]:
        return to_metadata(
            time_marks, None if time_marks.watermark is None else time_marks.watermark // 1000, unmarked=False
        )

    return result_field(column, frames, marks)
