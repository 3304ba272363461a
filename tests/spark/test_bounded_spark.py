"""A join with a budget on real Spark: the rows of the local runtime, whatever the batches, the restarts and failures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from support.crashes import SCHEMA, committed, expected, write_streams
from support.routing_cases import RandomController
from support.streams import file_stream, run_to_end
from test_restart import fail_first_attempt

import braided
from braided.spark.session_operators import registry_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "k long, ts timestamp, id long"
OPTIONS: dict[str, Any] = {"on": "k", "time": "ts", "within": "10 seconds", "lateness": "5 seconds"}
MEMORY = 300


def local_pairs(root: Path) -> Counter[Any]:
    tables = [pq.read_table(root / side, schema=SCHEMA) for side in ("left", "right")]
    # Two workers, as on Spark; what still waits at the end is let go only here.
    result = braided.local.join(*tables, **OPTIONS, memory=MEMORY, evict="prob", workers=2).table
    return Counter(zip(result["id"].to_pylist(), result["id_right"].to_pylist(), strict=True))


def test_equals_the_local_runtime_across_restarts_and_failures(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=6, rows=300, seed=21)
    exact = expected(tmp_path)
    local = local_pairs(tmp_path)
    assert not local - exact
    assert local.total() < 0.9 * exact.total()
    marker = tmp_path / "marker"
    marker.mkdir()
    found = {}
    for files in (1, 3):
        streams = [file_stream(spark, tmp_path / side, DDL, files) for side in ("left", "right")]
        if files == 3:
            streams[0] = streams[0].mapInArrow(fail_first_attempt(marker), DDL)
        result = braided.join(*streams, **OPTIONS, memory=MEMORY, evict="prob")
        root = tmp_path / f"by{files}"
        query = run_to_end(result, root / "check", root / "out")
        found[files] = committed(spark, root)
        workers = braided.report(query).to_dict()["workers"]
        assert all(0 < worker["last"]["stored_rows"] <= MEMORY for worker in workers)
    assert found[1] == found[3]
    assert not found[1] - local, "not what one process finds"
    # The last rows wait for the lateness; all that entered has met the same buffer.
    assert found[1].total() > 0.5 * local.total()


@pytest.mark.slow
def test_routing_that_changes_at_random_loses_nothing_that_fits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_of(spark), "make_controller", RandomController)
    write_streams(tmp_path, files=8, rows=200, seed=5)
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    try:
        streams = [file_stream(spark, tmp_path / side, DDL) for side in ("left", "right")]
        result = braided.join(*streams, **OPTIONS, memory=10_000, evict="prob", control=str(tmp_path / "control"))
        query = run_to_end(result, tmp_path / "check", tmp_path / "out")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
    assert len(list((tmp_path / "control" / "tables").iterdir())) >= 4, "the routing hardly changed"
    found, exact = committed(spark, tmp_path), expected(tmp_path)
    assert not found - exact, "a wrong or double row"
    # The rows of the lateness still wait, and with them their pairs.
    horizon = min(stream["clock"] - stream["lateness"] for stream in braided.report(query).to_dict()["streams"])
    times = [
        dict(zip(table["id"].to_pylist(), table["ts"].cast("int64").to_pylist(), strict=True))
        for table in (pq.read_table(tmp_path / side, schema=SCHEMA) for side in ("left", "right"))
    ]
    entered = Counter({(a, b): n for (a, b), n in exact.items() if max(times[0][a], times[1][b]) < horizon})
    assert found == entered
    assert entered.total() > 0.5 * exact.total()
    assert braided.report(query).to_dict()["query"]["recall"] > 0.97
