"""A join with a budget on real Spark: the rows of the local runtime, whatever the batches, the restarts and failures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from crashes import SCHEMA, committed, expected, write_streams
from streams import file_stream, run_to_end
from test_restart import fail_first_attempt

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

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


def test_a_budget_with_adapting_routing_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_streams(tmp_path, files=1, rows=10, seed=1)
    streams = [file_stream(spark, tmp_path / side, DDL) for side in ("left", "right")]
    with pytest.raises(braided.BraidedError, match="memory=: routing that changes while the query runs"):
        braided.join(*streams, **OPTIONS, memory=10, control=str(tmp_path / "control"))
