"""Streams for tests of the dashboard: one phone is half of the calls from a batch on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from streams import SECOND, UTC, file_stream, write_batch

import braided

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
