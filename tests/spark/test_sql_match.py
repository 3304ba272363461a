"""MATCH_RECOGNIZE in `braided.sql`: the rows of the local runtime, in a larger query; what is refused, and where."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.streams import SECOND, UTC, file_stream, read_rows, run_to_end, write_batch

import braided
import braided.local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000 * SECOND
DDL = "k string, ts timestamp, v long, p double"
CLAUSE = """
    MATCH_RECOGNIZE (
      PARTITION BY k ORDER BY ts
      MEASURES FIRST(LOW.ts) AS began, COUNT(LOW.*) AS lows, AVG(UP.p) AS mean
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (LOW+ UP{1,3} END?) WITHIN INTERVAL '2' SECONDS
      DEFINE LOW AS v < 4, UP AS v > LAST(LOW.v) AND p >= PREV(p), END AS v = 9)"""
QUERY = f"""
    WITH known AS (SELECT k, ts, v, p FROM readings WHERE k <> '3')
    SELECT m.k, m.began, m.lows * 10 AS lows, n.label FROM known {CLAUSE} AS m
    JOIN names n ON n.k = m.k WHERE m.mean < 0.9
    UNION ALL SELECT k, ts, v, 'reading' FROM readings WHERE v = 2"""
OPTIONS: dict[str, Any] = {
    "key": "k",
    "time": "ts",
    "pattern": "LOW+ UP{1,3} END?",
    "define": {"LOW": "v < 4", "UP": "v > last(LOW.v) and p >= prev(p)", "END": "v = 9"},
    "measures": {"began": "first(LOW.ts)", "lows": "count(LOW.*)", "mean": "avg(UP.p)"},
    "within": "2 seconds",
}


def write_readings(folder: Path) -> pa.Table:
    """Write two batches of rows in order, and rows of another key that let all others go."""
    random = np.random.default_rng(2)
    times = np.append(START + np.arange(400) * (SECOND // 50), START + 100 * SECOND + np.arange(100))
    table = pa.table(
        {
            "k": pa.array(np.append(random.integers(0, 4, 400), np.full(100, 9)).astype(str)),
            "ts": pa.array(times, UTC),
            "v": np.append(random.integers(0, 10, 400), np.full(100, 7)),
            "p": random.random(500).round(2),
        }
    )
    for number in range(2):
        write_batch(folder, number, table.slice(number * 250, 250))
    return table


def test_matches_are_rows_of_a_larger_query(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_readings(tmp_path / "in")
    spark.createDataFrame([("0", "zero"), ("1", "one"), ("3", "three")], "k string, label string").createTempView(
        "names"
    )
    readings = file_stream(spark, tmp_path / "in", DDL, files=2)
    result = braided.sql(spark, QUERY, {"readings": readings}, lateness="1 second", name="found")
    assert result.columns == ["k", "began", "lows", "label"]
    braided.explain(result)
    assert "found: looks for LOW+ UP{1,3} END? in order of ts, per k" in capsys.readouterr().out
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    matches = braided.local.match(table, **OPTIONS).table.to_pylist()
    labels = {"0": "zero", "1": "one"}
    wanted = [
        (row["k"], row["began"].timestamp(), row["lows"] * 10, labels[row["k"]])
        for row in matches
        if row["k"] in labels and row["mean"] < 0.9
    ]
    assert len(wanted) > 10
    wanted += [(row["k"], row["ts"].timestamp(), 2, "reading") for row in table.to_pylist() if row["v"] == 2]
    found = [(row[0], row[1].timestamp(), *row[2:]) for row in read_rows(spark, tmp_path / "out")]
    assert sorted(found) == sorted(wanted)

    def refused(text: str) -> str:
        with pytest.raises(braided.OptionError) as caught:
            braided.sql(spark, text, {"readings": readings})
        return str(caught.value)

    given = f"SELECT * FROM readings{CLAUSE}"
    assert refused(given.replace("v = 9", "w = 9")) == (
        "sql: line 7, column 75: DEFINE END: 'w': no such column; there are k, ts, v, p"
    )
    assert refused(given.replace("WITHIN INTERVAL '2' SECONDS", "")) == (
        "sql: line 6, column 16: WITHIN: rows of 'LOW+ UP{1,3} END?' would be stored for ever; write how long a match may "
        "take, after PATTERN (...): WITHIN INTERVAL '5' MINUTE"
    )
    assert refused(given.replace("'2' SECONDS", "'2' MONTHS")).startswith(
        "sql: line 6, column 42: WITHIN: INTERVAL '2' MONTHS has no fixed length; write an interval of days"
    )
    assert "`w` cannot be resolved" in refused(given.replace("*", "w", 1))
    assert refused(given.replace("readings", "nothing")).startswith(
        "sql: line 1, column 15: unknown stream or table `nothing`; the streams are readings"
    )
    assert refused("SELECT x FROM (SELECT w FROM readings) MATCH_RECOGNIZE (ORDER BY ts MEASURES v AS x PATTERN (A))")
