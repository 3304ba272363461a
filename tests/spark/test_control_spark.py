"""Adaptive routing on real Spark: whatever the controller does, and wherever it fails, the rows are the oracle's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from support.crashes import committed, expected, write_streams
from support.profiles import some
from support.routing_cases import RandomController
from support.streams import SECOND, UTC, file_stream, read_rows, run_to_end, write_batch
from test_restart import count_executions, fail_first_attempt, lose_shuffle_files_once

import braided
from braided.routing.control_directory import ControlDir
from braided.spark.session_operators import registry_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = "k long, ts timestamp, id long"
WORKERS = 4


@pytest.fixture(autouse=True)
def _four_workers(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.shuffle.partitions", WORKERS)
    yield
    spark.conf.set("spark.sql.shuffle.partitions", 2)


@pytest.fixture
def _random_routing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)


def adaptive(spark: SparkSession, root: Path, before: Any = None, **options: Any) -> DataFrame:
    left, right = (file_stream(spark, root / side, DDL) for side in ("left", "right"))
    if before is not None:
        left = left.mapInArrow(before, DDL)
    options = {"on": "k", "time": "ts", "within": "10 seconds", "lateness": "5 seconds", **options}
    return braided.join(left, right, control=str(root / "control"), **options)


def pinned(root: Path) -> list[int]:
    """Return the version of the table of each batch, in order."""
    pins = sorted((root / "control" / "pins").iterdir(), key=lambda path: int(path.stem))
    return [json.loads(pin.read_bytes())["version"] for pin in pins]


@pytest.mark.usefixtures("_random_routing")
def test_forced_reconfigurations_restarts_and_failed_tasks_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=7, rows=300, seed=1)
    hidden = tmp_path / "hidden"
    for side in ("left", "right"):
        (hidden / side).mkdir(parents=True)
        for path in sorted((tmp_path / side).iterdir())[4:]:
            path.rename(hidden / side / path.name)
    marker = tmp_path / "marker"
    marker.mkdir()
    run_to_end(adaptive(spark, tmp_path, fail_first_attempt(marker)), tmp_path / "check", tmp_path / "out")
    for side in ("left", "right"):
        for path in (hidden / side).iterdir():
            path.rename(tmp_path / side / path.name)
    result = adaptive(spark, tmp_path, fail_first_attempt(marker))
    run_to_end(result.mapInArrow(fail_first_attempt(marker), result.schema), tmp_path / "check", tmp_path / "out")
    assert len(list(marker.iterdir())) >= 7
    assert len(set(pinned(tmp_path))) >= 3, "the routing hardly changed"
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.usefixtures("_random_routing")
def test_a_re_executed_map_stage_routes_as_before(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=5, rows=300, seed=2)
    executions, marker = tmp_path / "executions", tmp_path / "marker"
    executions.mkdir()
    marker.mkdir()
    result = adaptive(spark, tmp_path, count_executions(executions))
    lossy = lose_shuffle_files_once(marker, str(spark.conf.get("spark.local.dir")))
    run_to_end(result.mapInArrow(lossy, result.schema), tmp_path / "check", tmp_path / "out")
    assert len(list(executions.iterdir())) > 5
    assert len(set(pinned(tmp_path))) >= 2
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.usefixtures("_random_routing")
def test_a_controller_that_fails_between_any_two_of_its_steps_is_harmless(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every batch it fails at another step; every fifth goes well."""
    steps = ("owner", "wanted", "publish", "log")
    write_streams(tmp_path, files=8, rows=150, seed=5)
    failed: Counter[str] = Counter()
    batches = []

    def failing(step: str) -> Any:
        honest = getattr(ControlDir, step)

        def wrapped(self: ControlDir, *arguments: Any) -> Any:
            # An earlier query's last events are still on their way, and the first table is the join's own.
            if self.location == str(tmp_path / "control"):
                if step == "owner":
                    batches.append(step)
                if batches and len(batches) % 5 == steps.index(step):
                    failed[step] += 1
                    raise OSError("injected")
            return honest(self, *arguments)

        return wrapped

    for step in steps:
        monkeypatch.setattr(ControlDir, step, failing(step))
    run_to_end(adaptive(spark, tmp_path), tmp_path / "check", tmp_path / "out")
    assert set(failed) == set(steps)
    assert len(set(pinned(tmp_path))) >= 2, "the routing never changed"
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.slow
def test_a_hot_key_is_spread_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(8):
        for side, hot in (("left", 200), ("right", 8)):
            keys = [7] * hot + list(range(100, 500 - hot))
            ids = [number * 1000 + i for i in range(len(keys))]
            times = [1_700_000_000 * SECOND + number * SECOND + i for i in range(len(keys))]
            write_batch(tmp_path / side, number, pa.table({"k": keys, "ts": pa.array(times, UTC), "id": ids}))
    result = adaptive(spark, tmp_path, within="2 seconds", lateness="1 second", name="hot")
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    with duckdb.connect() as db:
        pairs = db.execute(
            f"""select l.id, r.id from '{tmp_path}/left/*.parquet' l join '{tmp_path}/right/*.parquet' r on l.k = r.k
            and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 2000000"""
        ).fetchall()
    assert committed(spark, tmp_path) == Counter(pairs)
    report = braided.report(query, "hot")
    routing = report.to_dict()["routing"]
    first = routing["decisions"][0]
    assert (first["action"], first["value"]) == ("promote", "7")
    assert {"what": "hot key 7", "shape": "4 x 1"}.items() <= routing["grids"][0].items()
    assert routing["copies_per_row"] > 1
    assert "hot key 7: grid 4 x 1" in str(report)
    assert [set(worker) for worker in routing["loads"]] == [{"load", "level"}] * WORKERS
    assert all(len(worker["load"]) == 3 and worker["load"][0] > 0 for worker in routing["loads"])
    assert "worker 3: load " in str(report)


