"""Durations: strings and timedeltas, wherever a function takes one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from braided import GDJ, Join, Lateness, local
from braided.durations import parse_duration
from braided.errors import BraidedError
from braided.time.stream_clock import lateness_options

SECOND = timedelta(seconds=1)
ROWS = pa.table({"k": [1, 1, 2], "ts": pa.array([0, 1_500_000, 9_000_000], pa.timestamp("us"))})


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (SECOND, 1_000_000),
        (timedelta(0), 0),
        (timedelta(days=-1, microseconds=1), -86_399_999_999),
        (pd.Timedelta("1 hour"), 3_600_000_000),
    ],
)
def test_a_timedelta_is_a_duration(given: timedelta, micros: int) -> None:
    assert parse_duration(given, "within") == micros


def test_a_timedelta_too_long_is_refused() -> None:
    with pytest.raises(BraidedError, match=r"within=datetime.timedelta\(days=9999999\): longer than 10,000 years"):
        parse_duration(timedelta(days=9_999_999), "within")


@pytest.mark.parametrize(
    ("text", "delta"),
    [
        ({"within": "1 second"}, {"within": SECOND}),
        ({"within": ("1 second", "2 s")}, {"within": (SECOND, 2 * SECOND)}),
        ({"between": ("-1 second", "2 s")}, {"between": (-SECOND, 2 * SECOND)}),
        ({"within": "2 s", "lateness": "1 second"}, {"within": 2 * SECOND, "lateness": SECOND}),
        ({"within": "2 s", "lateness": ("1 s", "2 s")}, {"within": 2 * SECOND, "lateness": (SECOND, 2 * SECOND)}),
        ({"within": "2 s", "idle": "1 minute"}, {"within": 2 * SECOND, "idle": timedelta(minutes=1)}),
    ],
)
def test_a_join_takes_timedeltas(text: dict[str, Any], delta: dict[str, Any]) -> None:
    found = [local.join(ROWS, ROWS, on="k", time="ts", **options).table for options in (text, delta)]
    assert found[0].num_rows
    assert found[0].equals(found[1])


def test_multijoin_group_and_order_take_timedeltas() -> None:
    two = local.multijoin([ROWS, ROWS], on="k", time="ts", within=SECOND, lateness=SECOND).table
    assert two.equals(local.multijoin([ROWS, ROWS], on="k", time="ts", within="1 second", lateness="1 second").table)
    join = Join("j", left="x", right="y", on="k", within=SECOND)
    group = local.join_group(
        [join], streams={"x": ROWS, "y": ROWS}, time="ts", memory=10, evict=GDJ(unit=SECOND), lateness=SECOND
    )
    assert group.tables["j"].num_rows == two.num_rows == 3
    assert local.order(ROWS, time="ts", lateness=SECOND, idle=SECOND).table["seq"].to_pylist() == [0, 1, 2]


def test_options_say_the_same_however_they_are_written() -> None:
    rule = Lateness(floor=2 * SECOND, memory=timedelta(hours=2), ceiling=timedelta(days=1))
    text = Lateness(floor="2 seconds", memory="2 hours", ceiling="1 day")
    assert rule == text
    assert lateness_options((rule,)) == lateness_options((text,))
    assert repr(GDJ(unit=SECOND)) == repr(GDJ(unit="1 second"))
