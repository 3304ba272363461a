"""Iceberg tables as sinks, in a SQL catalog: read back by pyiceberg, polars and DuckDB. Needs the group `tables`."""

from __future__ import annotations

import datetime
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.crashes import expected, run_to_a_table, write_streams
from support.odd_rows import NAMES, ONLY_ICEBERG, named, shown
from support.odd_rows import ROWS as ROWS_OF_TYPES
from support.table_driver import ROWS as ROWS_A_BATCH
from support.tables import BATCHES, KILLS, ForeignWriter, kill_drivers

import braided
from braided.errors import OptionError, TableError
from braided.storage.tables import Layout, open_sink
from braided.storage.writing import batch_folder

pytest.importorskip("pyiceberg")
from pyiceberg.transforms import HourTransform

pytest.importorskip("sqlalchemy")

NAME = "iceberg:lake.calls.pairs"
ROWS = pa.schema([("k", pa.int64()), ("s", pa.string())])


def _catalog(root: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/lake"}


def _table(root: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("lake", **_catalog(root)).load_table(("calls", "pairs"))


def _batch(sink: Any, target: Any, number: int, rows: pa.RecordBatch, query: str = "q") -> bool:
    writer = target.writer(batch_folder(number), 0, rows.schema)
    writer.write(rows)
    return bool(sink.commit(query, number, f"plan {number}", writer.close()))


def _some(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64()), [f"s{number}" for number in numbers]], schema=ROWS)


def test_a_join_into_a_table_is_exact_for_every_reader(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=300, seed=1)
    ddl = "k long, ts timestamp, id long"
    sides = [braided.files(spark, str(tmp_path / side), schema=ddl, max_files=1) for side in ("left", "right")]
    joined = braided.join(*sides, on="k", time="ts", within="10 seconds", lateness="5 seconds")
    for _ in range(2):  # again: nothing is left to do
        query = braided.write_table(
            joined, NAME, checkpoint=str(tmp_path / "check"), trigger="available now", partition_by=["hour(ts)", "k"],
            options=_catalog(tmp_path),
        )  # fmt: skip
        query.awaitTermination()
    table, wanted = _table(tmp_path), expected(tmp_path)
    for found in (table.scan().to_arrow(), pl.scan_iceberg(table).collect().to_arrow()):
        assert Counter(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True)) == wanted
    files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    with duckdb.connect() as db:
        assert Counter(db.execute(f"select id, id_right from read_parquet({files})").fetchall()) == wanted
    assert len(list(table.scan(row_filter="k = 7").plan_files())) < len(files) // 20
    # One snapshot for each batch, with its number; the newest is a property too.
    numbers = [int(snapshot.summary["braided.batch"]) for snapshot in table.snapshots()]
    assert numbers == [0, 1, 2, 3]
    assert list(table.properties.values()).count("3") == 1
    with pytest.raises(OptionError, match="optimize=True: pyiceberg cannot compact"):
        braided.write_table(joined, NAME, checkpoint="c", optimize=True, options=_catalog(tmp_path))


def test_fifty_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    def foreign(number: int) -> None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = _table(tmp_path)
        except NoSuchTableError:
            return
        table.append(pa.table({"k": pa.array([-1 - number], pa.int64()), "part": ["foreign"]}))

    with ForeignWriter(foreign) as others:
        kill_drivers(tmp_path, NAME, _catalog(tmp_path), kills=50, seed=8)
    found = _table(tmp_path).scan().to_arrow()["k"].to_pylist()
    assert sorted(k for k in found if k >= 0) == list(range(BATCHES * ROWS_A_BATCH))
    assert len(set(found)) == len(found)
    assert sum(k < 0 for k in found) > 20, others.done


def test_killed_drivers_of_spark_lose_and_double_nothing(tmp_path: Path) -> None:
    write_streams(tmp_path, files=3 * KILLS + 8, rows=60, seed=7)
    run_to_a_table(tmp_path, NAME, _catalog(tmp_path), kills=KILLS, seed=8)
    table, wanted = _table(tmp_path), expected(tmp_path)
    found = table.scan().to_arrow()
    assert Counter(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True)) == wanted
    names = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    with duckdb.connect() as db:
        assert Counter(db.execute(f"select id, id_right from read_parquet({names})").fetchall()) == wanted


