"""The direct path on Spark: files read by routers, files written by workers, topics between queries."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import braided
from braided.errors import BraidedError, OptionError, TopicError
from braided.spark import direct

ON = {"on": "k", "time": "t", "within": "3 seconds", "lateness": "5 seconds"}


def _make(folder: Path, files: int, rows: int = 300, seed: int = 0) -> pa.Table:
    """Write files of rows whose times go on from file to file; return all rows."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    tables = []
    for number in range(files):
        times = random.integers(number * 5_000_000, (number + 1) * 5_000_000, rows)
        table = pa.table({
            "k": random.integers(0, 40, rows),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "v": random.random(rows),
            "a.b": pa.array([f"x{n}" for n in random.integers(0, 9, rows)]),
            "tags": pa.array([[int(n)] for n in random.integers(0, 9, rows)]),
        })  # fmt: skip
        path = folder / f"{number:03d}.parquet"
        pq.write_table(table, path, row_group_size=100)
        os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
        tables.append(table)
    return pa.concat_tables(tables)


def _oracle(left: pa.Table, right: pa.Table, columns: str, where: str = "true") -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("l", left)
        database.register("r", right)
        return sorted(
            database.sql(
                f"select {columns} from l join r on l.k = r.k and abs(epoch_us(l.t) - epoch_us(r.t)) <= 3000000 and {where}"
            ).fetchall(),
            key=repr,
        )


def _committed(path: Path) -> pa.Table:
    files = braided.topic(str(path)).files()
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("rows", table)
        return sorted(database.sql("select * from rows").fetchall(), key=repr)


def _write(frame: DataFrame, path: Path) -> None:
    query = braided.write_files(frame, str(path), checkpoint=f"{path}-checkpoint", trigger="available now")
    query.awaitTermination()


def test_a_join_from_files_to_files_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    left, right = _make(tmp_path / "l", 4), _make(tmp_path / "r", 4, seed=1)
    one, other = (braided.files(spark, str(tmp_path / side), max_files=1) for side in "lr")
    joined = braided.join(
        one.where("v > 0.2 and k < 35").select("k", "t", "`a.b`", "tags"),
        other.select("k", "t", F.col("v").alias("w")),
        **ON,
    )
    _write(joined, tmp_path / "out")
    wanted = _oracle(left, right, 'l.k, l.t, l."a.b", l.tags, r.t, r.v', "l.v > 0.2 and l.k < 35")
    assert len(wanted) > 1000
    assert _rows(_committed(tmp_path / "out")) == wanted
    assert [m.batch for m in braided.topic(str(tmp_path / "out")).manifests() if m.kind == "batch"] == [0, 1, 2, 3]