def test_redacted_keys_appear_nowhere(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        for side in ("left", "right"):
            keys = ["+49 170 1234567"] * 150 + [f"k{i}" for i in range(100)]
            times = [1_700_000_000 * SECOND + number * SECOND + i for i in range(len(keys))]
            ids = list(range(len(keys)))
            write_batch(tmp_path / side, number, pa.table({"k": keys, "ts": pa.array(times, UTC), "id": ids}))
    ddl = "k string, ts timestamp, id long"
    streams = [file_stream(spark, tmp_path / side, ddl) for side in ("left", "right")]
    control = tmp_path / "control"
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", "lateness": "1 second"}
    result = braided.join(*streams, control=str(control), redact=True, name="secret", **options)
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    report = braided.report(query, "secret")
    assert report.to_dict()["routing"]["grids"]
    braided.explain(result)
    told = capsys.readouterr().out + str(report) + json.dumps(report.to_dict())
    told += "".join(path.read_text() for path in control.rglob("*") if path.is_file())
    assert "hot key" in told
    assert "1234567" not in told


@pytest.mark.slow
def test_scale_in_and_out_on_request(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=8, rows=300, seed=6)
    result = adaptive(spark, tmp_path, name="scaled")
    with pytest.raises(braided.BraidedError, match=r"workers=0: write a number of 1 or more, or 'auto'"):
        braided.scale(str(tmp_path / "control"), 0)
    with pytest.raises(braided.BraidedError, match="not a control directory of a join"):
        braided.scale(str(tmp_path / "elsewhere"), 2)
    braided.scale(str(tmp_path / "control"), 1)
    query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    report = braided.report(query, "scaled").to_dict()
    assert report["routing"]["in_use"] == 1
    assert report["workers"][0]["last"]["rows"] >= 600
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.parametrize("partition", ["grid", "ssp"])
@pytest.mark.slow
def test_forced_schemes_equal_the_oracle(spark: SparkSession, tmp_path: Path, partition: str) -> None:
    write_streams(tmp_path, files=4, rows=200, seed=7)
    run_to_end(adaptive(spark, tmp_path, partition=partition), tmp_path / "check", tmp_path / "out")
    assert committed(spark, tmp_path) == expected(tmp_path)


@pytest.mark.parametrize(
    ("where", "oracle"),
    some(
        [
            ("abs(l.k - r.k) <= 1", "abs(l.k - r.k) <= 1"),
            ("length(repeat('x', cast(l.k as int))) = r.k + 1", "l.k = r.k + 1"),
            ("l.k < r.k - 95 AND l.id > r.id", "l.k < r.k - 95 and l.id > r.id"),
        ],
        quick=2,
    ),
)
def test_joins_without_keys(
    spark: SparkSession, tmp_path: Path, where: str, oracle: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_streams(tmp_path, files=3, rows=100, seed=8)
    result = adaptive(spark, tmp_path, on=None, where=where)
    assert ("every pair within the window is emitted first" in caplog.text) == ("length" in where)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    found = Counter(
        (row[1], row[4]) for row in [(r[0], r[2], r[3], r[4], r[5]) for r in read_rows(spark, tmp_path / "out")]
    )
    with duckdb.connect() as db:
        pairs = db.execute(
            f"""select l.id, r.id from '{tmp_path}/left/*.parquet' l join '{tmp_path}/right/*.parquet' r on {oracle}
            and abs(epoch_us(l.ts) - epoch_us(r.ts)) <= 10000000"""
        ).fetchall()
    assert found == Counter(pairs)


def test_what_does_not_fit_stops_the_query_with_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=3, rows=100, seed=9)
    result = adaptive(spark, tmp_path)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    with pytest.raises(Exception, match="belongs to query"):
        run_to_end(result, tmp_path / "check2", tmp_path / "out2")
    with pytest.raises(
        braided.BraidedError, match=r"partition='ssp': .* was created for 'auto'; give another directory"
    ):
        adaptive(spark, tmp_path, partition="ssp")
    with pytest.raises(braided.BraidedError, match="has nothing to hash"):
        adaptive(spark, tmp_path, on=None, where="l.k < r.k", partition="hash", name="never")
    with pytest.raises(braided.BraidedError, match=r"partition='round': write 'auto', 'hash', 'ssp' or 'grid'"):
        adaptive(spark, tmp_path, partition="round")


def test_a_damaged_table_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=3, rows=100, seed=10)
    result = adaptive(spark, tmp_path)
    table = tmp_path / "control" / "tables" / f"{2:012d}.json"
    table.parent.mkdir()
    table.write_text("{}")
    with pytest.raises(Exception, match="is damaged"):
        run_to_end(result, tmp_path / "check", tmp_path / "out")


@pytest.mark.slow
def test_routing_that_goes_back_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=100, seed=11)
    result = adaptive(spark, tmp_path)
    braided.scale(str(tmp_path / "control"), 2)
    run_to_end(result, tmp_path / "check", tmp_path / "out")
    assert pinned(tmp_path)[-1] > 1
    left, right = (file_stream(spark, tmp_path / side, DDL) for side in ("left", "right"))
    write_streams(tmp_path / "more", files=1, rows=100, seed=12)
    for side in ("left", "right"):
        (tmp_path / "more" / side / "00000.parquet").rename(tmp_path / side / "00099.parquet")
    fixed = braided.join(left, right, on="k", time="ts", within="10 seconds", lateness="5 seconds")
    with pytest.raises(Exception, match="the routing went back from version"):
        run_to_end(fixed, tmp_path / "check", tmp_path / "out")
