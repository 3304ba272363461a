"""Putting streams in order on Spark: the same operator, restarts, batch inputs, a join with learned lateness."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from support.streams import UTC, file_stream, run_to_end, write_batch

import braided
from braided.spark import direct

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DDL = "k long, ts timestamp, id long"


def write_disordered(folder: Path, *, files: int, rows: int, seed: int) -> pa.Table:
    """Write rows in order of arrival, each up to 3 s late, a file per batch; return them all."""
    rng = np.random.default_rng(seed)
    count = files * rows
    times = START + np.arange(count) * (SECOND // 100)
    arrival = np.argsort(times + rng.integers(0, 3 * SECOND, count), kind="stable")
    moments = times[arrival]
    table = pa.table({"k": rng.integers(0, 5, count), "ts": pa.array(moments, UTC), "id": np.arange(count)})
    for number in range(files):
        write_batch(folder, number, table.slice(number * rows, rows))
    return table


def read(spark: SparkSession, root: Path) -> list[dict[str, object]]:
    return [row.asDict() for row in spark.read.parquet(str(root / "out")).collect()]


@pytest.mark.slow
def test_a_whole_stream_comes_out_numbered_in_order(spark: SparkSession, tmp_path: Path) -> None:
    table = write_disordered(tmp_path / "in", files=8, rows=300, seed=1)
    hidden = sorted((tmp_path / "in").iterdir())[4:]
    for path in hidden:
        path.rename(tmp_path / path.name)

    def ordered() -> DataFrame:
        return braided.order(file_stream(spark, tmp_path / "in", DDL), time="ts", name="all")  # type: ignore[no-any-return]

    run_to_end(ordered(), tmp_path / "check", tmp_path / "out")
    for path in hidden:
        (tmp_path / path.name).rename(path)
    query = run_to_end(ordered(), tmp_path / "check", tmp_path / "out")
    rows = sorted(read(spark, tmp_path), key=lambda row: int(str(row["seq"])))
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    on_time = [row["ts"] for row in rows if not row["late"]]
    assert on_time == sorted(on_time)
    report = braided.report(query, "all").to_dict()
    waiting = sum(worker["last"]["stored_rows"] for worker in report["workers"])
    assert len(rows) + waiting == table.num_rows
    assert report["streams"][0]["late"] == sum(bool(row["late"]) for row in rows) < 20
    assert 2 * SECOND < report["streams"][0]["lateness"] < 6 * SECOND
    assert waiting > 0


def test_keys_and_several_inputs(spark: SparkSession, tmp_path: Path) -> None:
    tables = [write_disordered(tmp_path / side, files=4, rows=300, seed=seed) for seed, side in enumerate("ab")]
    streams = [file_stream(spark, tmp_path / side, DDL) for side in "ab"]
    # Every second row sets the clock; a function of the test must reach the executors.
    lateness = braided.Lateness(
        floor="0 seconds", measure="next", clock_rows=lambda rows: rows.column("id").to_numpy() % 2 == 0
    )
    merged = braided.merge(streams, time="ts", key="k", lateness=lateness, late="drop", name="merged")
    seen: list[tuple[int, list[tuple[int, object, int]]]] = []

    def note(batch: DataFrame, number: int) -> None:
        seen.append((number, [(row["k"], row["ts"], row["id"]) for row in batch.collect()]))

    writer = merged.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    report = braided.report(query, "merged").to_dict()
    assert all(2 * SECOND < stream["lateness"] < 6 * SECOND for stream in report["streams"])
    last: dict[int, object] = {}
    everything: Counter[tuple[int, object, int]] = Counter()
    for _, rows in sorted(seen):
        by_key: dict[int, list[object]] = {}
        for k, ts, row_id in rows:
            by_key.setdefault(k, []).append(ts)
            everything[k, ts, row_id] += 1
        for k, times in by_key.items():
            assert times == sorted(times)
            assert k not in last or last[k] <= times[0]  # type: ignore[operator]
            last[k] = times[-1]
    assert not everything - Counter(
        (row["k"], row["ts"].replace(tzinfo=None), row["id"]) for table in tables for row in table.to_pylist()
    )
    assert sum(everything.values()) > 1500


def test_batch_inputs_are_sorted_at_once(spark: SparkSession, tmp_path: Path) -> None:
    table = write_disordered(tmp_path / "in", files=2, rows=100, seed=4)
    rows = braided.order(spark.read.parquet(str(tmp_path / "in")), time="ts").collect()
    assert [row["ts"] for row in rows] == sorted(row["ts"] for row in rows)
    assert [row["seq"] for row in rows] == list(range(table.num_rows))


def test_a_join_learns_its_lateness_and_ignores_a_broken_clock(spark: SparkSession, tmp_path: Path) -> None:
    """Rows up to 25 s late: the default floor of 10 s would lose pairs; a hundredth of rows are a year ahead."""
    rng = np.random.default_rng(9)
    tables = []
    for side in ("left", "right"):
        count = 12 * 400
        times = START + np.arange(count) * (SECOND // 20)
        arrival = np.argsort(times + rng.integers(0, 25 * SECOND, count), kind="stable")
        moments = times[arrival]
        wrong = rng.random(count) < 0.01
        wrong[:400] = False
        moments = np.where(wrong, moments + 40_000_000 * SECOND, moments)
        table = pa.table({"k": rng.integers(0, 40, count), "ts": pa.array(moments, UTC), "id": np.arange(count)})
        for number in range(12):
            write_batch(tmp_path / side, number, table.slice(number * 400, 400))
        tables.append(table)
    left, right = (file_stream(spark, tmp_path / side, DDL) for side in ("left", "right"))
    joined = braided.join(left, right, on="k", time="ts", within="2 seconds", name="learns")
    query = run_to_end(joined, tmp_path / "check", tmp_path / "out")
    streams = braided.report(query, "learns").to_dict()["streams"]
    assert all(stream["lateness"] > 20 * SECOND for stream in streams)
    assert all(stream["clock"] < START + 400 * SECOND for stream in streams)
    assert all(stream["quarantined"] + stream["discarded"] > 20 for stream in streams)
    pairs = Counter((row["id"], row["id_right"]) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    expected = _by_duckdb(*tables)
    assert not pairs - expected, "a wrong or double row"
    assert sum(pairs.values()) >= 0.999 * sum(expected.values())
    stored = sum(worker["last"]["stored_rows"] for worker in braided.report(query, "learns").to_dict()["workers"])
    assert stored < 3000


@pytest.mark.slow
def test_a_join_hands_its_lateness_on_before_a_late_result_comes(spark: SparkSession, tmp_path: Path) -> None:
    """A left row 60 s late finds no match, and is all that the join shows of its lateness; then one 25 s late finds one.

    The plan alone promises results at most 12 s late.
    """
    for number in range(6):
        now = START + number * 10 * SECOND + np.arange(100) * (SECOND // 10)
        keys, times = np.arange(100), now.copy()
        if number == 3:
            keys[-1], times[-1] = 999, START - 25 * SECOND
        if number == 5:
            keys[-1], times[-1] = 50, START + 35 * SECOND
        for side, ts in (("left", times), ("right", now)):
            k = keys if side == "left" else np.arange(100)
            write_batch(tmp_path / side, number, pa.table({"k": k, "ts": pa.array(ts, UTC), "id": np.arange(100)}))
    left, right = (file_stream(spark, tmp_path / side, DDL) for side in ("left", "right"))
    joined = braided.join(left, right, on="k", time="ts", within="1 second", name="first")
    query = run_to_end(braided.order(joined, time="ts", name="then"), tmp_path / "check", tmp_path / "out")
    assert braided.report(query, "first").to_dict()["streams"][0]["lateness"] >= 60 * SECOND
    report = braided.report(query, "then").to_dict()
    assert report["streams"][0]["lateness"] >= 60 * SECOND
    assert report["streams"][0]["late"] == 0
    rows = read(spark, tmp_path)
    assert len(rows) > 0
    assert "__braided_delay" not in rows[0]
    assert sum(worker["last"]["stored_rows"] for worker in report["workers"]) + len(rows) == 599


def _by_duckdb(left: pa.Table, right: pa.Table) -> Counter[tuple[int, int]]:
    import duckdb

    with duckdb.connect() as db:
        db.register("l", left)
        db.register("r", right)
        rows = db.execute(
            "select l.id, r.id from l join r on l.k = r.k and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 2000000"
        ).fetchall()
    return Counter(rows)


def test_a_gap_within_a_file_that_is_read_in_parts_is_no_delay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks read the parts of a file whose rows are in order, with a gap of 30 minutes in the middle."""
    half = np.arange(3000) * 100_000
    times = START + np.concatenate([half, half + 35 * 60 * SECOND])
    table = pa.table({"k": np.random.default_rng(1).integers(0, 1 << 60, 6000), "ts": pa.array(times, UTC)})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=1000)
    monkeypatch.setattr(direct, "CUT", 20_000)
    files = braided.files(spark, str(tmp_path / "in"), schema="k long, ts timestamp")
    ordered = braided.order(files, time="ts", name="parts", lateness="auto")
    report = braided.report(run_to_end(ordered, tmp_path / "check", tmp_path / "out"), "parts").to_dict()
    assert report["streams"][0]["lateness"] == 0
    assert len(read(spark, tmp_path)) == table.num_rows - 1  # the last one waits for the next


def test_files_that_spark_reads_the_largest_first_show_the_delays_within_each(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark gives a task its files by size. Here the last one is the largest, and rows are up to 2 s late."""
    rng = np.random.default_rng(2)
    for number, rows in enumerate((300, 400, 500, 600)):
        times = START + number * 600 * SECOND + np.arange(rows) * SECOND // 10
        late = rng.integers(0, 2 * SECOND, rows)
        write_batch(tmp_path / "in", number, pa.table({"k": np.arange(rows), "ts": pa.array(times - late, UTC)}))
    spark.conf.set("spark.sql.files.minPartitionNum", "1")
    frame = spark.readStream.schema("k long, ts timestamp").parquet(str(tmp_path / "in"))
    kept = frame.withColumn("id", F.col("k") + 1).where("id > 0")
    ordered = braided.order(kept, time="ts", name="sizes", lateness="auto")
    report = braided.report(run_to_end(ordered, tmp_path / "check", tmp_path / "out"), "sizes").to_dict()
    assert SECOND < report["streams"][0]["lateness"] < 4 * SECOND
