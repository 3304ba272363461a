"""The MATCH_RECOGNIZE clauses of a query: each becomes a `braided.match`, whose result is a stream of the query."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DayTimeIntervalType

from braided.errors import OptionError
from braided.operators.match.spec import MatchSpec
from braided.spark.frontend import run
from braided.spark.names import quoted
from braided.sqltext.matches import Match, find_match
from braided.sqltext.recognize import Clause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def with_matches(
    session: SparkSession,
    text: str,
    streams: Mapping[str, DataFrame],
    options: Mapping[str, Any],
    query: Callable[[str, Mapping[str, DataFrame]], DataFrame],
) -> tuple[str, dict[str, DataFrame]]:
    """Return a text without its clauses, and the streams that it reads: the given ones and the matches.

    `query` runs a text over streams, for subqueries that a clause reads.
    """
    known = dict(streams)
    while (clause := find_match(text)) is not None:
        frame = _input(session, clause, known, query)
        name = next(
            name
            for number in range(1, len(text) + len(known) + 2)
            if (name := f"match_{number}") not in text.lower() and name not in map(str.lower, known)
        )
        known[name] = _matched(session, clause.clause, frame, options)
        text = clause.without(name)
    return text, known


def _input(
    session: SparkSession,
    clause: Match,
    streams: Mapping[str, DataFrame],
    query: Callable[[str, Mapping[str, DataFrame]], DataFrame],
) -> DataFrame:
    if clause.query is not None:
        return query(clause.query, streams)
    assert clause.table is not None
    named = {name.lower(): frame for name, frame in streams.items()}
    if len(clause.table) == 1 and clause.table[0].lower() in named:
        return named[clause.table[0].lower()]
    table = ".".join(map(quoted, clause.table))
    try:
        return session.table(table)
    except PySparkException as error:
        raise OptionError(
            f"sql: {clause.place}: unknown stream or table {table}; the streams are {', '.join(streams)}"
        ) from error


def _matched(session: SparkSession, clause: Clause, frame: DataFrame, options: Mapping[str, Any]) -> DataFrame:
    if clause.within is not None:
        clause.options["within"] = _interval(session, clause)
    try:
        spec = MatchSpec(**clause.options, lateness=options.get("lateness"))
        return run(spec, [frame], name=options.get("name"))
    except OptionError as error:
        reason = str(error).replace(
            "write how long a match may take, such as '5 minutes'",
            "write how long a match may take, after PATTERN (...): WITHIN INTERVAL '5' MINUTE",
        )
        raise type(error)(clause.placed(reason)) from error


def _interval(session: SparkSession, clause: Clause) -> datetime.timedelta:
    """Let Spark evaluate WITHIN."""
    try:
        frame = session.sql(f"SELECT {clause.within}")
    except PySparkException as error:
        raise OptionError(clause.placed(f"within: {str(error).splitlines()[0]}")) from error
    if len(frame.columns) != 1 or not isinstance(frame.schema[0].dataType, DayTimeIntervalType):
        raise OptionError(
            clause.placed(
                f"within: {clause.within} has no fixed length; write an interval of days, hours, minutes or "
                "seconds: INTERVAL '5' MINUTE"
            )
        )
    value: datetime.timedelta = frame.collect()[0][0]
    return value
