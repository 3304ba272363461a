"""Joins and time: broken clocks, learned lateness, idle streams, time zones. In one process, against a nested loop."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples

import braided
from braided.local.runtime import LocalRuntime
from braided.time.clocks import Window
from braided.time.trust import JUMP

SECOND = 1_000_000
YEAR = 365 * 86_400 * SECOND
NOW = 1_700_000_000 * SECOND
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("id", pa.int64())])


def rows_of(times: list[int], first: int = 0) -> pa.RecordBatch:
    count = len(times)
    columns = [np.zeros(count, np.int64), pa.array(times, pa.timestamp("us")), np.arange(first, first + count)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SCHEMA)


def runtime_of(within: int, lateness: int, **options: Any) -> LocalRuntime:
    window = Window(-within, within, (lateness, lateness))
    return LocalRuntime(join_operator(SCHEMA, window, time="ts", **options))


@pytest.mark.parametrize("years", [2, -2])
@pytest.mark.parametrize("share", [10, 100])
def test_a_gateway_years_off_expires_nothing_and_is_not_kept_for_ever(years: int, share: int) -> None:
    """Every so many rows are off: the rest joins exactly, and the state stays as small as without them."""
    runtime = runtime_of(2 * SECOND, SECOND)
    pairs, count = [], 3000
    times: list[int] = []
    stored = []
    for batch in range(count // 100):
        part = [NOW + (batch * 100 + i) * SECOND // 10 for i in range(100)]
        part = [time + years * YEAR if i % share == share - 1 else time for i, time in enumerate(part)]
        for piece in runtime.run_batch([(side, [rows_of(part, len(times))]) for side in (0, 1)]):
            pairs.append(piece["id"].to_numpy() * count + piece["id_r"].to_numpy())
        times += part
        stored.append(runtime.reports[0]["last"]["stored_rows"])
    moments = np.array(times)
    close = np.abs(moments[:, None] - moments[None, :]) <= 2 * SECOND
    # Those off by years meet only each other; behind, they are late, and meet what is there.
    off = np.abs(moments - NOW) > YEAR
    # By the number of each pair, row by row.
    found, every = np.sort(np.concatenate(pairs)), np.flatnonzero(close)
    needed = np.flatnonzero(close & ~off[:, None] & ~off[None, :])
    assert np.isin(needed, found).all(), "a broken clock expired rows that were needed"
    assert np.isin(found, every).all(), "a wrong row"
    assert len(np.unique(found)) == len(found), "a double row"
    if years > 0:
        np.testing.assert_array_equal(found, every)
    assert max(stored[10:]) < 1.6 * stored[9]
    streams = runtime.report().to_dict()["streams"]
    assert all(abs(stream["clock"] - NOW) < YEAR for stream in streams)
    assert (sum(stream["quarantined"] + stream["discarded"] for stream in streams) > 0) == (years > 0)


def test_a_sparse_stream_loses_nothing_to_the_quarantine() -> None:
    """Five rows, hours apart, are all there before the other stream gets to them."""
    runtime = runtime_of(2 * SECOND, SECOND)
    sparse = [NOW + i * 5 * JUMP for i in range(5)]
    found = list(runtime.run_batch([(0, [rows_of(sparse)])]))
    dense = [NOW + i * JUMP // 4 for i in range(90)]
    for start in range(0, len(dense), 7):
        found += runtime.run_batch([(1, [rows_of(dense[start : start + 7], start)])])
    assert sum(piece.num_rows for piece in found) == len(set(sparse) & set(dense)) == 5


@st.composite
def wild(draw: Any) -> list[list[list[int]]]:
    """Batches of two streams whose times jump about, by microseconds or by jumps."""
    time = st.tuples(st.integers(0, 3), st.integers(0, 12)).map(lambda t: NOW + t[0] * 2 * JUMP + t[1])
    return draw(st.lists(st.tuples(*[st.lists(time, max_size=5)] * 2).map(list), min_size=1, max_size=6))  # type: ignore[no-any-return]


@settings(max_examples=examples(400), deadline=None)
@given(wild(), st.integers(0, 6), st.booleans())
def test_times_that_jump_never_give_a_wrong_or_double_row(
    batches: list[list[list[int]]], within: int, restart: bool
) -> None:
    runtime = runtime_of(within, 20)
    found: Counter[tuple[int, int]] = Counter()
    all_times: list[list[int]] = [[], []]
    for batch in batches:
        tasks = [(side, [rows_of(batch[side], len(all_times[side]))]) for side in (0, 1) if batch[side]]
        for piece in runtime.run_batch(tasks):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
        for side in (0, 1):
            all_times[side] += batch[side]
        if restart:
            runtime = LocalRuntime(runtime.operator, stores=pickle.loads(pickle.dumps(runtime.stores)))
    left, right = (np.array(times, np.int64) for times in all_times)
    pairs = Counter((int(i), int(j)) for i, j in np.argwhere(np.abs(left[:, None] - right[None, :]) <= within))
    assert not found - pairs
    if len({time // JUMP for times in all_times for time in times}) <= 1:
        assert found == pairs


def test_learned_lateness_keeps_pairs_that_ten_seconds_would_lose() -> None:
    rng = np.random.default_rng(2)
    times = NOW + np.arange(6000) * SECOND // 10
    arrival = times + rng.integers(0, 40, len(times)) * SECOND
    order = np.argsort(arrival, kind="stable")
    table = pa.table({"k": order % 7, "ts": pa.array(times[order], pa.timestamp("us")), "n": np.arange(len(times))})
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", "arrival": "n", "batch_rows": 200}
    exact = braided.local.join(table, table, **options, lateness="50 seconds").table.num_rows
    learned = braided.local.join(table, table, **options)
    assert braided.local.join(table, table, **options, lateness="10 seconds").table.num_rows < 0.95 * exact
    assert learned.table.num_rows >= 0.999 * exact
    streams = learned.report.to_dict()["streams"]
    assert all(30 * SECOND < stream["lateness"] < 80 * SECOND for stream in streams)
    assert all(clock is None or clock < NOW + YEAR for clock, _ in streams[0]["lateness_history"])


def test_a_target_keeps_less() -> None:
    rng = np.random.default_rng(3)
    times = NOW + np.arange(20_000) * SECOND // 10
    late = np.where(rng.random(len(times)) < 0.02, rng.integers(60, 600, len(times)), rng.integers(0, 2, len(times)))
    order = np.argsort(times + late * SECOND, kind="stable")
    table = pa.table({"k": order % 7, "ts": pa.array(times[order], pa.timestamp("us")), "n": np.arange(len(times))})
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "1 second", "arrival": "n", "batch_rows": 500}
    full = braided.local.join(table, table, **options, lateness="15 minutes")
    most = braided.local.join(table, table, **options, lateness=braided.Lateness(recall=0.95, floor="0 seconds"))
    stored = [sum(worker["last"]["stored_rows"] for worker in r.report.to_dict()["workers"]) for r in (full, most)]
    assert most.table.num_rows >= 0.95 * full.table.num_rows
    assert stored[1] < 0.1 * stored[0]


def test_an_idle_stream_stops_holding_state() -> None:
    runtime = runtime_of(SECOND, 0, idle="30 seconds")
    list(runtime.run_batch([(0, [rows_of([NOW])]), (1, [rows_of([NOW])])], moment=0))
    for second in range(1, 60):
        list(runtime.run_batch([(0, [rows_of([NOW + second * SECOND])])], moment=second * SECOND))
        if second == 29:
            assert runtime.reports[0]["last"]["stored_rows"] > 29
    assert runtime.reports[0]["last"]["stored_rows"] <= 4
    assert runtime.report().streams[1]["idle"]
    # Rows it returns with are joined with what is there, and not before.
    back = list(runtime.run_batch([(1, [rows_of([NOW + 10 * SECOND, NOW + 59 * SECOND])])], moment=60 * SECOND))
    assert sum(piece.num_rows for piece in back) == 2


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", None])
def test_time_zones_and_daylight_saving_do_not_matter(zone: str | None) -> None:
    """Around both changes of 2024 in Berlin; times without a zone are taken as they are written."""
    starts = [datetime(2024, 3, 31, 0, 30), datetime(2024, 10, 27, 0, 30)]
    where = ZoneInfo(zone) if zone else None
    for start in starts:
        base = start.replace(tzinfo=ZoneInfo("UTC")).timestamp()
        instants = [int(base * SECOND) + minute * 60 * SECOND for minute in range(0, 180, 7)]
        kind = pa.timestamp("us", zone)
        table = pa.table({"k": [1] * len(instants), "ts": pa.array(instants, kind), "id": range(len(instants))})
        joined = braided.local.join(table, table, on="k", time="ts", within="7 minutes", lateness="0 seconds")
        assert joined.table.num_rows == 3 * len(instants) - 2
        ordered = braided.local.order(table.take(list(range(len(instants)))[::-1]), time="ts").table
        assert ordered["ts"].cast(pa.timestamp("us")).to_pylist() == sorted(
            ordered["ts"].cast(pa.timestamp("us")).to_pylist()
        )
        assert ordered["ts"].type == kind
        assert where is None or ordered["ts"][0].as_py().utcoffset() == table["ts"][0].as_py().utcoffset()


@pytest.mark.parametrize("base", [-5 * SECOND, -62_135_596_800 * SECOND, 253_402_300_799 * SECOND, 0])
def test_old_and_edge_times(base: int) -> None:
    """Before 1970, the year 1, the end of 9999: microseconds decide."""
    table = pa.table({"k": [1, 1, 1], "ts": pa.array([base, base + 1, base + 3], pa.timestamp("us")), "id": range(3)})
    joined = braided.local.join(table, table, on="k", time="ts", within="2 us", lateness="0 seconds")
    assert joined.table.num_rows == 7
    ordered = braided.local.order(table.take([2, 0, 1]), time="ts").table
    assert ordered["id"].to_pylist() == [0, 1, 2]
