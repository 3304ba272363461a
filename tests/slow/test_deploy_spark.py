"""Deployed queries: all strategies give the same rows, exactly once, over a stop and a restart."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.streams import file_stream, write_closing

import braided
from braided.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braided.spark.query import Query

DDL = "k long, ts timestamp, v long"
FILES = 4
LAST = 120_000_000 + FILES * 10_000_000
"""Windows before this are closed."""


def make(random: np.random.Generator, times: pa.Array) -> pa.Table:
    return pa.table({"k": random.integers(0, 20, len(times)), "ts": times, "v": random.integers(0, 100, len(times))})


def chain(spark: SparkSession, root: Path) -> Query:
    calls, alerts = (
        braided.stream(file_stream(spark, root / name, DDL), time="ts", lateness="4 seconds")
        for name in ("calls", "alerts")
    )
    joined = calls.where("v % 3 > 0").join(alerts, on="k", within="2 seconds").where("v_right < 80")
    windows = joined.aggregate(by="k", window="10 seconds", n="count(*)", total="sum(v_right)")
    return windows.select("window.start AS s", "k", "n", "total")


def wanted(root: Path) -> Counter[tuple[Any, ...]]:
    text = f"""SELECT epoch_us(a.ts) // 10000000 * 10000000 AS s, a.k, count(*), sum(b.v)::BIGINT
        FROM '{root}/calls/*.parquet' a JOIN '{root}/alerts/*.parquet' b ON a.k = b.k AND a.v % 3 > 0 AND b.v < 80
        AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 2000000 GROUP BY 1, 2"""
    return Counter(row for row in duckdb.sql(text).fetchall() if row[0] + 10_000_000 < LAST)


def found(topic: str) -> Counter[tuple[Any, ...]]:
    rows = duckdb.sql(f"SELECT epoch_us(s), k, n, total FROM read_parquet({braided.topic(topic).files()!r})").fetchall()
    return Counter(row for row in rows if row[0] + 10_000_000 < LAST)


@pytest.mark.parametrize("strategy", ["query", "operator", "subquery"])
def test_a_strategy_gives_the_oracles_rows_over_a_restart(spark: SparkSession, tmp_path: Path, strategy: Any) -> None:
    write_closing(tmp_path, seed=3, files=FILES, rows=150, make=make)
    hidden = [path for name in ("calls", "alerts") for path in sorted((tmp_path / name).iterdir())[2:]]
    for path in hidden:
        path.rename(tmp_path / f"{path.parent.name}-{path.name}")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    deployed = braided.deploy(chain(spark, tmp_path), topics=tmp_path / "app", strategy=strategy, processors=6)
    assert len(deployed.stages) == {"query": 1, "operator": 5, "subquery": 2}[strategy]
    assert sum(deployed.partitions.values()) == 6
    deployed.run()
    for path in hidden:
        (tmp_path / f"{path.parent.name}-{path.name}").rename(path)
    again = braided.deploy(
        chain(spark, tmp_path), topics=tmp_path / "app", strategy=strategy, processors=8, max_files=1
    )
    assert again.partitions == deployed.partitions
    again.run()
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    truth = wanted(tmp_path)
    assert found(again.topic) == truth
    assert len(truth) > 50
    costs = again.costs()
    assert all(cost.rows > 0 and cost.ms > 0 for cost in costs.values())
    assert "us/row" in str(again)
    shares = again.shares()
    assert sum(shares.values()) == 6
    most = max(costs, key=lambda name: costs[name].ms)
    assert shares[most] == max(shares.values())
    assert f"{shares[most]:>7}  stopped" in str(again) or f"{shares[most]:>7}  new" in str(again)


def test_stages_run_together_and_one_that_fails_stops_all(spark: SparkSession, tmp_path: Path) -> None:
    write_closing(tmp_path, seed=3, files=2, rows=50, make=make)
    query = braided.stream(file_stream(spark, tmp_path / "calls", DDL), time="ts", lateness="1 second")
    failing = query.where("v >= 0").order(key="k").select("raise_error(cast(v AS string)) AS x")
    deployed = braided.deploy(failing, topics=tmp_path / "app", strategy="operator", processors=3)
    deployed.start()
    with pytest.raises(braided.BraidedError, match=r"stage 3-select: "):
        deployed.watch(60)
    assert not spark.streams.active
    with pytest.raises(OptionError, match="processors=1: write at least one for each of the 2 stages"):
        braided.deploy(query.where("v > 1").order(), topics=tmp_path / "b", processors=1)
    with pytest.raises(OptionError, match="query: expected a query, not DataFrame; write it with"):
        braided.deploy(query.df, topics=tmp_path / "b")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="query: has no step; add one"):
        braided.deploy(query, topics=tmp_path / "b")


def test_a_stage_that_reads_a_join_from_a_topic_has_no_fixed_lateness(spark: SparkSession, tmp_path: Path) -> None:
    """In one query the result of a join has the lateness of its streams; a topic of it has a horizon instead."""
    write_closing(tmp_path, seed=3, files=2, rows=50, make=make)
    calls, alerts = (
        braided.stream(file_stream(spark, tmp_path / name, DDL), time="ts", lateness="4 seconds")
        for name in ("calls", "alerts")
    )
    joined = calls.join(alerts, on="k", within="2 seconds").select("k", "ts", "v")
    for given, is_refused in (({}, True), ({"lateness": ("0 seconds", "4 seconds")}, False)):
        last = joined.join(alerts, on="k", within="1 second", **given)
        query = last.aggregate(by="k", window="10 seconds", n="count(*)")
        with pytest.raises(OptionError, match="needs a fixed lateness") if is_refused else nullcontext():
            braided.deploy(query, topics=tmp_path / "app", strategy="operator", processors=6)
