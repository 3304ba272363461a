"""Budgets in bytes where rows differ in size: never more bytes than the budget, a row too large counted, cuts no matter."""

from __future__ import annotations

import string
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

import braided
from braided.eviction.buffer import Buffer, Events, sorted_events
from braided.eviction.policies.age import AGE
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.operators.join.sizes import sizes_of_rows

POLICIES = [FIFO(), RAND(), PROB(), AGE(), GDJ(initial=0.4), GDJ(initial=0.4, gain="rank", decay="one")]


@st.composite
def sized(draw: st.DrawFn) -> tuple[Events, Any, int, tuple[int, int]]:
    n = draw(st.integers(1, 50))
    columns = [draw(st.lists(st.integers(0, most), min_size=n, max_size=n)) for most in (3, 60, 1, 30)]
    keys, times, streams, sizes = (np.array(column, np.int64) for column in columns)
    events = sorted_events(
        Events(keys.astype(np.uint64), times, streams.astype(np.int8), np.arange(n, dtype=np.uint64), np.arange(n))
    )
    lo = draw(st.integers(-12, 0))
    return events, sizes, draw(st.integers(10, 90)), (lo, draw(st.integers(0, 12)))


def first_in_first_out(events: Events, sizes: Any, most: int, window: tuple[int, int]) -> tuple[Any, list[int], int]:
    """The buffer in plain lines: the oldest give way until the newcomer fits."""
    kept: list[int] = []
    pairs, too_large = [], 0
    at = {int(row): number for number, row in enumerate(events.rows)}
    keep = (window[1], -window[0])
    for number, row in enumerate(events.rows.tolist()):
        time, stream = int(events.times[number]), int(events.streams[number])
        kept = [r for r in kept if time - int(events.times[at[r]]) <= keep[int(events.streams[at[r]])]]
        for r in kept:
            if events.streams[at[r]] != stream and events.keys[at[r]] == events.keys[number]:
                pairs.append((number, r))
        if sizes[row] > most:
            too_large += 1
            continue
        while sum(int(sizes[r]) for r in kept) + int(sizes[row]) > most:
            kept.pop(0)
        kept.append(row)
    return Counter(pairs), kept, too_large


@settings(max_examples=examples(300), deadline=None)
@given(sized())
def test_fifo_is_what_a_few_plain_lines_do(case: Any) -> None:
    events, sizes, most, window = case
    buffer = Buffer(60, FIFO(), window=window)
    buffer.set_facts(sizes=sizes, most_bytes=most)
    result = buffer.run(events)
    pairs, kept, too_large = first_in_first_out(events, sizes, most, window)
    assert Counter(zip(result.pair_event.tolist(), result.pair_row.tolist(), strict=True)) == pairs
    assert buffer.row_ids().tolist() == kept
    assert buffer.counts["too_large"] == too_large


@settings(max_examples=examples(200), deadline=None)
@given(sized(), st.sampled_from(POLICIES), st.sampled_from(["unified", "proportional"]), st.integers(0, 50))
def test_no_policy_keeps_more_than_the_budget(case: Any, policy: Any, share: Any, cut: int) -> None:
    events, sizes, most, window = case
    buffer = Buffer(60, policy, window=window, share=share)
    buffer.set_facts(sizes=sizes, most_bytes=most)
    found = Counter[tuple[int, int]]()
    for start in range(len(events.keys)):
        result = buffer.run(events.part(start, start + 1))
        found.update((start, row) for row in result.pair_row.tolist())
        assert int(sizes[buffer.row_ids()].sum()) == int(buffer.state.totals["bytes"][0]) <= most
        if start == cut:
            buffer = Buffer.from_bytes(buffer.to_bytes(), policy)
            buffer.set_facts(sizes=sizes, most_bytes=most)
    everything = Buffer(60, FIFO(), window=window).run(events)
    exact = Counter(zip(everything.pair_event.tolist(), everything.pair_row.tolist(), strict=True))
    assert not found - exact
    whole = Buffer(60, policy, window=window, share=share)
    whole.set_facts(sizes=sizes, most_bytes=most)
    result = whole.run(events)
    assert Counter(zip(result.pair_event.tolist(), result.pair_row.tolist(), strict=True)) == found


