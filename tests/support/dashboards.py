"""For tests of the dashboard: streams in which one phone is half of the calls from a batch on, and events of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import braided
from braided.routing.grid import Grid
from braided.routing.table import RoutingTable
from braided.runtime.report import Report
from braided.ui.history_events import columns_of
from braided.ui.routing_tables import describe_table
from support.streams import SECOND, UTC, file_stream, write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOT = 5550000000


def write_calls(folder: Path, *, batches: range, rows: int, hot_from: int) -> None:
    """Write batches of a second of calls and of a tenth as many alerts."""
    for batch in batches:
        random = np.random.default_rng(batch)
        for name, count, share in (("calls", rows, 0.5), ("alerts", rows // 10, 0.02)):
            cold = random.integers(0, 500, count)
            phones = np.where((random.uniform(size=count) < share) & (batch >= hot_from), HOT, cold)
            times = np.sort(random.integers(batch * SECOND, (batch + 1) * SECOND, count))
            write_batch(folder / name, batch, pa.table({"phone": phones, "ts": pa.array(times, UTC)}))


def join_calls(spark: SparkSession, folder: Path, *, name: str) -> DataFrame:
    """Join them, a file of each a batch, with routing that adapts."""
    calls, alerts = (file_stream(spark, folder / stream, "phone long, ts timestamp") for stream in ("calls", "alerts"))
    return braided.join(
        calls, alerts, on="phone", time="ts", within="1 second", lateness="1 second", name=name,
        control=str(folder / "control"),
    )  # fmt: skip


EVIL = "</script><script>alert(1)</script>"
HOT_HASH = 0xABCDEF0123456789


def worker_report(worker: int, rows: int) -> dict[str, Any]:
    counts = {
        "rows": rows,
        "results": 2 * rows,
        "cpu_ms": 5,
        "stored_rows": rows,
        "stored_bytes": 100 * rows,
        "runs": 1,
    }
    report: dict[str, Any] = {"worker": worker, "batches": 3, "last": counts, "total": counts, "table": [2, "x"]}
    if worker == 0:
        report |= {"streams": [{"rows": 9, "lateness": 5_000_000, "clock": 10}] * 2, "last_streams": [6, 3]}
    return report


def batch_event(number: int, run: str = "r", millis: int = 500) -> dict[str, Any]:
    report = Report.of_workers("calls", number, [worker_report(0, 30), worker_report(1, 10)])
    operator = {
        "operator": "1-a:calls", "name": "calls", "query": report.query, "streams": report.streams,
        "workers": columns_of(report.workers), "table": 2, "copies": 1.5, "loads": [], "keys": [{"key": f"{HOT_HASH:016x}", "label": EVIL, "counts": [5, 1, 9]}],
    }  # fmt: skip
    return {
        "event": "batch", "query": run, "batch": number, "time": 1000.0 * number,
        "ms": {"triggerExecution": millis, "addBatch": millis - 100, "walCommit": 100}, "sources": [{"name": "files", "rows": 9}], "operators": [operator],
    }  # fmt: skip


def run_events(batches: int = 3, run: str = "r") -> list[dict[str, Any]]:
    table = describe_table(RoutingTable.gridded(4, Grid(((0, 1), (2, 3))), "grid"), {})
    decision = {
        "batch": 1,
        "version": 2,
        "action": "promote",
        "reason": "1.60 of a fair share",
        "value": EVIL,
        "grid": "2 x 2",
    }
    return [
        {"event": "started", "query": run, "id": "q", "name": EVIL, "time": 1_700_000_000_000},
        {"event": "table", "query": run, "operator": "1-a:calls", **table},
        *(batch_event(number, run) for number in range(batches)),
        {"event": "decision", "query": run, "operator": "1-a:calls", **decision},
    ]