def test_of_two_drivers_one_commits_each_batch(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    sinks = [open_sink(NAME, _catalog(tmp_path)) for _ in range(2)]
    targets = [sink.prepare(ROWS, Layout()) for sink in sinks]
    start = Barrier(2)

    def drive(at: int) -> list[bool]:
        done = []
        for number in range(20):
            start.wait()
            done.append(_batch(sinks[at], targets[at], number, _some(number)))
        return done

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(drive, (0, 1))
    assert [a != b for a, b in zip(one, two, strict=True)] == [True] * 20
    table = _table(tmp_path)
    assert sorted(table.scan().to_arrow()["k"].to_pylist()) == list(range(20))
    named = {Path(task.file.file_path).name for task in table.scan().plan_files()}
    assert {
        path.name for path in (tmp_path / "lake").rglob("*.parquet")
    } > named  # the loser's files wait for a clean-up


def test_partitions_by_parts_of_a_time(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    rng = np.random.default_rng(3)
    n = 200
    stamps = pa.array(rng.integers(-40 * 365 * 86_400, 40 * 365 * 86_400, n) * 1_000_000, pa.timestamp("us", "UTC"))
    rows = pa.record_batch({
        "v": np.arange(n), "ts": _with_nulls(stamps, rng), "day": stamps.cast(pa.date32()),
        "tags": pa.array([[{"a": 1}], None]).take(pa.array(rng.integers(0, 2, n))),
    })  # fmt: skip
    for at, by in enumerate(("year(ts)", "month(ts)", "month(day)", "day", "year(day)")):
        sink = open_sink(f"iceberg:lake.calls.by{at}", _catalog(tmp_path))
        assert _batch(sink, sink.prepare(rows.schema, Layout((by,))), 0, rows)
        table = sink._opened()  # type: ignore[attr-defined]
        # pyiceberg 0.12 reads a null list as an empty one, also where it wrote it itself; the files have the null.
        files = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        read = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files).sort_by("v")
        assert read.to_pydict() == pa.table(rows).to_pydict()
        assert table.scan().to_arrow().sort_by("v").drop("tags").to_pydict() == pa.table(rows).drop("tags").to_pydict()
        moment = datetime.datetime(1967, 3, 1, 12, 0, 1, tzinfo=datetime.UTC)
        column, limit = ("ts", moment.isoformat()) if "ts" in by else ("day", moment.date().isoformat())
        found = table.scan(row_filter=f"{column} < '{limit}'").to_arrow()
        with duckdb.connect() as db:
            db.execute("set timezone = 'UTC'")
            db.register("rows", pa.table(rows))
            [(wanted,)] = db.execute(f"select count(*) from rows where {column} < '{limit}'").fetchall()
        assert found.num_rows == wanted > 60
        assert len(list(table.scan(row_filter=f"{column} < '{limit}'").plan_files())) < len(
            list(table.scan().plan_files())
        )
    for by, message in (
        ("bucket(4, v)", r"partition_by='bucket\(4, v\)': df has no such column"),
        ("day(v)", r"partition_by='day\(v\)': the column is long, not a time"),
        ("ts", "partition_by='ts': the column is timestamptz; partition by a string, an integer, a date"),
    ):
        with pytest.raises(OptionError, match=message):
            open_sink("iceberg:lake.calls.new", _catalog(tmp_path)).prepare(rows.schema, Layout((by,)))


def _with_nulls(column: pa.Array[Any], rng: np.random.Generator) -> pa.Array[Any]:
    """Return a column with a tenth of its values null."""
    keep = np.where(rng.random(len(column)) < 0.1, -1, np.arange(len(column)))
    return column.take(pa.array(keep, mask=keep < 0))


def test_a_table_with_a_transform_that_is_not_known_is_refused_by_its_name(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import BucketTransform
    from pyiceberg.types import LongType, NestedField

    catalog = load_catalog("lake", **_catalog(tmp_path))
    catalog.create_namespace("calls")
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
    schema = Schema(NestedField(1, "k", LongType(), required=False))
    catalog.create_table("calls.pairs", schema, partition_spec=spec)
    with pytest.raises(
        OptionError, match=r"partition_by='bucket\[4\]\(k\)': unknown transform; partition by a column, or its year"
    ):
        open_sink(NAME, _catalog(tmp_path)).prepare(pa.schema([("k", pa.int64())]), Layout())


def test_values_of_every_type_and_names_of_every_kind_come_back(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    wanted = [ROWS_OF_TYPES, *(named(name, ["x", None]) for name in (*NAMES, *ONLY_ICEBERG))]
    partitioned = [named(name, ["x/y", name, None, ""]) for name in (*NAMES, *ONLY_ICEBERG)]
    for at, rows in enumerate((*wanted, *partitioned)):
        sink = open_sink(f"iceberg:lake.calls.t{at}", _catalog(tmp_path))
        by = (rows.schema.names[1],) if at >= len(wanted) else ()
        assert _batch(sink, sink.prepare(rows.schema, Layout(by)), 0, rows)
        table = sink._opened()  # type: ignore[attr-defined]
        assert shown(table.scan().to_arrow()) == shown(rows)
        assert shown(pl.scan_iceberg(table).collect().to_arrow()) == shown(rows)


def test_settings_that_a_catalog_lacks_are_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"no catalog 'nosuch' is known; write options={'type': 'rest', 'uri': ...}"):
        open_sink("iceberg:nosuch.calls.pairs")
    settings = {**_catalog(tmp_path)}
    del settings["warehouse"]
    sink = open_sink(NAME, settings)
    with pytest.raises(OptionError, match=r"the catalog has no place for new tables; write options={'warehouse': ...}"):
        sink.prepare(ROWS, Layout())
    sink = open_sink(NAME, _catalog(tmp_path))
    sink.prepare(pa.schema([("s", pa.struct([("a", pa.int64())]))]), Layout())
    with pytest.raises(
        TableError, match="column 's' is struct<a: string> in the rows, but struct<a: long> in the table"
    ):
        sink.prepare(pa.schema([("s", pa.struct([("a", pa.string())]))]), Layout())


def test_partitions_that_change_stop_the_query_until_it_starts_again(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    rows = pa.record_batch({"k": [1], "ts": pa.array([0], pa.timestamp("us", "UTC"))})
    sink = open_sink(NAME, _catalog(tmp_path))
    target = sink.prepare(rows.schema, Layout(("day(ts)",)))
    assert _batch(sink, target, 0, rows)
    with _table(tmp_path).update_spec() as update:
        update.remove_field("ts_day")
        update.add_field("ts", HourTransform(), "ts_hour")
    with pytest.raises(
        TableError, match="partitions or columns were changed while batch 1 was written; start the query"
    ):
        _batch(sink, target, 1, rows)
    again = open_sink(NAME, _catalog(tmp_path))
    target = again.prepare(rows.schema, Layout())
    assert [part.transform for part in target.partitions if part.transform != "void"] == ["hour"]
    assert _batch(again, target, 1, rows)
    assert _table(tmp_path).scan(row_filter="ts < '1970-01-01T00:30:00+00:00'").to_arrow().num_rows == 2


def test_columns_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    sink = open_sink(NAME, _catalog(tmp_path))
    assert _batch(sink, sink.prepare(ROWS, Layout()), 0, _some(1))
    wider = pa.record_batch({"w": pa.array([0.5]), "k": pa.array([2]), "s": ["s2"]})
    again = open_sink(NAME, _catalog(tmp_path))
    with pytest.raises(TableError, match="column 'w' is not in the table; drop it, or set add_columns=True to add it"):
        again.prepare(wider.schema, Layout())
    assert _batch(again, again.prepare(wider.schema, Layout(add_columns=True)), 1, wider)
    with pytest.raises(TableError, match="column 'w' of the table is not in the rows; add it, or set add_columns"):
        sink.prepare(ROWS, Layout())
    assert _batch(sink, sink.prepare(ROWS, Layout(add_columns=True)), 2, _some(3))
    found = _table(tmp_path).scan().to_arrow().sort_by("k")
    assert found.to_pydict() == {"k": [1, 2, 3], "s": ["s1", "s2", "s3"], "w": [None, 0.5, None]}
    for rows, message in (
        (pa.schema([("k", pa.int32())]), "column 'k' is int in the rows, but long in the table; cast it"),
        (pa.schema([("k", pa.duration("us"))]), "column 'k': Iceberg has no type for duration"),
    ):
        with pytest.raises(TableError, match=message):
            open_sink(NAME, _catalog(tmp_path)).prepare(rows, Layout(add_columns=True))
    with pytest.raises(TableError, match="has no batch of the query new, but its checkpoint has finished 3 batches"):
        sink.commit("new", 3, "plan", [])
    with pytest.raises(TableError, match="batch 2 was committed with other input"):
        sink.commit("q", 2, "another plan", [])
    with pytest.raises(OptionError, match=r"write 'iceberg:<catalog>\.<namespace>\.<table>'"):
        open_sink("iceberg:pairs")
