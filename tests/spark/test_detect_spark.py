"""Detectors on Spark: the events of the local runtime, with a restart; batch DataFrames; errors that reach the user."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.streams import UTC, file_stream, run_to_end, write_batch

import braided
import braided.local

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
DDL = "room string, ts timestamp, v long"
OPTIONS: dict[str, Any] = {"key": "room", "time": "ts", "lateness": {"reading": "3 seconds", "door": "1 second"}}


def detectors() -> list[Any]:
    """Return a hierarchy of a detector for each key, one for many keys, and a pattern.

    Classes that are made in a function travel to Spark's processes with the function, wherever this file lies.
    """

    class Rise(braided.Detector):
        """Three readings that rise, dated as the first of them."""

        subscribes, publishes, schema = "reading", "rise", "ts timestamp, v bigint"
        delay = "1 minute"

        def __init__(self, least: int) -> None:
            self.least, self.last = least, pa.table({})

        def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
            rows = pa.Table.from_batches([events.select(["ts", "v"])])
            rows = pa.concat_tables([self.last, rows]) if self.last.num_rows else rows
            rows = rows.combine_chunks()
            v = rows["v"].to_numpy()
            found = np.flatnonzero((v[2:] > v[1:-1]) & (v[1:-1] > v[:-2]) & (v[2:] - v[:-2] >= self.least))
            self.last = rows.slice(max(0, rows.num_rows - 2))
            first, last = rows.take(pa.array(found)), rows.take(pa.array(found + 2))
            return pa.table({"ts": first["ts"], "v": last["v"], "at": last["ts"]})

        def save(self) -> Any:
            return self.last

        def load(self, state: Any) -> None:
            self.last = state

    class Count(braided.KeyedDetector):
        """How many events of either kind a room had, at every rise."""

        subscribes, publishes = ("rise", "door"), "count"
        schema, state = "ts timestamp, n bigint", "n bigint"

        def on_events(self, events: pa.RecordBatch, state: pa.RecordBatch) -> Any:
            group = events["group"].to_numpy()
            first = np.flatnonzero(np.diff(group, prepend=-1))
            before = np.zeros(len(first), np.int64)
            before[state["group"].to_numpy()] = state["n"].to_numpy()
            n = np.arange(1, len(group) + 1) - first[group] + before[group]
            rises = np.flatnonzero(np.asarray(events["type"]) == "rise")
            times = events["ts"].take(pa.array(rises))
            ends = np.append(first[1:], len(group)) - 1
            made = pa.record_batch({"group": group[rises], "ts": times, "n": n[rises]})
            return made, pa.record_batch({"group": np.arange(len(first)), "n": n[ends]})

    opened = braided.Pattern(
        "opened",
        subscribes=("rise", "door"),
        pattern="A B",
        define={"A": "type = 'door'", "B": "type = 'rise'"},
        measures={"ts": "A.ts", "rose": "B.ts", "door": "A.v"},
        within="2 seconds",
    )
    return [opened, Count(), Rise(3)]


def write_streams(folder: Path, files: int = 4, rows: int = 400) -> dict[str, pa.Table]:
    """Write two streams whose rows are late, a file of each per batch; at the end rows that let all others go."""
    rng = np.random.default_rng(1)
    tables = {}
    for name, late in (("reading", 3), ("door", 1)):
        count = files * rows
        times = np.append(START + np.arange(count) * (SECOND // 100), START + count * SECOND + np.arange(100))
        arrival = np.argsort(times[:count] + rng.integers(0, late * SECOND, count), kind="stable")
        order = np.append(arrival, np.arange(count, count + 100))
        rooms = np.append(rng.integers(0, 5, count), np.full(100, 99))[order]
        values = np.append(rng.integers(0, 10, count), np.zeros(100, np.int64))[order]
        table = pa.table({"room": rooms.astype(str), "ts": pa.array(times[order], UTC), "v": values})
        for number in range(files):
            write_batch(folder / name, number, table.slice(number * rows, rows if number < files - 1 else rows + 100))
        tables[name] = table
    return tables


def bag(rows: list[dict[str, Any]]) -> Counter[str]:
    """Return rows that can be counted, without those of the last room, which wait."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return [plain(part) for part in value.values()]
        return value.timestamp() if hasattr(value, "timestamp") else value

    return Counter(repr(plain(row)) for row in rows if row["room"] != "99")


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


@pytest.mark.slow
def test_equals_the_local_runtime_with_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    tables = write_streams(tmp_path)
    hidden = [path for name in tables for path in sorted((tmp_path / name).iterdir())[2:]]
    for path in hidden:
        path.rename(tmp_path / f"{path.parent.name} {path.name}")

    def found() -> DataFrame:
        streams = {name: file_stream(spark, tmp_path / name, DDL) for name in tables}
        return braided.detect(streams, detectors(), name="found", **OPTIONS)

    run_to_end(found(), tmp_path / "check", tmp_path / "out")
    for path in hidden:
        (tmp_path / f"{path.parent.name} {path.name}").rename(path)
    query = run_to_end(found(), tmp_path / "check", tmp_path / "out")
    local = braided.local.detect(tables, detectors(), **OPTIONS)
    wanted = bag(local.table.to_pylist())
    assert len(wanted) > 300
    assert {row.split("'")[1] for row in wanted} == {"opened", "count", "rise"}
    assert bag(rows_of(spark.read.parquet(str(tmp_path / "out")))) == wanted
    told = braided.report(query, "found").query["detectors"]
    assert [one["name"] for one in told] == ["rise", "opened", "count"]
    assert all(one["late"] == 0 for one in told)
    # All that wait for nothing but the rows after them.
    batch = {name: spark.read.schema(DDL).parquet(str(tmp_path / name)) for name in tables}
    assert bag(rows_of(braided.detect(batch, detectors(), **OPTIONS))) == wanted
    flat = braided.detect(batch, detectors(), types="count", **OPTIONS)
    assert flat.columns == ["room", "ts", "n", "at"]


def test_an_error_of_a_detector_reaches_the_user(spark: SparkSession, tmp_path: Path) -> None:
    class Bad(braided.Detector):
        subscribes, publishes, schema = "reading", "bad", "ts timestamp"

        def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
            raise RuntimeError("no such luck")

    write_streams(tmp_path, files=1)
    stream = file_stream(spark, tmp_path / "reading", DDL)
    found = braided.detect({"reading": stream}, [Bad()], key="room", time="ts", lateness="1 second")
    with pytest.raises(Exception, match="detector 'bad' raised RuntimeError: no such luck; in its batch 0, with"):
        run_to_end(found, tmp_path / "check", tmp_path / "out")
