"""Delta tables as sinks and sources: read back by deltalake, polars and DuckDB. Needs the packages of the group `tables`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.crashes import expected, run_to_a_table, write_streams
from support.odd_rows import NAMES, named, shown
from support.odd_rows import ROWS as ROWS_OF_TYPES
from support.table_driver import ROWS as ROWS_A_BATCH
from support.tables import BATCHES, KILLS, ForeignWriter, kill_drivers, read_delta

import braided
from braided.errors import OptionError, TableError
from braided.spark.source import BraidedSource
from braided.spark.table_sink import TableCommit
from braided.storage import delta_log, upkeep
from braided.storage.tables import Layout, open_sink
from braided.storage.writing import batch_folder

deltalake = pytest.importorskip("deltalake")

ON = {"on": "k", "time": "ts", "within": "10 seconds", "lateness": "5 seconds"}
ROWS = pa.schema([("k", pa.int64()), ("s", pa.string())])


def _joined(spark: SparkSession, root: Path) -> DataFrame:
    ddl = "k long, ts timestamp, id long"
    sides = [braided.files(spark, str(root / side), schema=ddl, max_files=1) for side in ("left", "right")]
    return braided.join(*sides, **ON)


def _write(frame: DataFrame, table: str, checkpoint: Path, **options: Any) -> None:
    query = braided.write_table(frame, table, checkpoint=str(checkpoint), trigger="available now", **options)
    query.awaitTermination()


def _pairs(rows: pa.Table) -> Counter[Any]:
    return Counter(zip(rows["id"].to_pylist(), rows["id_right"].to_pylist(), strict=True))


def _batch(sink: Any, target: Any, number: int, rows: pa.RecordBatch, query: str = "q") -> bool:
    writer = target.writer(batch_folder(number), 0, rows.schema)
    for start in range(0, rows.num_rows, 5_000):
        writer.write(rows.slice(start, 5_000))
    return bool(sink.commit(query, number, f"plan {number}", writer.close()))


def _some(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64()), [f"s{number}" for number in numbers]], schema=ROWS)


# --- The sink -------------------------------------------------------------------------------------------------------


def test_a_join_into_a_table_is_exact_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=300, seed=1)
    table = tmp_path / "out"
    _write(_joined(spark, tmp_path), f"delta:{table}", tmp_path / "check")
    wanted = expected(tmp_path)
    assert len(wanted) > 1000
    assert _pairs(read_delta(str(table))) == wanted
    assert _pairs(pl.read_delta(str(table)).to_arrow()) == wanted
    names = deltalake.DeltaTable(str(table)).file_uris()
    with duckdb.connect() as db:
        assert Counter(db.execute(f"select id, id_right from read_parquet({names})").fetchall()) == wanted
    # By its statistics a reader leaves files out.
    first = pl.scan_delta(str(table)).filter(
        pl.col("ts") < pl.lit(1_700_000_003_000_000).cast(pl.Datetime("us", "UTC"))
    )
    stamps = read_delta(str(table))["ts"].cast(pa.int64()).to_numpy()
    assert first.collect().height == (stamps < 1_700_000_003_000_000).sum() > 0


@pytest.mark.parametrize("moment", ["files", "table"])
def test_a_batch_that_fails_before_or_after_its_commit_is_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    write_streams(tmp_path, files=4, rows=200, seed=2)
    table = f"delta:{tmp_path}/out"
    commit = TableCommit.__call__

    def fail(self: Any, files: DataFrame, batch: int) -> None:
        if batch == 2 and moment == "files":
            files.collect()
            raise RuntimeError("lost")
        commit(self, files, batch)
        if batch == 2:
            raise RuntimeError("lost")

    def foreign(number: int) -> None:
        rows = pa.table({"id": [-1 - number], "id_right": [0]})
        deltalake.write_deltalake(str(tmp_path / "out"), rows, mode="append", schema_mode="merge")

    monkeypatch.setattr(TableCommit, "__call__", fail)
    with pytest.raises(Exception, match="lost"):
        _write(_joined(spark, tmp_path), table, tmp_path / "check")
    version = deltalake.DeltaTable(str(tmp_path / "out")).transaction_version(_query(tmp_path / "check"))
    assert version == (1 if moment == "files" else 2)
    monkeypatch.undo()
    with ForeignWriter(foreign) as others:
        _write(_joined(spark, tmp_path), table, tmp_path / "check")
    found = _pairs(read_delta(str(tmp_path / "out")))
    assert Counter({pair: n for pair, n in found.items() if pair[0] >= 0}) == expected(tmp_path)
    assert sum(n for pair, n in found.items() if pair[0] < 0) == others.done > 0


def _query(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "metadata").read_text())["id"])


def test_fifty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    def foreign(number: int) -> None:
        if deltalake.DeltaTable.is_deltatable(table):
            rows = pa.table({"k": [-1 - number], "part": ["foreign"]})
            deltalake.write_deltalake(table, rows, mode="append", partition_by=["part"])

    table = str(tmp_path / "out")
    with ForeignWriter(foreign) as others:
        kill_drivers(tmp_path, f"delta:{table}", {}, kills=50, seed=8)
    found = read_delta(table)["k"].to_pylist()
    assert sorted(k for k in found if k >= 0) == list(range(BATCHES * ROWS_A_BATCH))
    assert len(set(found)) == len(found)
    assert sum(k < 0 for k in found) > 20, others.done


def test_killed_drivers_of_spark_lose_and_double_nothing(tmp_path: Path) -> None:
    write_streams(tmp_path, files=3 * KILLS + 8, rows=60, seed=7)
    run_to_a_table(tmp_path, f"delta:{tmp_path}/out", {}, kills=KILLS, seed=8)
    wanted = expected(tmp_path)
    assert _pairs(read_delta(str(tmp_path / "out"))) == wanted
    names = deltalake.DeltaTable(str(tmp_path / "out")).file_uris()
    with duckdb.connect() as db:
        assert Counter(db.execute(f"select id, id_right from read_parquet({names})").fetchall()) == wanted


def test_of_two_drivers_one_commits_each_batch(tmp_path: Path) -> None:
    sinks = [open_sink(f"delta:{tmp_path}/out") for _ in range(2)]
    targets = [sink.prepare(ROWS, Layout()) for sink in sinks]
    start = Barrier(3)

    def drive(at: int) -> list[bool]:
        done = []
        for number in range(30):
            start.wait()
            done.append(_batch(sinks[at], targets[at], number, _some(number)))
        return done

    def disturb() -> None:
        for _ in range(30):
            start.wait()
            deltalake.write_deltalake(
                str(tmp_path / "out"), pa.table(_some(-1)[:0].schema.empty_table()), mode="append"
            )

    with ThreadPoolExecutor(3) as pool:
        other = pool.submit(disturb)
        one, two = pool.map(drive, (0, 1))
        other.result()
    assert [a != b for a, b in zip(one, two, strict=True)] == [True] * 30
    assert sorted(read_delta(str(tmp_path / "out"))["k"].to_pylist()) == list(range(30))
    named = {Path(name).name for name in deltalake.DeltaTable(str(tmp_path / "out")).file_uris()}
    assert {path.name for path in (tmp_path / "out").glob("0*.parquet")} > named  # the loser's files wait for VACUUM


def test_a_commit_that_is_reported_as_failed_but_was_made_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conditional PUT that a client repeats after a lost answer fails by its own first attempt."""
    sink = open_sink(f"delta:{tmp_path}/out")
    target = sink.prepare(ROWS, Layout())
    assert _batch(sink, target, 0, _some(0))
    make = deltalake.DeltaTable.create_write_transaction

    def answer_lost(*arguments: Any, **options: Any) -> None:
        make(*arguments, **options)
        raise deltalake.exceptions.CommitFailedError("version 2 is there")

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", answer_lost)
    _batch(sink, target, 1, _some(1, 2))
    monkeypatch.undo()
    assert _batch(sink, target, 2, _some(3))
    assert sorted(read_delta(str(tmp_path / "out"))["k"].to_pylist()) == [0, 1, 2, 3]


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    sink = open_sink(f"delta:{tmp_path}/out")
    target = sink.prepare(ROWS, Layout())
    with pytest.raises(
        TableError, match="has no batch of the query q, but its checkpoint has finished 3 batches; use the"
    ):
        _batch(sink, target, 3, _some(1))
    assert _batch(sink, target, 0, _some(1))
    assert not _batch(sink, target, 0, _some(1))
    with pytest.raises(TableError, match="batch 0 was committed with other input"):
        sink.commit("q", 0, "another plan", [])
    assert sink.commit("empty", 0, "p", [])  # so that the table knows the query
    assert sink.commit("empty", 5, "p", []) is False
    assert read_delta(str(tmp_path / "out")).num_rows == 1
    with pytest.raises(OptionError, match=r"table='/x': unknown kind of table; write 'delta:<path or URL>'"):
        open_sink("/x")


