"""A hierarchy of two detectors in one query, and cut in two: steps in Python for jobs, and the readings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import braided
from support.streams import SECOND, UTC, write_batch

RISE = braided.Pattern(
    "rise",
    subscribes="reading",
    pattern="A B C",
    define={"B": "v > prev(v)", "C": "v > prev(v)"},
    measures={"ts": "first(ts)", "v": "last(v)"},
    within="6 seconds",
)
TWICE = braided.Pattern(
    "twice",
    subscribes="rise",
    pattern="A B",
    measures={"ts": "first(ts)", "until": "last(ts)", "low": "first(v)", "high": "last(v)"},
    within="10 seconds",
)
DDL = "room string, ts timestamp, v long"


def whole(readings: DataFrame) -> DataFrame:
    """Both detectors in one query."""
    return braided.detect({"reading": readings}, [RISE, TWICE], time="ts", key="room", types="twice")


def below(readings: DataFrame) -> DataFrame:
    """The lower one."""
    return braided.detect({"reading": readings}, [RISE], time="ts", key="room", types="rise")


def above(rises: DataFrame) -> DataFrame:
    """The upper one; of lateness it says nothing."""
    return braided.detect({"rise": rises}, [TWICE], time="ts", key="room", types="twice")


def write_readings(folder: Path, number: int) -> None:
    """Write a file of ten seconds; every other file has rows of up to four seconds late, so that K rises."""
    random = np.random.default_rng(number)
    late = random.integers(0, (4 if number % 2 else 1) * SECOND, 400)
    times = 1_700_000_000 * SECOND + number * 10 * SECOND + random.integers(0, 10 * SECOND, 400) - late
    rooms = pa.array(random.choice(["a", "b", "c", "d", "e"], 400).tolist())
    write_batch(folder, number, pa.table({"room": rooms, "ts": pa.array(times, UTC), "v": random.integers(0, 50, 400)}))
