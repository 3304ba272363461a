"""The result of a join with ``late="side"`` as two DataFrames: joined rows and late rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DayTimeIntervalType, StringType, StructField, StructType

from braided.operators.late_rows import LATE_BY, STREAM, column_name, late_names
from braided.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def split_late(results: DataFrame, frames: Sequence[DataFrame]) -> tuple[DataFrame, DataFrame]:
    """Return the joined rows and the late rows of a join; in batch DataFrames no row is late."""
    names = late_names(len(frames))
    if not results.isStreaming:
        rows = [StructField(name, frame.schema) for name, frame in zip(names, frames, strict=True)]
        marks = [StructField("stream", StringType()), StructField("late_by", DayTimeIntervalType())]
        return results, results.sparkSession.createDataFrame([], StructType([*marks, *rows]))
    own = results.columns[: results.columns.index(STREAM)]
    joined = results.where(F.col(STREAM).isNull()).select(*(F.col(quoted(name)) for name in own))
    late_by = F.expr(f"make_dt_interval(0, 0, 0, cast({LATE_BY} as decimal(18, 0)) * 0.000001)")
    late = results.where(F.col(STREAM).isNotNull()).select(
        F.col(STREAM).alias("stream"),
        late_by.alias("late_by"),
        *(_row(side, name, frames[side].columns) for side, name in enumerate(names)),
    )
    return joined, late


def _row(side: int, name: str, columns: Sequence[str]) -> Column:
    """Return the row of a stream, null where the late row is another's."""
    row = F.struct(*(F.col(column_name(side, number)).alias(column) for number, column in enumerate(columns)))
    return F.when(F.col(STREAM) == name, row).alias(name)