@pytest.mark.parametrize("others", [0, 1, 5])
def test_a_table_that_is_replaced_under_a_query_gets_no_batch_of_it(tmp_path: Path, others: int) -> None:
    """However many versions the new table has: the library would add them to those that it has read."""
    sink = open_sink(f"delta:{tmp_path}/out")
    target = sink.prepare(ROWS, Layout())
    for number in range(3):
        assert _batch(sink, target, number, _some(number))
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(TableError, match="the table is missing; restore it, or start with a new checkpoint"):
        _batch(sink, target, 3, _some(3))
    for number in range(others):
        deltalake.write_deltalake(str(tmp_path / "out"), pa.table(_some(100 + number)), mode="append")
        with pytest.raises(TableError, match="was replaced by another one; start a new query with a new checkpoint"):
            _batch(sink, target, 3, _some(3))
    if others:
        assert sorted(read_delta(str(tmp_path / "out"))["k"].to_pylist()) == list(range(100, 100 + others))
        again = open_sink(f"delta:{tmp_path}/out")
        target = again.prepare(ROWS, Layout())
        with pytest.raises(TableError, match="has no batch of the query q, but its checkpoint has finished 3 batches"):
            _batch(again, target, 3, _some(3))


# --- The source -----------------------------------------------------------------------------------------------------


