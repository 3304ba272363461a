"""A real Prometheus scrapes a session: figures of a join, and alerts that real faults fire and that clear again.

Needs Debian's package `prometheus`.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.streams import SECOND, UTC, file_stream, write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus on the path")
EXAMPLES = Path(__file__).parents[2] / "examples" / "prometheus"
PATIENCE = 120.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Prometheus:
    """A server on loopback with the example's alerts, which wait for seconds where those wait for minutes."""

    def __init__(self, folder: Path, target: int) -> None:
        self.port = free_port()
        config = (EXAMPLES / "prometheus.yml").read_text().replace("9464", str(target)).replace("5s", "1s")
        config = config[: config.index("  - job_name: braided-fleet")]
        (folder / "prometheus.yml").write_text(config)
        alerts = (EXAMPLES / "alerts.yml").read_text().replace("for: 1m", "for: 1s").replace("for: 30s", "for: 1s")
        (folder / "alerts.yml").write_text(
            alerts.replace("[5m]", "[15s]").replace("[10m]", "[15s]").replace("> 300", "> 25")
        )
        self._process = subprocess.Popen(
            [str(PROMETHEUS), "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{self.port}", f"--storage.tsdb.path={folder / 'data'}"],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def ask(self, path: str, **query: str) -> Any:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def value(self, query: str) -> float | None:
        """Return the sum of what a query finds; None for nothing."""
        found = (self.ask("query", query=query) or {}).get("result", [])
        return sum(float(each["value"][1]) for each in found) if found else None

    def firing(self) -> set[str]:
        alerts = (self.ask("alerts") or {}).get("alerts", [])
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, f"{what}; firing: {self.firing()}"
            time.sleep(0.5)


@pytest.fixture
def watched(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Prometheus, Any]]:
    endpoint = braided.metrics(spark, port=0)
    server = Prometheus(tmp_path, int(endpoint.url.split(":")[2].split("/")[0]))
    yield server, endpoint
    server.close()
    endpoint.close()


def rows(times: list[int]) -> pa.Table:
    return pa.table({"k": list(range(len(times))), "ts": pa.array([at * SECOND for at in times], UTC)})


def test_faults_fire_alerts_that_clear_again(
    spark: SparkSession, tmp_path: Path, watched: tuple[Prometheus, Any]
) -> None:
    server, endpoint = watched
    for side in ("a", "b"):
        for batch in range(4):
            write_batch(tmp_path / side, batch, rows([100 * batch + at for at in range(50)]))
    frames = [file_stream(spark, tmp_path / side, "k long, ts timestamp") for side in ("a", "b")]
    joined = braided.join(*frames, on="k", time="ts", within="10 seconds", lateness="10 seconds", name="pairs")

    hangs = threading.Event()

    def start(fails: bool) -> Any:
        def sink(batch: Any, number: int) -> None:
            batch.collect()
            if fails and number > 3:
                raise RuntimeError("a fault")
            while hangs.is_set():
                time.sleep(0.2)

        return (
            joined.writeStream.queryName("watched").foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="500 milliseconds").start()
        )  # fmt: skip

    query = start(fails=True)
    server.until(lambda: server.value("sum(braided_rows_total)") == 400, "rows")
    results = server.value("braided_results_total")
    assert results == 200
    assert server.value('braided_query_state{state="running"}') == 1

    write_batch(tmp_path / "a", 4, rows([400]))
    server.until(lambda: "BraidedQueryFailed" in server.firing(), "a failed query")
    query = start(fails=False)
    server.until(lambda: "BraidedQueryFailed" not in server.firing(), "the query runs again")
    assert server.value("braided_query_failures_total") == 1

    for batch in range(5, 25):  # late by more than the lateness
        write_batch(tmp_path / "a", batch, rows([5] * 50))
        query.processAllAvailable()
        if "BraidedRowsLost" in server.firing():
            break
        time.sleep(1)
    server.until(lambda: "BraidedRowsLost" in server.firing(), "late rows")
    server.until(lambda: "BraidedRowsLost" not in server.firing(), "no more late rows")

    assert "BraidedQueryStalled" not in server.firing()  # a query without rows is not stalled
    hangs.set()
    write_batch(tmp_path / "a", 30, rows([500]))
    server.until(lambda: "BraidedQueryStalled" in server.firing(), "a query that hangs")
    hangs.clear()
    server.until(lambda: "BraidedQueryStalled" not in server.firing(), "a new batch")
    query.stop()

    endpoint.close()
    server.until(lambda: "BraidedEndpointDown" in server.firing(), "an endpoint that is down")
