"""The compiler of ``where=`` against Spark's own filter over the same pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from support.profiles import examples
from support.where_cases import compile_unless_simplified, predicates
from support.where_reference import SCHEMA, Predicate, columns, pairs

from braided.errors import BraidedError
from braided.expressions.compile import Uncompilable, compile_where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Calm rows never overflow, so that every predicate with arithmetic is compared; wild ones have every extreme.
ROWS = {"wild": pairs(200, 11, wild=True), "calm": pairs(200, 12, wild=False)}
ARRAYS = {name: (columns(rows, "l"), columns(rows, "r")) for name, rows in ROWS.items()}
Filter = Callable[[str, str], list[int] | None]


@pytest.fixture(scope="module")
def spark_filter(spark_session: SparkSession) -> Filter:
    """Return the numbers of the rows that Spark keeps, or None where it raises an overflow."""
    from pyspark.errors import ArithmeticException

    frames = {}
    for name, (left, right) in ARRAYS.items():
        sides = {
            side: pa.StructArray.from_arrays(list(arrays.values()), list(arrays))
            for side, arrays in (("l", left), ("r", right))
        }
        # A struct a side reads as l.x, and its filter takes half the time of one on a join. Cached, since
        # Spark's optimizer interprets a filter over a local relation: we want its compiled code.
        table = pa.table({"n": pa.array(range(200)), **sides})
        frames[name] = spark_session.createDataFrame(table).coalesce(1).cache()

    def keep(name: str, text: str) -> list[int] | None:
        try:
            return sorted(row.n for row in frames[name].filter(text).select("n").collect())
        except ArithmeticException:
            return None

    return keep


def ours(name: str, text: str) -> list[int] | None:
    try:
        return np.flatnonzero(compile_where(text, SCHEMA, SCHEMA).mask(*ARRAYS[name])).tolist()
    except Uncompilable:
        raise
    except BraidedError:
        return None


def check(text: str, spark_filter: Filter) -> None:
    mine, theirs = ours("wild", text), spark_filter("wild", text)
    # Spark may raise for a row that we need not compute, never the other way round.
    assert mine == theirs or theirs is None
    if theirs is None:
        mine, theirs = ours("calm", text), spark_filter("calm", text)
        assert mine == theirs or theirs is None


# Without the shrinking phase: each example is two Spark jobs.
@settings(
    max_examples=examples(130),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(predicate=predicates())
def test_equals_sparks_filter(spark_filter: Filter, predicate: Predicate) -> None:
    compile_unless_simplified(predicate.text)
    check(predicate.text, spark_filter)


@pytest.mark.parametrize(
    "text",
    [
        "NULL OR l.b",
        "NOT NULL AND l.b OR r.b",
        "NOT (l.i32 = NULL) OR l.s <=> NULL",
        "NULL <=> l.i32 OR l.i32 IN (NULL)",
        "l.i32 NOT IN (5, NULL) OR l.i8 NOT BETWEEN NULL AND 2",
        "l.i32 IN (5.0, 99999999999999999999) OR l.i32 > - - 2",
        "l.f64 IN (-0.0D, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)",
        "l.i64 IN (9007199254740992, 1e0)",
        "l.i64 BETWEEN r.f64 AND 9007199254740992D",
        "l.f64 > 2 * 3 - 1.5D OR l.f32 = -(1.5)",
        "l.ntz IN (DATE '2024-01-31') OR l.d IN (TIMESTAMP_NTZ '2024-01-31 00:00:00', DATE '1970-01-01')",
        "CAST(l.d AS TIMESTAMP_NTZ) = r.ntz OR INTERVAL 1 HOUR + l.ts > r.ts",
        r"l.s = 'say \"a\"' OR l.s > 'it\'s'",
        "L.`I8`=r.i8 AND`l`.b IS NOT NULL",
    ],
)
def test_corners(spark_filter: Filter, text: str) -> None:
    assert ours("wild", text) == spark_filter("wild", text)


def test_overflow_raises_in_both(spark_filter: Filter) -> None:
    for text in (
        "l.i32 + 1 > 0",
        "-l.i8 > r.i8",
        "abs(l.i16) = r.i16",
        "l.i64 * r.i64 <> 0",
        "l.i8 - r.i8 < 3",
    ):
        assert ours("wild", text) is None
        assert spark_filter("wild", text) is None