@settings(max_examples=examples(150), deadline=None)
@given(sized(), st.data())
def test_rows_that_only_probe_meet_no_others_that_do(case: Any, data: Any) -> None:
    events, _, _, window = case
    n = len(events.keys)
    probes = np.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), np.int8)
    policy = data.draw(st.sampled_from(POLICIES))
    found = Buffer(60, policy, window=window)
    found.set_facts(probes=probes)
    result = found.run(events, room=3)
    whole = Buffer(60, policy, window=window).run(events)
    expected = [
        (event, row)
        for event, row in zip(whole.pair_event.tolist(), whole.pair_row.tolist(), strict=True)
        if not (probes[events.rows[event]] and probes[row])
    ]
    assert list(zip(result.pair_event.tolist(), result.pair_row.tolist(), strict=True)) == expected
    counted = Buffer(60, policy, window=window)
    counted.set_facts(probes=probes)
    assert counted.count(events) == len(expected)


@cache
def text_tables(rows: int = 3000) -> list[pa.Table]:
    rng = np.random.default_rng(9)
    letters = np.array(list(string.ascii_lowercase))
    tables = []
    for _ in (0, 1):
        lengths = np.minimum(2000, rng.pareto(1.2, rows) * 20).astype(int)
        tables.append(
            pa.table(
                {
                    "k": [f"key {k}" for k in rng.zipf(1.4, rows) % 300],
                    "ts": pa.array(np.arange(rows) * 1000, pa.timestamp("us")),
                    "id": np.arange(rows),
                    "note": ["".join(letters[rng.integers(0, 26, n)]) for n in lengths],
                    "tags": [list(range(n % 5)) for n in lengths],
                }
            )
        )
    return tables


OPTIONS: dict[str, Any] = {"on": "k", "time": "ts", "within": "500 milliseconds", "lateness": "0 seconds"}


def id_pairs(table: pa.Table) -> Any:
    """Each pair as one number, in order."""
    return np.sort(table["id"].to_numpy() * 10_000 + table["id_right"].to_numpy())


@cache
def text_pairs() -> Any:
    return id_pairs(braided.local.join(*text_tables(), **OPTIONS).table)


@pytest.mark.parametrize("evict", ["fifo", "prob", "gdj"])
def test_the_join_takes_a_budget_in_bytes_for_strings_and_lists(evict: str) -> None:
    results = []
    for batch_rows in (6_000, 777):
        result = braided.local.join(*text_tables(), **OPTIONS, memory="200 kB", evict=evict, batch_rows=batch_rows)
        results.append(id_pairs(result.table))
        last = result.report.to_dict()["workers"][0]["last"]
        assert 0 < last["stored_bytes"] < 200_000
    np.testing.assert_array_equal(results[0], results[1])
    assert len(np.unique(results[0])) == len(results[0])
    assert np.isin(results[0], text_pairs()).all()
    assert 0.05 < len(results[0]) / len(text_pairs()) < 1


def test_a_row_larger_than_the_budget_is_counted_and_still_finds_its_matches() -> None:
    us = pa.timestamp("us")
    left = pa.table({"k": [1, 1, 1], "ts": pa.array([0, 10, 30], us), "s": ["a", "x" * 500_000, "b"]})
    right = pa.table({"k": [1, 1], "ts": pa.array([5, 20], us), "id": [1, 2]})
    result = braided.local.join(
        left, right, on="k", time="ts", within="1 second", memory="200 kB", evict="fifo", lateness="0 seconds"
    )
    found = {(row["s"][:1], row["id"]) for row in result.table.to_pylist()}
    assert found == {("a", 1), ("a", 2), ("x", 1), ("b", 1), ("b", 2)}
    assert result.report.to_dict()["workers"][0]["total"]["too_large"] == 1


def python_size(value: Any, kind: pa.DataType) -> int:
    """The same count by walking Python values."""
    if pa.types.is_struct(kind):
        return 1 if value is None else 1 + sum(python_size(value[field.name], field.type) for field in kind)
    if pa.types.is_list(kind):
        return 5 + sum(python_size(item, kind.value_type) for item in value or ())
    if pa.types.is_map(kind):
        inner = (python_size(k, kind.key_type) + python_size(v, kind.item_type) for k, v in value or ())
        return 5 + sum(inner)
    if pa.types.is_fixed_size_list(kind):
        return 1 + sum(python_size(item, kind.value_type) for item in value)
    if pa.types.is_string(kind):
        return 5 + len((value or "").encode())
    if pa.types.is_large_binary(kind):
        return 9 + len(value or b"")
    return int(kind.bit_width) // 8 + 1


