"""The inputs of a SQL query beside its text: streams by name, streams that are views of the session, and arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from sqlglot.tokens import TokenType

from braided.errors import OptionError
from braided.spark.catalyst import plan_of
from braided.spark.names import quoted
from braided.sqltext.parameters import fill_markers
from braided.sqltext.words import Words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def streams_of_views(session: SparkSession, text: str) -> dict[str, DataFrame]:
    """Return the streams among the temporary views that a text reads, by their names."""
    words = Words(text)
    streams: dict[str, DataFrame] = {}
    for at in range(1, len(words)):
        name = words.name(at)
        before = words.is_(at - 1, TokenType.FROM, TokenType.JOIN, TokenType.COMMA) or words.says(at - 1, "STREAM")
        if name is None or not before or words.is_(at + 1, TokenType.DOT) or name.lower() in map(str.lower, streams):
            continue
        if session.catalog.tableExists(quoted(name)):
            frame = session.table(quoted(name))
            if frame.isStreaming:
                streams[name] = frame
    if not streams:
        raise OptionError(
            "streams=: no temporary view that the text reads is a stream; give the streaming DataFrames by the names "
            "that the text uses, or create views of them: calls.createOrReplaceTempView('calls')"
        )
    return streams


def with_arguments(session: SparkSession, text: str, args: Any) -> str:
    """Return a text with the values of `args` for its parameter markers, as `spark.sql` takes them."""
    if isinstance(args, Mapping):
        return fill_markers(text, dict(zip(args, _literals(session, list(args.values())), strict=True)))
    if isinstance(args, Sequence) and not isinstance(args, str):
        return fill_markers(text, _literals(session, list(args)))
    raise OptionError(f"args={args!r}: write a dict of names and values, or a list of values")


def _literals(session: SparkSession, values: Sequence[Any]) -> list[str]:
    """Return values as Spark writes them in SQL."""
    if not values:
        return []
    for value in values:
        if isinstance(value, Column | list | tuple | dict):
            raise OptionError(
                f"args=: {value!r}: not a plain value; write a number, string, boolean, date, time or None"
            )
    try:
        frame = session.range(0).select([F.lit(value).alias(f"a{at}") for at, value in enumerate(values)])
    except PySparkException as error:
        raise OptionError(f"args=: {str(error).splitlines()[0]}") from error
    return [column.sql for column in plan_of(frame).projected]
