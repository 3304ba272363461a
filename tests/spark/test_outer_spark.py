"""Outer, semi and anti joins on Spark: cut into batches, restarted, and as a batch join."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.control_roots import DDL, hide, run_and_hear
from support.crashes import write_streams
from support.streams import SECOND, UTC, file_stream, run_to_end, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KINDS = {"left": "left", "right": "right", "full": "full", "left_semi": "semi", "left_anti": "anti"}


def joined(left: DataFrame, right: DataFrame, how: Any) -> DataFrame:
    return braided.join(left, right, on="k", time="ts", within="100 milliseconds", lateness="5 seconds", how=how)


def ids(rows: list[Any]) -> Counter[Any]:
    return Counter(tuple(row[name] for name in ("id", "id_right") if name in row) for row in rows)


def theirs(root: Path, how: str) -> Counter[Any]:
    """DuckDB's answer over the finished streams."""
    columns = "l.id" if how in ("left_semi", "left_anti") else "l.id, r.id"
    with duckdb.connect() as db:
        return Counter(
            db.execute(
                f"""select {columns} from '{root}/left/*.parquet' l {KINDS[how]} join '{root}/right/*.parquet' r
                on l.k = r.k and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 100000"""
            ).fetchall()
        )


@pytest.mark.parametrize("how", KINDS)
def test_a_stream_that_is_restarted_gives_all_that_is_certain(spark: SparkSession, tmp_path: Path, how: str) -> None:
    write_streams(tmp_path, files=5, rows=300, seed=41)
    hide(tmp_path, first=3)
    streams = [file_stream(spark, tmp_path / side, DDL) for side in ("left", "right")]
    run_to_end(joined(*streams, how), tmp_path / "check", tmp_path / "out")
    hide(tmp_path, first=0)
    query = run_and_hear(spark, joined(*streams, how), tmp_path / "check", tmp_path / "out")
    found = ids(spark.read.parquet(str(tmp_path / "out")).collect())
    everything = theirs(tmp_path, how)
    assert not found - everything, "a wrong or double row"
    missing = everything - found
    # Only rows that one which is not late may still match, by the clocks after the last batch.
    clocks = [stream["clock"] for stream in braided.report(query).streams]
    with duckdb.connect() as db:
        times = [
            dict(db.execute(f"select id, epoch_us(ts) from '{tmp_path}/{side}/*.parquet'").fetchall())
            for side in ("left", "right")
        ]
    for row in missing:
        [(side, number)] = [(side, number) for side, number in enumerate(row) if number is not None]
        assert times[side][number] + 100_000 >= clocks[1 - side] - 5_000_000, "certain, and left behind"
    assert how == "left_semi" or missing, "some rows of the last seconds are open"
    assert sum(found.values()) > 100


@pytest.mark.parametrize("how", KINDS)
def test_batch_dataframes_give_the_same(spark: SparkSession, tmp_path: Path, how: str) -> None:
    write_streams(tmp_path, files=2, rows=200, seed=42)
    frames = [spark.read.schema(DDL).parquet(str(tmp_path / side)) for side in ("left", "right")]
    result = joined(*frames, how)
    assert ids(result.collect()) == theirs(tmp_path, how)
    if how in ("right", "full"):
        assert result.where("k is null").count() == 0, "the key is that of whichever row there is"


def test_explain_says_why_the_routing_is_fixed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    streams = [file_stream(spark, tmp_path / side, DDL) for side in ("left", "right")]
    frame = joined(*streams, "full")
    braided.explain(frame)
    shown = capsys.readouterr().out
    assert "keeps all rows of both" in shown
    assert "fixed: " in shown
    assert frame.schema["id_right"].nullable
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", "control": tmp_path / "control"}
    braided.explain(braided.join(*streams, how="left", **options))
    shown = capsys.readouterr().out
    assert "keeps all left rows" in shown
    assert "fixed: " not in shown
    with pytest.raises(braided.OptionError, match=r"control=: rows of both streams"):
        braided.join(*streams, how="full", **options)
    with pytest.raises(braided.OptionError, match=r"where=.*: how='left' must itself find which rows match"):
        braided.join(*streams, on="k", time="ts", within="1 second", how="left", where="rand() > l.id")


HOT, FILES, ROWS = 7, 14, 400


def write_skewed(root: Path) -> None:
    """Write a second of each stream per file, half of the left rows with one key, and two files that close all windows."""
    rng = np.random.default_rng(8)
    for side, rows in (("left", ROWS), ("right", ROWS // 5)):
        for number in range(FILES + 2):
            start = (number + (100 if number >= FILES else 0)) * SECOND
            keys = rng.integers(100, 160, rows)
            keys[rng.random(rows) < (0.5 if side == "left" else 0.05)] = HOT
            times = start + np.sort(rng.integers(0, SECOND, rows))
            ids = np.arange(rows) + number * rows
            table = pa.table({"k": keys, "ts": pa.array(times + 1_700_000_000 * SECOND, UTC), "id": ids})
            write_batch(root / side, number, table)


@pytest.mark.slow
def test_a_hot_key_is_spread_and_a_restart_in_between_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_skewed(tmp_path)
    workers = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    try:
        hide(tmp_path, first=6)
        streams = [file_stream(spark, tmp_path / side, DDL) for side in ("left", "right")]
        result = braided.join(
            *streams,
            on="k",
            time="ts",
            within="1 second",
            lateness="0 seconds",
            how="left",
            control=tmp_path / "control",
        )
        run_and_hear(spark, result, tmp_path / "check", tmp_path / "out")
        hide(tmp_path, first=0)
        query = run_and_hear(spark, result, tmp_path / "check", tmp_path / "out")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", workers)
    log = (tmp_path / "control" / "decisions.jsonl").read_text()
    decisions = [json.loads(line) for line in log.splitlines()]
    actions = [decision["action"] for decision in decisions]
    assert {"promote", "home"} <= set(actions), "the key's home never changed"
    assert {decision.get("value") for decision in decisions if decision["action"] == "promote"} == {str(HOT)}
    found = ids(spark.read.parquet(str(tmp_path / "out")).collect())
    with duckdb.connect() as db:
        wanted = Counter(
            db.execute(
                f"""select l.id, r.id from '{tmp_path}/left/*.parquet' l left join '{tmp_path}/right/*.parquet' r
                on l.k = r.k and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= {SECOND}"""
            ).fetchall()
        )
    certain = FILES * ROWS  # rows of the closing files may still wait
    assert Counter({row: n for row, n in found.items() if row[0] < certain}) == Counter(
        {row: n for row, n in wanted.items() if row[0] < certain}
    )
    grids = braided.report(query).to_dict()["routing"]["grids"]
    assert any("4 x 1" in grid["shape"] or "3 x 1" in grid["shape"] for grid in grids), grids