def test_sizes_are_those_of_the_values() -> None:
    fields = pa.schema(
        [
            ("a", pa.int64()),
            ("b", pa.bool_()),
            ("s", pa.string()),
            ("y", pa.large_binary()),
            ("l", pa.list_(pa.string())),
            ("n", pa.list_(pa.list_(pa.int16()))),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("f", pa.list_(pa.float32(), 2)),
            ("t", pa.struct([("x", pa.int8()), ("z", pa.string())])),
        ]
    )
    rows = [
        {
            "a": i, "b": None, "s": None if i % 3 == 0 else "é" * i, "y": b"z" * (i % 4),
            "l": None if i % 4 == 0 else ["w" * j for j in range(i)], "n": [[1] * j for j in range(i % 3)],
            "m": [(f"k{j}", j) for j in range(i % 5)], "f": [1.0, 2.0],
            "t": None if i % 5 == 0 else {"x": 1, "z": "q" * i},
        }
        for i in range(12)
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, schema=fields)
    expected = [sum(python_size(row[field.name], field.type) for field in fields) for row in rows]
    assert sizes_of_rows(batch).tolist() == expected
    assert sizes_of_rows(batch.slice(3, 5)).tolist() == expected[3:8]
    assert sizes_of_rows(batch.take(pa.array([7, 1, 1]))).tolist() == [expected[7], expected[1], expected[1]]
    assert sizes_of_rows(batch.slice(0, 0)).tolist() == []


@pytest.mark.parametrize("evict", ["fifo", "prob"])
def test_joins_of_many_streams_and_groups_take_a_budget_in_bytes(evict: str) -> None:
    sides = [table.append_column("u", pc.bit_wise_and(table["id"], 127)) for table in text_tables(3000)]
    streams = {"a": sides[0], "b": sides[1], "c": sides[1].slice(1000)}
    options: dict[str, Any] = {"time": "ts", "lateness": "0 seconds"}
    budget: dict[str, Any] = {"memory": "300 kB", "evict": evict}
    joins = [
        braided.Join("ab", left="a", right="b", on="u", within="300 milliseconds"),
        braided.Join("ac", left="a", right="c", on="id", within="3 seconds"),
    ]

    def rows(table: pa.Table) -> Counter[Any]:
        return Counter(zip(*(table[name].to_pylist() for name in table.column_names if "id" in name), strict=True))

    def both(**more: Any) -> tuple[list[Counter[Any]], list[Any]]:
        many = braided.local.multijoin(list(streams.values()), on="u", within="300 milliseconds", **options, **more)
        group = braided.local.join_group(joins, streams=streams, **options, **{"memory": 100_000, **more})
        tables = [many.table, *group.tables.values()]
        return [rows(table) for table in tables], [many.report.to_dict(), group.report.to_dict()]

    exact, _ = both()
    found, reports = both(**budget)
    assert found == both(**budget, batch_rows=777)[0]
    for some, everything in zip(found, exact, strict=True):
        assert not some - everything
        assert some.total() > 0
    assert found[0].total() < exact[0].total()
    assert found[1].total() < exact[1].total()
    for report in reports:
        assert 0 < report["workers"][0]["last"]["stored_bytes"] < 300_000
        assert report["workers"][0]["total"]["evicted"] > 0


def test_rows_larger_than_the_budget_are_counted_in_all_joins() -> None:
    us = pa.timestamp("us")
    a = pa.table({"k": [1, 1, 1], "ts": pa.array([0, 10, 30], us), "s": ["a", "x" * 900_000, "b"]})
    b, c = (pa.table({"k": [1, 1], "ts": pa.array([5 + at, 20 + at], us), "id": [1, 2]}) for at in (0, 1))
    options: dict[str, Any] = {"time": "ts", "memory": "500 kB", "evict": "fifo", "lateness": "0 seconds"}
    many = braided.local.multijoin([a, b, c], on="k", within="1 second", **options)
    # The large row meets those before it and is not kept for those after it.
    found = {(row["s"][:1], row["id_2"], row["id_3"]) for row in many.table.to_pylist()}
    assert found == {*((s, i, j) for s in "ab" for i in (1, 2) for j in (1, 2)), ("x", 1, 1)}
    assert many.report.to_dict()["workers"][0]["total"]["too_large"] == 1
    joins = [braided.Join(name, left="a", right=name, on="k", within="1 second") for name in ("b", "c")]
    group = braided.local.join_group(joins, streams={"a": a, "b": b, "c": c}, **options)
    for table in group.tables.values():
        found = {(row["s"][:1], row["id"]) for row in table.to_pylist()}
        assert found == {("a", 1), ("a", 2), ("x", 1), ("b", 1), ("b", 2)}
    assert group.report.to_dict()["workers"][0]["total"]["too_large"] == 1