def _foreign(table: Path, *numbers: int, **options: Any) -> None:
    """Append rows as a program does that knows nothing of Braided."""
    stamps = pa.array([1_700_000_000_000_000 + n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC"))
    days = pa.array([f"day {n % 3}/é" if n % 3 else None for n in numbers], pa.string())
    rows = pa.table({"k": pa.array(numbers, pa.int64()), "ts": stamps, "day": days})
    deltalake.write_deltalake(str(table), rows, mode="append", **options)


def _read_all(spark: SparkSession, frame: DataFrame, root: Path) -> list[Any]:
    """Return what a query takes from a table to its end, by Spark's tasks; it goes on where it stopped before."""
    query = frame.writeStream.foreachBatch(lambda rows, _: found.extend(rows.collect()))
    found: list[Any] = []
    query.option("checkpointLocation", str(root)).trigger(availableNow=True).start().awaitTermination()
    return found


def test_a_table_is_a_stream_of_the_rows_that_come(spark: SparkSession, tmp_path: Path) -> None:
    table, check = tmp_path / "in", tmp_path / "check"
    for start in range(0, 40, 10):
        _foreign(table, *range(start, start + 10), partition_by=["day"])

    def take(**options: Any) -> list[int]:
        frame = braided.table(spark, f"delta:{table}", **options)
        assert frame.columns == ["k", "ts", "day"]
        rows = _read_all(spark, frame, check)
        assert all(row["day"] == (f"day {row['k'] % 3}/é" if row["k"] % 3 else None) for row in rows)
        return [row["k"] for row in rows]

    assert sorted(take()) == list(range(40))
    assert take() == []
    _foreign(table, 40, 41)
    deltalake.DeltaTable(str(table)).optimize.compact()
    _foreign(table, 42)
    assert sorted(take(max_files=1)) == [40, 41, 42]
    deltalake.DeltaTable(str(table)).delete("k = 3")
    with pytest.raises(Exception, match=r"version 7 deletes or changes rows \(DELETE\), but a stream can only add"):
        take()


def test_a_join_of_tables_reads_their_files_in_its_routers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(5):
        _foreign(tmp_path / "in", *range(number * 20, number * 20 + 20), partition_by=["day"])
    sides = [braided.table(spark, f"delta:{tmp_path}/in", max_files=most) for most in (3, 1)]
    joined = braided.join(
        sides[0].where("k > 10").select("k", "ts", "day"), sides[1].select("day", "ts"), on="day", time="ts",
        within="10 seconds", lateness="1 hour",
    )  # fmt: skip
    braided.explain(joined)
    assert capsys.readouterr().out.count("are read by the routers") == 2
    _write(joined, f"delta:{tmp_path}/out", tmp_path / "check", partition_by="day")
    rows, found = read_delta(str(tmp_path / "in")), read_delta(str(tmp_path / "out"))
    with duckdb.connect() as db:
        db.register("rows", rows)
        db.register("found", found)
        wanted = db.execute(
            """select a.k, a.ts, b.ts, a.day from rows a join rows b on a.day = b.day and a.k > 10
            and abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 10000000 order by all"""
        ).fetchall()
        assert db.execute("select k, ts, ts_right, day from found order by all").fetchall() == wanted
    assert len(wanted) > 100
    assert pl.read_delta(str(tmp_path / "out"))["day"].value_counts().height == 2


@pytest.mark.parametrize("versions", [1, 3, 6])
def test_a_table_that_is_replaced_under_a_stream_stops_it(tmp_path: Path, versions: int) -> None:
    table = tmp_path / "in"
    for number in range(3):
        _foreign(table, number)
    log = delta_log.DeltaLog(str(table))
    assert log.latest() == 2
    _foreign(table, 3)
    assert log.latest() == 3
    shutil.rmtree(table)
    for number in range(versions):
        _foreign(table, 100 + number)
    with pytest.raises(TableError, match="was replaced by another one; start a new query with a new checkpoint"):
        log.latest()
    shutil.rmtree(table)
    with pytest.raises(TableError, match="is missing; restore it, or start a new query"):
        log.latest()


def test_a_stream_of_a_table_has_its_values_of_every_type(tmp_path: Path) -> None:
    tables = {"types": (ROWS_OF_TYPES, None)}
    tables |= {f"{at}": (named(name, ["x/y", name, None]), [name]) for at, name in enumerate(NAMES)}
    for column in ("ts", "ntz", "flag", "i8", "day"):
        tables[column] = ROWS_OF_TYPES.select(["id", column]).slice(0, 3), [column]
    for at, (rows, by) in tables.items():
        deltalake.write_deltalake(f"{tmp_path}/{at}", pa.table(rows), partition_by=by)
        assert shown(_read_in_process(f"delta:{tmp_path}/{at}")) == shown(rows)


def _read_in_process(place: str) -> pa.Table:
    """Return the rows of a stream as Spark's tasks read them, by what Spark calls."""
    schema = BraidedSource({"path": place}).schema()
    assert not isinstance(schema, str)
    reader = BraidedSource({"path": place}).streamReader(schema)
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start))
    return pa.Table.from_batches([rows for task in tasks for rows in reader.read(task)])


