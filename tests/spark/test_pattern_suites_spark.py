"""A sample of other engines' row patterns on Spark: as streams, and `$` where rows come to an end."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.streams import SECOND, UTC, file_stream, read_rows, run_to_end, write_batch
from support.suites import trino_pattern_aggregates, trino_patterns
from support.suites.pattern_case import PatternCase

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000 * SECOND
DDL = "part string, ts timestamp, id long, value long"
NAMES = ("testEmptyMatches", "testOutputModes: ALL ROWS PER MATCH, B*", "testRunningAndFinalAggregations")


def sample() -> list[PatternCase]:
    cases = {case.name: case for case in (*trino_patterns.CASES, *trino_pattern_aggregates.CASES)}
    return [cases[name] for name in NAMES]


def text(case: PatternCase) -> str:
    """Return a case by its part, as one column of JSON, in which nulls are left out."""
    clause = replace(case.text, partition="part").clause().replace("'1' HOUR", "'20' SECONDS")
    return clause.replace("*", f"part, to_json(struct({', '.join(case.shown)})) AS row", 1).replace(
        "FROM t", "FROM rows"
    )


def rows_of(case: PatternCase) -> pa.Table:
    """Return the rows of a case as those of a part."""
    ids = [row[0] for row in case.rows]
    return pa.table(
        {
            "part": [case.name] * len(ids),
            "ts": pa.array([START + number * SECOND for number in ids], UTC),
            "id": pa.array(ids, pa.int64()),
            "value": pa.array([row[-1] for row in case.rows], pa.int64()),
        }
    )


def test_cases_of_trino_as_streams(spark: SparkSession, tmp_path: Path) -> None:
    later = pa.table(
        {
            "part": ["later"] * 100,
            "ts": pa.array([START + 100 * SECOND + number for number in range(100)], UTC),
            "id": pa.array(range(100), pa.int64()),
            "value": pa.array([0] * 100, pa.int64()),
        }
    )
    for number, case in enumerate(sample()):
        write_batch(tmp_path / "in", number, rows_of(case))
    write_batch(tmp_path / "in", len(NAMES), later)
    stream = file_stream(spark, tmp_path / "in", DDL, files=1)
    query = " UNION ALL ".join(
        f"SELECT * FROM ({text(case)}) WHERE part = '{case.name}'" for case in sample()
    )  # fmt: skip
    result = braided.sql(spark, query, {"rows": stream}, lateness="30 seconds")
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    wanted = Counter(
        (case.name, json.dumps({name: value for name, value in zip(case.shown, row, strict=True) if value is not None}))
        for case in sample()
        for row in case.wanted
    )
    assert Counter((row[0], json.dumps(json.loads(row[1]))) for row in read_rows(spark, tmp_path / "out")) == wanted

    ends = "SELECT id FROM rows MATCH_RECOGNIZE (PARTITION BY part ORDER BY ts ALL ROWS PER MATCH PATTERN (A B $) {} "
    ends += "DEFINE A AS value > 0) AS m"
    with pytest.raises(
        braided.OptionError, match=r"PATTERN: '\$' is after the last row of a key, but keys of a stream have no end"
    ):
        braided.sql(spark, ends.format("WITHIN INTERVAL '20' SECONDS"), {"rows": stream})
    table = spark.read.schema(DDL).parquet(str(tmp_path / "in"))
    found = braided.sql(spark, ends.format("WITHIN INTERVAL '20' SECONDS"), {"rows": table})
    assert sorted(row["id"] for row in found.collect()) == [3, 4, 5, 6, 7, 8]
