"""The DataFrames that a user gives to an operator: checks them, and describes them as streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StringType

from braided.errors import OptionError
from braided.operators.stream import Stream, TimeMarks
from braided.runtime.input_parts import COLUMN as PART
from braided.spark.arrow_types import arrow_of
from braided.spark.mixed_streams import with_later_rows
from braided.spark.watermark import marks_of
from braided.time.propagated_delay import COLUMN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The name in Delta's change feed and in `readStream.changes`.
CHANGE = "_change_type"


def check_frames(frames: Mapping[str, Any]) -> SparkSession:
    """Refuse objects that are not Spark DataFrames, and streams mixed with tables; return the session."""
    for label, frame in frames.items():
        if not isinstance(frame, DataFrame):
            raise OptionError(
                f"{label}: {type(frame).__name__} is not a Spark DataFrame; for Arrow data use braided.local"
            )
    check_kinds({label: frame.isStreaming for label, frame in frames.items()})
    session: SparkSession = next(iter(frames.values())).sparkSession
    return session


def check_kinds(is_streaming: Mapping[str, bool]) -> None:
    """Refuse streams mixed with tables."""
    streams = [label for label, streaming in is_streaming.items() if streaming]
    tables = [label for label, streaming in is_streaming.items() if not streaming]
    if streams and tables:
        raise OptionError(
            f"{streams[0]} is streaming and {tables[0]} is not; give streams or batch DataFrames, not both "
            "(Spark's own join can join a stream with a table)"
        )


def check_changes(frames: Mapping[str, DataFrame]) -> None:
    """Refuse streams of changes as inputs of a join, which would treat deleted rows as new ones."""
    for label, frame in frames.items():
        if frame.isStreaming and CHANGE in frame.columns:
            raise OptionError(
                f"{label}: column {CHANGE!r}: a stream of changes, but a join treats each row as a new one. For rows "
                f"that were added write .where(\"{CHANGE} = 'insert'\").drop('{CHANGE}'); updates and deletes cannot "
                "be joined"
            )


def stream_of(frame: DataFrame, label: str) -> Stream:
    """Return a DataFrame as the planner sees it."""
    for name in frame.columns:
        if name.lower() in (COLUMN, PART):
            raise OptionError(f"{label}: column {name!r}: Braided uses this name itself; rename it")
    marks = {field.name: marks_of(field.metadata or {}) for field in frame.schema.fields}
    collated = {field.name for field in frame.schema.fields if is_collated(field.dataType)}
    return Stream(
        label,
        arrow_schema(frame, label),
        with_later_rows(frame, {name: known for name, known in marks.items() if known != TimeMarks()}),
        frozenset(collated),
        str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true",
    )


def is_collated(kind: DataType) -> bool:
    """Whether strings compare in other ways than by their bytes."""
    return isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()


def arrow_schema(frame: DataFrame, label: str) -> pa.Schema:
    """Return the Arrow schema of a frame's rows, or refuse a column that Arrow cannot carry."""
    return arrow_of(frame.schema, label)