def test_a_stream_of_a_table_that_braided_writes(spark: SparkSession, tmp_path: Path) -> None:
    _foreign(tmp_path / "in", *range(50))
    for number in range(3):
        stream = braided.table(spark, f"delta:{tmp_path}/in")
        _write(stream.select("k", "ts"), f"delta:{tmp_path}/out", tmp_path / "check")
        assert sorted(read_delta(str(tmp_path / "out"))["k"].to_pylist()) == list(range(50 + number * 5))
        _foreign(tmp_path / "in", *range(50 + number * 5, 55 + number * 5))


def test_what_a_stream_of_a_table_does_not_understand_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "in"
    with pytest.raises(OptionError, match="there is no Delta table"):
        braided.table(spark, f"delta:{table}")
    _foreign(table, 1)
    with pytest.raises(OptionError, match="only Delta tables can be read as streams"):
        braided.table(spark, "iceberg:a.b.c")
    frame = braided.table(spark, f"delta:{table}")
    assert len(_read_all(spark, frame, tmp_path / "check")) == 1
    rows = pa.table({"k": [2], "new": ["x"]})
    deltalake.write_deltalake(str(table), rows, mode="append", schema_mode="merge")
    with pytest.raises(Exception, match="version 1 adds the column 'new'; start the query again to read it, or set"):
        _read_all(spark, frame, tmp_path / "check")
    lenient = braided.table(spark, f"delta:{table}", add_columns=True)
    assert [row["new"] for row in _read_all(spark, lenient, tmp_path / "check")] == ["x"]
    deltalake.write_deltalake(str(tmp_path / "bytes"), pa.table({"k": [1], "b": [b"x"]}), partition_by=["b"])
    with pytest.raises(TableError, match="partition column 'b' is binary; use Spark's own connector"):
        braided.table(spark, f"delta:{tmp_path}/bytes")
    log = delta_log.DeltaLog(str(table))
    for action, message in (
        ({"add": {"path": "a", "size": 1, "partitionValues": {}, "dataChange": True, "deletionVector": {}}}, "deletion vectors"),
        ({"protocol": {"readerFeatures": ["variantType"]}}, "unsupported feature 'variantType'"),
        ({"metaData": _metadata(table, {"delta.columnMapping.mode": "name"})}, "uses column mapping"),
        ({"metaData": {**_metadata(table, {}), "partitionColumns": ["k"]}}, r"is partitioned by \['k'\], not by"),
    ):  # fmt: skip
        (table / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(action))
        with pytest.raises(TableError, match=message):
            log.files(2, whole=False)
    with pytest.raises(
        TableError, match="version 9 was deleted from the log before the stream read it; start the query"
    ):
        log.files(9, whole=False)
    with pytest.raises(TableError, match="is not the table that the checkpoint has read from"):
        log.between(delta_log.Position("another", 0), delta_log.Position(log.id, 2))