def test_explain_says_who_reads_the_files(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _make(tmp_path / "l", 1)
    files = braided.files(spark, str(tmp_path / "l"))
    cases = {
        "left: its files are read by the routers": files,
        "left: its files are read by Spark: column v is computed: (v + CAST(1.0BD": files.withColumn("v", F.expr("v + 1.0")),
        "left: its files are read by Spark: between files and operator is a watermark": files.withWatermark("t", "1 second"),
        "left: its files are read by Spark: the filter upper(`a.b`) LIKE": files.where("upper(`a.b`) like 'X%'"),
        "left: its files are read by Spark: between files and operator is Deduplicate": files.dropDuplicates(["k"]),
    }  # fmt: skip
    for said, frame in cases.items():
        braided.explain(braided.join(frame, files.select("k", "t"), on="k", time="t", within="3 seconds"))
        shown = capsys.readouterr().out
        assert said in shown, shown


def test_partitions_of_a_directory_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    rows = _make(tmp_path / "l/day=2024-01-01/kind=a b", 1)
    more = _make(tmp_path / "l/day=2024-01-02/kind=c", 1, seed=3)
    _make(tmp_path / "l/_hidden", 1)
    files = braided.files(spark, str(tmp_path / "l"))
    assert files.columns[-2:] == ["day", "kind"]
    ordered = braided.order(files.select("k", "t", "day", "kind"), time="t", key="k", lateness="0 seconds", late="drop")
    _write(ordered, tmp_path / "out")
    with duckdb.connect() as database:
        database.register("out", _committed(tmp_path / "out"))
        found = database.sql("select day, kind, count(*) from out group by all order by all").fetchall()
        last = max(rows["t"].to_pylist() + more["t"].to_pylist())  # what waits for the next row
    assert [(str(day), kind) for day, kind, _ in found] == [("2024-01-01", "a b"), ("2024-01-02", "c")]
    assert sum(count for *_, count in found) == sum(t < last for t in rows["t"].to_pylist() + more["t"].to_pylist())


def test_large_files_are_cut_so_that_all_cores_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = _make(tmp_path / "l", 2, rows=2000), _make(tmp_path / "r", 2, seed=1)
    monkeypatch.setattr(direct, "CUT", 20_000)
    one, other = (braided.files(spark, str(tmp_path / side), max_files=1) for side in "lr")
    joined = braided.join(one.select("k", "t", "v"), other.select("k", "t"), name="cut", **ON)
    query = braided.write_files(joined, str(tmp_path / "out"), checkpoint=str(tmp_path / "c"), trigger="available now")
    query.awaitTermination()
    assert _rows(_committed(tmp_path / "out")) == _oracle(left, right, "l.k, l.t, l.v, r.t")
    [routed] = [v for k, v in query.lastProgress["observedMetrics"].items() if k.endswith(":route")]
    rows = [report["rows"] for report in map(json.loads, routed["reports"]) if report["side"] == 0]
    assert sum(rows) == 2000
    assert max(rows) < 2000


def _dying_once(flag: Path) -> Any:
    def pass_on(batches: Any) -> Any:
        yield from batches
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return pass_on


def test_a_python_worker_that_is_killed_leaves_nothing_twice(spark: SparkSession, tmp_path: Path) -> None:
    rows = _make(tmp_path / "l", 2)
    frame = spark.readStream.schema(spark.read.parquet(str(tmp_path / "l")).schema).parquet(str(tmp_path / "l"))
    dying = frame.select("k", "t").mapInArrow(_dying_once(tmp_path / "flag"), "k long, t timestamp")
    _write(dying, tmp_path / "out")
    assert (tmp_path / "flag").exists()
    assert _rows(_committed(tmp_path / "out")) == _rows(rows.select(["k", "t"]))
    named = braided.topic(str(tmp_path / "out")).files()
    assert sorted(str(path) for path in (tmp_path / "out" / "_data").rglob("*.parquet")) == sorted(named)


def test_rows_of_any_dataframe_are_written(spark: SparkSession, tmp_path: Path) -> None:
    rows = _make(tmp_path / "l", 3)
    frame = spark.readStream.schema(spark.read.parquet(str(tmp_path / "l")).schema).parquet(str(tmp_path / "l"))
    _write(frame.where("k % 2 = 0"), tmp_path / "out")
    kept = rows.filter(pa.array([k % 2 == 0 for k in rows["k"].to_pylist()]))
    assert _rows(_committed(tmp_path / "out")) == _rows(kept)
    assert spark.read.parquet(*braided.topic(str(tmp_path / "out")).files()).count() == len(kept)


def test_what_a_user_puts_on_top_of_a_result_is_not_passed_by(spark: SparkSession, tmp_path: Path) -> None:
    left, right = _make(tmp_path / "l", 2), _make(tmp_path / "r", 2, seed=1)
    one, other = (braided.files(spark, str(tmp_path / side), max_files=1) for side in "lr")
    joined = braided.join(one.select("k", "t", "tags"), other.select("k", "t"), **ON)  # tags: results are unpacked
    for number, (flat, frame) in enumerate(
        {"l.k": joined.select("k"), "l.k, l.tags": joined.select("k", "tags")}.items()
    ):
        twice = frame.mapInArrow(lambda batches: (batch for batch in batches for _ in range(2)), frame.schema)
        _write(twice, tmp_path / f"out{number}")
        wanted = _oracle(left, right, flat)
        assert _rows(_committed(tmp_path / f"out{number}")) == sorted([*wanted, *wanted], key=repr)
    _write(joined.where("k < 20").select("k"), tmp_path / "some")
    assert _rows(_committed(tmp_path / "some")) == _oracle(left, right, "l.k", "l.k < 20")


def test_folders_that_become_columns_later_stop_the_query(spark: SparkSession, tmp_path: Path) -> None:
    _make(tmp_path / "l", 1)
    files = braided.files(spark, str(tmp_path / "l"), schema="k long, t timestamp, day string")
    ordered = braided.order(files, time="t", key="k", lateness="0 seconds")
    _make(tmp_path / "l" / "day=1", 1)
    query = braided.write_files(ordered, tmp_path / "out", checkpoint=tmp_path / "c", trigger="available now")
    with pytest.raises(Exception, match=r"Invalid batch: .*day"):  # Spark's own words
        query.awaitTermination()


def test_a_chain_through_a_topic_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    left, right = _make(tmp_path / "l", 3), _make(tmp_path / "r", 3, seed=1)
    third = _make(tmp_path / "3", 3, seed=2)
    one, other, x = (braided.files(spark, str(tmp_path / side), max_files=1) for side in ("l", "r", "3"))
    middle = braided.join(one.select("k", "t"), other.select("k", "t", "v"), **ON)
    _write(middle, tmp_path / "middle")
    read = braided.files(spark, str(tmp_path / "middle"), max_files=2)
    assert read.columns == ["k", "t", "t_right", "v"]
    # Results of the first join come late by its window and lateness; the marks of its time column say so.
    chained = braided.join(
        read,
        x.select("k", "t", "`a.b`"),
        on="k",
        time="t",
        within="3 seconds",
        lateness=("9 seconds", "5 seconds"),
        suffixes=("", "_x"),
    )
    _write(chained, tmp_path / "out")
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        pairs = _oracle(left, right, "l.k, l.t, r.t, r.v")
        database.register("l", left), database.register("r", right), database.register("x", third)  # fmt: skip
        wanted = database.sql(
            """select l.k, l.t, r.t, r.v, x.t, x."a.b" from l join r on l.k = r.k
                 and abs(epoch_us(l.t) - epoch_us(r.t)) <= 3000000
               join x on x.k = l.k and abs(epoch_us(l.t) - epoch_us(x.t)) <= 3000000"""
        ).fetchall()
    assert len(pairs) > 100
    assert _rows(_committed(tmp_path / "out")) == sorted(wanted, key=repr)


def test_a_topic_is_a_stream_for_native_operators_too(spark: SparkSession, tmp_path: Path) -> None:
    rows = _make(tmp_path / "l", 2)
    _write(braided.files(spark, str(tmp_path / "l"), max_files=1), tmp_path / "topic")
    frame = braided.files(spark, str(tmp_path / "topic")).groupBy("k").count()
    query = frame.writeStream.format("memory").queryName("counted").outputMode("complete")
    query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert sum(row["count"] for row in spark.table("counted").collect()) == len(rows)


def test_a_batch_that_runs_again_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    left, right = _make(tmp_path / "l", 3), _make(tmp_path / "r", 3, seed=1)
    out, checkpoint = tmp_path / "out", tmp_path / "out-checkpoint"

    def run() -> None:
        one, other = (braided.files(spark, str(tmp_path / side), max_files=1).select("k", "t") for side in "lr")
        _write(braided.join(one, other, **ON), out)

    run()
    before = braided.topic(str(out)).files()
    for commit in sorted((checkpoint / "commits").glob("*2")):
        commit.unlink()  # as if the driver had died between the manifest and Spark's own commit
    run()
    assert braided.topic(str(out)).files() == before
    assert sorted(str(path) for path in (out / "_data").rglob("*.parquet")) == sorted(before)
    assert _rows(_committed(out)) == _oracle(left, right, "l.k, l.t, r.t")


def test_a_query_that_cannot_start_leaves_no_topic(spark: SparkSession, tmp_path: Path) -> None:
    _make(tmp_path / "in", 1, rows=20)
    rows = braided.files(spark, str(tmp_path / "in"))
    with pytest.raises(Exception, match=r"Append output mode not supported|STREAMING_OUTPUT_MODE"):
        _write(rows.groupBy("k").count(), tmp_path / "out")
    _write(rows.select("k"), tmp_path / "out")
    assert len(_committed(tmp_path / "out")) == 20


def test_another_query_cannot_write_to_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    _make(tmp_path / "l", 1)
    files = braided.files(spark, str(tmp_path / "l"))
    _write(files, tmp_path / "out")
    query = braided.write_files(files, str(tmp_path / "out"), checkpoint=str(tmp_path / "new"), trigger="available now")
    with pytest.raises(
        Exception, match=r"belongs to the query [0-9a-f-]{36}, but this is [0-9a-f-]{36}; use the checkpoint"
    ):
        query.awaitTermination()
    with pytest.raises(TopicError, match="the topic has another schema; write to a new path"):
        braided.write_files(files.select("k"), str(tmp_path / "out"), checkpoint=str(tmp_path / "new"))


def test_files_whose_names_are_patterns_to_spark_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    left, right = _make(tmp_path / "l", 3), _make(tmp_path / "r", 3, seed=1)
    (tmp_path / "l" / "001.parquet").rename(tmp_path / "l" / "1 [a].parquet")
    (tmp_path / "r" / "002.parquet").rename(tmp_path / "r" / "{2,3}*.parquet")

    def joined() -> DataFrame:
        one, other = (braided.files(spark, str(tmp_path / side), max_files=2) for side in "lr")
        return braided.join(one.select("k", "t"), other.select("k", "t", F.col("v").alias("w")), **ON)

    _write(joined(), tmp_path / "out")
    assert _rows(_committed(tmp_path / "out")) == _oracle(left, right, "l.k, l.t, r.t, r.v")
    assert [m.batch for m in braided.topic(str(tmp_path / "out")).manifests() if m.kind == "batch"] == [0, 1]


def test_an_odd_name_behind_a_link_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    for day in ("day=1", "day=2"):
        _make(tmp_path / "stored" / day, 2, seed=len(day))
        (tmp_path / "stored" / day / "001.parquet").rename(tmp_path / "stored" / day / "[1].parquet")
        (tmp_path / "l").mkdir(exist_ok=True)
        (tmp_path / "l" / day).symlink_to(tmp_path / "stored" / day)
    files = braided.files(spark, str(tmp_path / "l")).select("k", "t", "day")
    _write(braided.join(files, files.select("k", "t"), **ON), tmp_path / "out")
    with duckdb.connect() as database:
        rows = database.sql(f"select k, t, day from '{tmp_path}/stored/*/*.parquet'").to_arrow_table()
    assert _rows(_committed(tmp_path / "out")) == _oracle(rows, rows, "l.k, l.t, l.day, r.t")


def test_an_odd_name_that_comes_later_stops_the_query_until_it_is_started_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = _make(tmp_path / "l", 3), _make(tmp_path / "r", 3, seed=1)
    one, other = (braided.files(spark, str(tmp_path / side)) for side in "lr")
    first = braided.join(one.select("k", "t"), other.select("k", "t", "v"), **ON)
    (tmp_path / "l" / "001.parquet").rename(tmp_path / "l" / "001?.parquet")
    with pytest.raises(Exception, match=r"001\?\.parquet: start the query again"):
        _write(first, tmp_path / "out")
    assert braided.topic(str(tmp_path / "out")).files() == []
    monkeypatch.setattr(direct, "_LOOKED_AT", 0)  # names are looked at, however many there are
    one, other = (braided.files(spark, str(tmp_path / side)) for side in "lr")
    _write(braided.join(one.select("k", "t"), other.select("k", "t", "v"), **ON), tmp_path / "out")
    assert _rows(_committed(tmp_path / "out")) == _oracle(left, right, "l.k, l.t, r.t, r.v")


def test_odd_names_that_spark_reads_itself_are_alone_in_their_batches(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    left, right = _make(tmp_path / "l", 3), _make(tmp_path / "r", 3, seed=1)
    (tmp_path / "l" / "001.parquet").rename(tmp_path / "l" / "001].parquet")
    one, other = braided.files(spark, str(tmp_path / "l"), max_files=3), braided.files(spark, str(tmp_path / "r"))
    assert "l: has '001].parquet'" in caplog.text
    assert "r: has" not in caplog.text
    joined = braided.join(
        one.withWatermark("t", "5 seconds").select("k", "t"),
        other.withWatermark("t", "20 seconds").select("k", "t", "v"),
        on="k",
        time="t",
        within="3 seconds",
    )
    braided.explain(joined)
    assert "Spark computes from rows; one file per batch, since names have glob characters" in capsys.readouterr().out
    _write(joined, tmp_path / "out")
    assert _rows(_committed(tmp_path / "out")) == _oracle(left, right, "l.k, l.t, r.t, r.v")
    query = one.groupBy("k").count().writeStream.format("memory").queryName("odd").outputMode("complete")
    query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert sum(row["count"] for row in spark.table("odd").collect()) == len(left)


def test_a_topic_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = _make(tmp_path / "l", 2)
    topic = tmp_path / "hits {1}[2]*?"
    _write(braided.files(spark, str(tmp_path / "l"), max_files=1), topic)
    for number, watermark in enumerate((False, True)):
        files = braided.files(spark, str(topic)).select("k", "t")
        one, other = (files.withWatermark("t", "5 seconds") if watermark else files for _ in range(2))
        _write(braided.join(one, other, on="k", time="t", within="3 seconds"), tmp_path / f"out {number}")
        assert _rows(_committed(tmp_path / f"out {number}")) == _oracle(rows, rows, "l.k, l.t, r.t")


@pytest.mark.parametrize("name", ["a{b}", r"a\{b\}", "file:a{b}"])
def test_a_folder_that_spark_takes_for_a_pattern_of_others_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    for folder in ("a{b}", "ab"):  # the pattern finds the second one
        _make(tmp_path / folder, 1)
    path = f"file:{tmp_path}/{name[5:]}" if name.startswith("file:") else str(tmp_path / name)
    with pytest.raises(OptionError, match=r"^path='.*a.*b.*': Spark reads .* as a glob pattern"):
        braided.files(spark, path)
    assert braided.files(spark, str(tmp_path / "a[b]")).columns == ["k", "t", "v", "a.b", "tags"]


def test_bad_calls_say_what_to_do(spark: SparkSession, tmp_path: Path) -> None:
    _make(tmp_path / "l", 1)
    files = braided.files(spark, str(tmp_path / "l"))
    with pytest.raises(OptionError, match="max_files=0: write a number of 1 or more"):
        braided.files(spark, str(tmp_path / "l"), max_files=0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match=r"path='.*/empty': no file there to read a schema from; give schema="):
        braided.files(spark, str(tmp_path / "empty"))
    with pytest.raises(OptionError, match="reader='x': only readers of a topic have names"):
        braided.files(spark, str(tmp_path / "l"), reader="x")
    with pytest.raises(OptionError, match=r"df: not a stream; write a table with df\.write\.parquet"):
        braided.write_files(spark.range(3), str(tmp_path / "o"), checkpoint=str(tmp_path / "c"))
    with pytest.raises(OptionError, match="trigger='soon': not a duration"):
        braided.write_files(files, str(tmp_path / "o"), checkpoint=str(tmp_path / "c"), trigger="soon")
    with pytest.raises(TopicError, match=r"not a topic; braided\.write_files creates one"):
        braided.topic(str(tmp_path / "l"))
    (tmp_path / "l" / "000.parquet").write_bytes(b"PAR1 nothing PAR1")
    joined = braided.join(files.select("k", "t"), files.select("k", "t", "v"), **ON)
    query = braided.write_files(joined, str(tmp_path / "p"), checkpoint=str(tmp_path / "d"), trigger="available now")
    with pytest.raises(Exception, match=r"000\.parquet: the file is not valid Parquet"):
        query.awaitTermination()
    assert braided.topic(str(tmp_path / "p")).files() == []
    assert issubclass(TopicError, BraidedError)
