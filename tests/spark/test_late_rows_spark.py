"""Late rows of joins on Spark: as the local runtime has them, with `braided.join`, `braided.stream` and SQL."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.control_roots import DDL
from support.streams import SECOND, UTC, file_stream, run_to_end, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITHIN = {"on": "k", "time": "ts", "within": "1 second", "lateness": "5 seconds"}


def write(root: Path, side: str, number: int, rows: list[tuple[int, int]]) -> None:
    """Write rows of (second, id), all of one key."""
    times = pa.array([1_700_000_000 * SECOND + second * SECOND for second, _ in rows], UTC)
    write_batch(
        root / side, number, pa.table({"k": [1] * len(rows), "ts": times, "id": [number for _, number in rows]})
    )


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> list[DataFrame]:
    """Two streams; row 100 of the left one comes 14 seconds too late, and would have met rows 1 of the right one."""
    write(tmp_path, "left", 0, [(number * 2, number) for number in range(11)])
    write(tmp_path, "right", 0, [(number * 2, number) for number in range(11)])
    write(tmp_path, "left", 1, [(1, 100), (22, 11)])
    write(tmp_path, "right", 1, [(22, 11)])
    return [file_stream(spark, tmp_path / side, DDL) for side in ("left", "right")]


def test_late_rows_are_a_second_dataframe(spark: SparkSession, tmp_path: Path, streams: list[DataFrame]) -> None:
    joined, late = braided.join(*streams, **WITHIN, late="side")
    plain = braided.join(*streams, **WITHIN)
    assert joined.schema.simpleString() == plain.schema.simpleString()
    assert late.columns == ["stream", "late_by", "left", "right"]
    run_to_end(late, tmp_path / "late-check", tmp_path / "late")
    [row] = spark.read.parquet(str(tmp_path / "late")).collect()
    assert (row["stream"], row["left"]["id"], row["right"]) == ("left", 100, None)
    assert row["late_by"] == timedelta(seconds=14), "20 - 5 - 1"
    run_to_end(joined, tmp_path / "check", tmp_path / "out")
    rows = [(row["id"], row["id_right"]) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(rows) == [(number, number) for number in range(12)]


def test_sql_drops_late_rows_and_has_one_result(spark: SparkSession, tmp_path: Path, streams: list[DataFrame]) -> None:
    text = """SELECT {} l.id, r.id AS other FROM l JOIN r ON l.k = r.k
        AND r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts + INTERVAL 1 SECOND"""
    named = dict(zip("lr", streams, strict=True))
    dropped = braided.sql(spark, text.format("/*+ BRAIDED('r', 'late=drop') */"), named, lateness="5 seconds")
    run_to_end(dropped, tmp_path / "check", tmp_path / "out")
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row["id"] for row in rows) == list(range(12))
    with pytest.raises(braided.OptionError, match="late='side': SQL has one result; write 'drop'"):
        braided.sql(spark, text.format(""), named, lateness="5 seconds", late="side")
    left, right = (braided.stream(stream, time="ts") for stream in streams)
    with pytest.raises(braided.OptionError, match="late='side': a query has one output; write 'drop'"):
        left.join(right, on="k", within="1 second", late="side")


@pytest.mark.parametrize("late", ["drop", "side"])
def test_of_batch_dataframes_no_row_is_late(spark: SparkSession, tmp_path: Path, streams: list[Any], late: Any) -> None:
    frames = [spark.read.schema(DDL).parquet(str(tmp_path / side)) for side in ("left", "right")]
    for result in (
        braided.join(*frames, **WITHIN, late=late),
        braided.join_asof(*frames, on="k", time="ts", tolerance="1 second", how="inner", late=late),
    ):
        joined, apart = result if isinstance(result, tuple) else (result, None)
        assert joined.where("id = 100").count() > 0
        assert apart is None or (apart.count() == 0 and apart.columns == ["stream", "late_by", "left", "right"])


def test_a_predicate_of_sparks_is_refused_beside_late_rows(streams: list[DataFrame]) -> None:
    with pytest.raises(braided.OptionError, match=r"where=.*: only Spark can evaluate this .*late='side'"):
        braided.join(*streams, **WITHIN, late="side", where="soundex(cast(l.id as string)) = cast(r.id as string)")