def _metadata(table: Path, configuration: dict[str, str]) -> dict[str, Any]:
    lines = (table / "_delta_log" / f"{1:020d}.json").read_text().splitlines()
    [found] = [json.loads(line)["metaData"] for line in lines if '"metaData"' in line]
    return {**found, "configuration": configuration}


# --- Layout and evolution -------------------------------------------------------------------------------------------


def test_columns_that_come_and_go(tmp_path: Path) -> None:
    table = str(tmp_path / "out")
    sink = open_sink(f"delta:{table}")
    assert _batch(sink, sink.prepare(ROWS, Layout()), 0, _some(1))
    wider = pa.record_batch({"k": pa.array([2]), "s": ["s2"], "w": pa.array([0.5])})
    again = open_sink(f"delta:{table}")
    with pytest.raises(TableError, match="column 'w' is not in the table; drop it, or set add_columns=True to add it"):
        again.prepare(wider.schema, Layout())
    target = again.prepare(wider.schema, Layout(add_columns=True))
    assert _batch(again, target, 1, wider)
    with pytest.raises(TableError, match="column 'w' of the table is not in the rows; add it, or set add_columns"):
        _batch(sink, sink.prepare(ROWS, Layout()), 2, _some(3))
    narrow = open_sink(f"delta:{table}")
    assert _batch(narrow, narrow.prepare(ROWS, Layout(add_columns=True)), 2, _some(3))
    found = read_delta(table).sort_by("k")
    assert found.to_pydict() == {"k": [1, 2, 3], "s": ["s1", "s2", "s3"], "w": [None, 0.5, None]}
    for rows, message in (
        (pa.schema([("k", pa.int32()), ("s", pa.string())]), "column 'k' is integer in the rows, but long in the table; cast"),
        (pa.schema([("K", pa.int64()), ("s", pa.string())]), "column 'K' is called 'k' in the table; rename it"),
        (pa.schema([("k x", pa.int64())]), "column 'k x': Delta allows no spaces"),
        (pa.schema([("k", pa.duration("us"))]), "column 'k': Delta has no type for duration"),
    ):  # fmt: skip
        with pytest.raises(TableError, match=message):
            open_sink(f"delta:{table}").prepare(rows, Layout(add_columns=True))
    deltalake.DeltaTable(table).alter.add_constraint({"positive": "k > 0"})
    with pytest.raises(TableError, match="Braided cannot check the table's condition 'k > 0'"):
        _batch(narrow, target, 3, wider)


