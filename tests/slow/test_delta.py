"""Delta tables as sinks and sources: read back by deltalake, polars and DuckDB. Needs the packages of the group `tables`."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.crashes import expected, run_to_a_table, write_streams
from support.tables import ForeignWriter, read_delta

import braided
from braided.errors import OptionError, TableError
from braided.spark.table_sink import TableCommit
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
    writer.write(rows)
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
    write_streams(tmp_path, files=300, rows=100, seed=7)
    table = str(tmp_path / "out")

    def foreign(number: int) -> None:
        rows = pa.table({"id": [-1 - number], "id_right": [0]})
        if deltalake.DeltaTable.is_deltatable(table):
            deltalake.write_deltalake(table, rows, mode="append", schema_mode="merge")

    with ForeignWriter(foreign) as others:
        run_to_a_table(tmp_path, f"delta:{table}", {}, kills=50, seed=8)
    found = _pairs(read_delta(table))
    assert Counter({pair: n for pair, n in found.items() if pair[0] >= 0}) == expected(tmp_path)
    assert sum(n for pair, n in found.items() if pair[0] < 0) > 100, others.done


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
    written = {path.name for path in (tmp_path / "out").glob("0*.parquet")}
    assert written <= named  # the loser's files are deleted


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    sink = open_sink(f"delta:{tmp_path}/out")
    target = sink.prepare(ROWS, Layout())
    with pytest.raises(TableError, match="knows nothing of the query q, whose checkpoint has done 3 batches; give the"):
        _batch(sink, target, 3, _some(1))
    assert _batch(sink, target, 0, _some(1))
    assert not _batch(sink, target, 0, _some(1))
    with pytest.raises(TableError, match="batch 0 was committed over other input"):
        sink.commit("q", 0, "another plan", [])
    assert sink.commit("empty", 0, "p", [])  # so that the table knows the query
    assert sink.commit("empty", 5, "p", []) is False
    assert read_delta(str(tmp_path / "out")).num_rows == 1
    with pytest.raises(OptionError, match=r"table='/x': write 'delta:<path or URL>'"):
        open_sink("/x")