def test_partitions_and_file_sizes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 40_000
    rows = pa.record_batch({
        "v": rng.integers(0, 1 << 60, n),
        "day": pa.array(19_000 + rng.integers(0, 3, n), pa.int32()).cast(pa.date32()),
        "kind": pa.array(["a b", "é/%", "", None]).take(pa.array(rng.integers(0, 4, n))),
        "flag": pa.array(rng.integers(0, 2, n) == 1),
    })  # fmt: skip
    sink = open_sink(f"delta:{tmp_path}/out")
    target = sink.prepare(rows.schema, Layout(("day", "kind", "flag"), "none", 4_000))
    for number in range(2):
        assert _batch(sink, target, number, rows.slice(number * n // 2, n // 2))
    with pytest.raises(
        OptionError, match=r"partition_by=\['v'\]: the table is partitioned by \['day', 'kind', 'flag'\]"
    ):
        sink.prepare(rows.schema, Layout(("v",)))
    with pytest.raises(
        OptionError, match="partition_by='v': the column is double; partition by a string, an integer, a date"
    ):
        open_sink(f"delta:{tmp_path}/new").prepare(pa.schema([("v", pa.float64())]), Layout(("v",)))
    opened = deltalake.DeltaTable(str(tmp_path / "out"))
    actions = pa.table(opened.get_add_actions())
    sizes = actions["size_bytes"].to_numpy()
    assert 4_000 < sizes.max() < 9_000  # the last row group may be as large as what was there
    assert len(sizes) > 2 * 3 * 3 * 2
    with duckdb.connect() as db:
        db.register("rows", pa.table(rows))
        wanted = db.execute("select v, day, nullif(kind, ''), flag from rows order by all").fetchall()
        for found in (read_delta(str(tmp_path / "out")), pl.read_delta(str(tmp_path / "out")).to_arrow()):
            db.register("found", found)
            assert db.execute("select v, day, nullif(kind, ''), flag from found order by all").fetchall() == wanted
        before = len(sizes)
        sink.optimize()
        assert len(deltalake.DeltaTable(str(tmp_path / "out")).file_uris()) <= before
        db.register("found", read_delta(str(tmp_path / "out")))
        assert db.execute("select v, day, kind, flag from found order by all").fetchall() == wanted


def test_values_of_every_type_and_names_of_every_kind_come_back(tmp_path: Path) -> None:
    wanted = {"types": ROWS_OF_TYPES} | {f"{at}": named(name, ["x", None]) for at, name in enumerate(NAMES)}
    for at, rows in wanted.items():
        sink = open_sink(f"delta:{tmp_path}/{at}")
        assert _batch(sink, sink.prepare(rows.schema, Layout()), 0, rows)
        for found in (read_delta(f"{tmp_path}/{at}"), pl.read_delta(f"{tmp_path}/{at}").to_arrow()):
            assert shown(found) == shown(rows)
    for at, name in enumerate(NAMES):
        rows = named(name, ["x/y", name, None])
        sink = open_sink(f"delta:{tmp_path}/by{at}")
        assert _batch(sink, sink.prepare(rows.schema, Layout((name,))), 0, rows)
        assert shown(read_delta(f"{tmp_path}/by{at}")) == shown(rows)
        if ":" not in name:  # polars looks for the column in the name of the folder, where a colon cannot be
            assert shown(pl.read_delta(f"{tmp_path}/by{at}").to_arrow()) == shown(rows)
    inner = pa.struct([("a b", pa.int64())])
    for kind, message in (
        (pa.list_(inner), r"column 'x\.a b': Delta allows no spaces, commas, brackets or '=' in names; rename it"),
        (pa.list_(pa.null()), "column 'x': Delta has no type for list<item: null>; cast it"),
    ):
        with pytest.raises(TableError, match=message):
            open_sink(f"delta:{tmp_path}/no").prepare(pa.schema([("x", kind)]), Layout())


@pytest.mark.parametrize("column", ROWS_OF_TYPES.schema.names[1:])
def test_a_column_of_any_type_can_be_added(tmp_path: Path, column: str) -> None:
    narrow, wide = ROWS_OF_TYPES.select(["id"]), ROWS_OF_TYPES.select(["id", column])
    for number, rows in enumerate((narrow, wide, narrow)):
        sink = open_sink(f"delta:{tmp_path}/out")
        assert _batch(sink, sink.prepare(rows.schema, Layout(add_columns=True)), number, rows)
    wanted = pa.concat_tables([pa.table(rows) for rows in (narrow, wide, narrow)], promote_options="default")
    assert shown(read_delta(f"{tmp_path}/out")) == shown(wanted)
    assert shown(pl.read_delta(f"{tmp_path}/out").to_arrow()) == shown(wanted)


def test_small_files_are_compacted_beside_the_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        _foreign(tmp_path / "in", number)
    monkeypatch.setattr(upkeep.Rounds.__init__, "__defaults__", (5,))
    stream = braided.table(spark, f"delta:{tmp_path}/in", max_files=1)
    _write(stream, f"delta:{tmp_path}/out", tmp_path / "check", optimize=True)
    found = deltalake.DeltaTable(str(tmp_path / "out"))
    assert "OPTIMIZE" in {entry["operation"] for entry in found.history()}
    assert sorted(read_delta(str(tmp_path / "out"))["k"].to_pylist()) == list(range(12))
    # Whoever streams the table does not notice.
    again = _read_all(spark, braided.table(spark, f"delta:{tmp_path}/out"), tmp_path / "again")
    assert sorted(row["k"] for row in again) == list(range(12))
