"""Queries in one process: windowed aggregates after a join are DuckDB's, and what cannot run says so."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided import local
from braided.errors import BraidedError, OptionError
from braided.operators.aggregate.partial import PartialAggregate
from braided.operators.join.spec import JoinSpec
from braided.operators.physical import InputColumn
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.plan.aggregates import aggregate_node
from braided.plan.nodes import Operator, Source
from braided.plan.optimiser import NotApplied
from braided.plan.partials import Use, plan_partials, with_partials

US = pa.timestamp("us")
VALUES = {
    "n": "count(*)", "some": "count(x)", "total": "sum(v)", "big": "sum(w_right)", "low": "min(ts_right)", "high": "max(v_right)",
    "mean": "avg(v_right)", "share": "sum(x)",
}  # fmt: skip
# The same over l and r.
ORACLE = """count(*), count(l.x), sum(l.v), sum(r.w), min(epoch_us(r.ts)), max(r.v), avg(r.v), sum(l.x)"""
FLAGS = {"low": "min(ts_right)", "all": "bool_and(b)", "any": "bool_or(b_right)", "least": "min(b_right)"}
FLAGS_ORACLE = "min(epoch_us(r.ts)), bool_and(l.b), bool_or(r.b), min(r.b::int)"
# What needs the pairs themselves: computed from both, or by their order.
PAIRED = {
    "low": "min(ts_right)", "open": "first(x_right)", "close": "last(k_name)", "any": "any_value(v)", "shut": "last_value(b)",
    "product": "sum(v * w_right)", "apart": "max(abs(v - v_right))", "mean": "avg(x * 2.5D - v_right)", "both": "count(v + v_right)", "begun": "first(v - v_right)",
}  # fmt: skip
PAIRED_ORACLE = """min(epoch_us(r.ts)), first(r.x order by {time}, r.x nulls first), last(l.k_name order by {time}, l.k_name nulls first),
    first(l.v order by {time}, l.v nulls first), last(l.b order by {time}, l.b nulls first), sum(l.v * r.w), max(abs(l.v - r.v)),
    avg(l.x * 2.5 - r.v), count(l.v + r.v), first(l.v - r.v order by {time}, l.v - r.v nulls first)"""
ASKED = [(VALUES, ORACLE), (FLAGS, FLAGS_ORACLE), (PAIRED, PAIRED_ORACLE)]


def _stream(seed: int, rows: int, keys: int) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "k": pa.array([None if n == 0 else f"k{n}" for n in random.integers(0, keys + 1, rows)]),
            "ts": pa.array(np.sort(random.integers(0, 200, rows)) * 200_000, US),
            "g": random.integers(0, 3, rows),
            "v": pa.array([None if n == 7 else int(n) for n in random.integers(-9, 9, rows)], pa.int32()),
            "w": pa.array(random.integers(0, 2**40, rows)),
            "x": pa.array([None if n == 1 else n / 4 for n in random.integers(0, 8, rows)]),
            "b": pa.array([None if n == 3 else n == 1 for n in random.integers(0, 4, rows)]),
            "k_name": pa.array([None if n == 2 else "äz"[n % 2] for n in random.integers(0, 6, rows)]),
        }
    )


def _oracle(
    tables: dict[str, pa.Table], values: str, by: str, time: str, size: int, slide: int, extra: str = ""
) -> list[Any]:
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        found = database.sql(f"""
            with starts as (select unnest(generate_series(-{size * 4}, 48000000, {slide})) as s)
            select s, {by}, {values.format(time=time)} from starts, l join r on l.k = r.k and epoch_us(r.ts) - epoch_us(l.ts) between -2000000 and 3000000
            {extra} where s <= epoch_us({time}) and epoch_us({time}) < s + {size} group by s, {by}""").fetchall()
    return _normal(found)


def _normal(rows: list[Any]) -> list[Any]:
    plain = [tuple(v if v is None or isinstance(v, str) else round(float(v), 6) for v in row) for row in rows]
    return sorted(plain, key=repr)


def _found(table: pa.Table) -> list[Any]:
    rows = []
    low = table["low"].combine_chunks().view(pa.int64())
    starts = pa.compute.struct_field(table["window"], "start").combine_chunks().view(pa.int64())
    ends = pa.compute.struct_field(table["window"], "end").combine_chunks().view(pa.int64())
    assert len(set((ends.to_numpy() - starts.to_numpy()).tolist())) <= 1
    plain = table.set_column(table.column_names.index("low"), "low", low).set_column(0, "window", starts)
    for row in plain.to_pylist():
        rows.append(tuple(row.values()))
    return _normal(rows)


@settings(max_examples=examples(90, quick=12), deadline=None)
@given(
    seed=st.integers(0, 1000),
    by=st.sampled_from([("k", "l.k"), ("g", "l.g"), ("g_right", "r.g")]),
    time=st.sampled_from([("ts", "l.ts"), ("ts_right", "r.ts")]),
    shape=st.sampled_from([(5, 5), (6, 4), (9, 3)]),
    workers=st.integers(1, 3),
    where=st.booleans(),
    asked=st.sampled_from(ASKED),
)
def test_an_aggregate_after_a_join_is_the_oracles(
    seed: int,
    by: tuple[str, str],
    time: tuple[str, str],
    shape: tuple[int, int],
    workers: int,
    where: bool,
    asked: tuple[dict[str, str], str],
) -> None:
    tables = {"l": _stream(seed, 120, 6), "r": _stream(seed + 1, 150, 6)}
    joined = local.stream(tables["l"], time="ts").join(
        local.stream(tables["r"], time="ts"),
        on="k",
        between=("-2 seconds", "3 seconds"),
        where="l.v < r.v" if where else None,
        lateness="2 seconds",
        workers=workers,
        batch_rows=70,
    )
    size, slide = (1_000_000 * n for n in shape)
    found = joined.aggregate(
        by=by[0], time=time[0], window=f"{shape[0]} seconds", every=f"{shape[1]} seconds", **asked[0]
    ).table
    extra = "and l.v < r.v" if where else ""
    assert _found(found) == _oracle(tables, asked[1], by[1], time[1], size, slide, extra)


def test_windows_of_nothing_are_none() -> None:
    empty = _stream(1, 5, 3).slice(0, 0)
    joined = local.stream(empty, time="ts").join(local.stream(empty, time="ts"), on="k", within="1 second")
    found = joined.aggregate(window="5 seconds", every="2 seconds", n="count(*)", mean="avg(v)")
    assert found.table.num_rows == 0
    assert found.table.column_names == ["window", "n", "mean"]
    assert joined.result.table.num_rows == 0


ERRORS = [
    ({"by": "cel"}, "by='cel': no such column; did you mean 'cell'?"),
    ({"n": "sum(durat)"}, "n='durat': no such column; the columns are k, ts, cell, ts_right, cell_right"),
    ({"time": "ts_rigt"}, "time='ts_rigt': no such column; did you mean 'ts_right'?"),
    ({"every": "2 minutes"}, "every='2 minutes': write a duration above 0 and of at most window='1 minute'"),
    ({"n": "cell"}, "n='cell': not an aggregate; write for example 'max(cell)', or add it to by="),
    ({"n": "count(*"}, "n='count(*': cannot be parsed; write an aggregate such as 'count(*)' or 'avg(duration)'"),
    ({"n": 3}, "n=3: write an aggregate as text, such as 'count(*)' or 'avg(duration)'"),
    ({"by": "cell", "Cell": "count(*)"}, "Cell=: the result has a column of that name already; choose another"),
    ({"n": "stddev(k)"}, "aggregate: cannot run in one process, because partial results of stddev(k) cannot be merged"),
    ({"n": "max(cell)"}, "aggregate: cannot run in one process, because only Spark can compute max of string"),
    ({"n": "cuont(*)"}, "n='cuont(*)': no such aggregate; did you mean count?"),
    ({"n": "total(k)"}, "n='total(k)': no such aggregate; the aggregates are avg, bool_and, bool_or, count, first, last, max"),
    ({"n": "count()"}, "n='count()': no column; write count and a column in brackets"),
    ({"n": "sum(*)"}, "n='sum(*)': no column; write sum and a column in brackets"),
    ({"n": "sum(distinct k)"}, "n='sum(distinct k)': more than one column, or distinct values; write sum and one"),
    ({"n": "sum(max(k))"}, "n='sum(max(k))': an aggregate inside another one; aggregate twice"),
    ({"n": "max(k / 2)"}, "aggregate: cannot run in one process, because only Spark can compute `k` / 2"),
    ({"n": "sum(ke + 1)"}, "n='ke': no such column; did you mean 'k'?"),
    ({"n": "bool_and(k)"}, "cannot run in one process, because bool_and needs booleans, not bigint"),
    ({"n": "any(k)"}, "n='any(k)': no such aggregate; did you mean bool_or?"),
    ({"by": ["k", "K"]}, "by='K': names a column twice; name it once"),
    ({"n": "sum(1)"}, "n='sum(1)': the argument is not computed from columns alone; compute it in the streams, before the join"),
    ({"n": "first(k) IGNORE NULLS"}, "first and last include nulls; filter nulls before the join"),
    ({"n": "sum(k) + 1"}, "n='sum(k) + 1': more than one aggregate; compute with its value afterwards"),
    ({"n": "sum(k) AS n"}, "n='sum(k) AS n': the name of the option is the name of the value; omit the alias in the text"),
    ({"window": "1 hour", "every": "1 us"}, "windows have 3,600,000,000 parts, more than 67,108,864, since every moment"),
    ({}, "aggregate: no values; add at least one, such as n='count(*)'"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), ERRORS, ids=[message[:30] for _, message in ERRORS])
def test_what_cannot_be_aggregated_says_why(given: dict[str, Any], message: str) -> None:
    rows = pa.table({"k": [1], "ts": pa.array([0], US), "cell": ["a"]})
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", within="1 second")
    values = {"n": "count(*)"} if given and "n" not in given and "Cell" not in given else {}
    with pytest.raises(OptionError, match=re.escape(message)):
        joined.aggregate(**{"window": "1 minute", **values, **given})


def test_a_key_may_be_called_as_the_start_of_a_window_is() -> None:
    rows = pa.table({"start": [1, 1], "ts": pa.array([0, 1], US)})
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="start", within="1 second")
    found = joined.aggregate(by="start", window="1 minute", n="count(*)").table
    assert found.select(["start", "n"]).to_pylist() == [{"start": 1, "n": 4}]


@pytest.mark.parametrize("zeros", [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]])
def test_which_zero_is_the_first_does_not_depend_on_their_order(zeros: list[float]) -> None:
    rows = pa.table({"k": [1, 1], "ts": pa.array([5, 5], US), "x": zeros})
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", within="1 second")
    found = joined.aggregate(window="1 minute", open="first(x)", close="last(x)").table
    assert [str(found[name][0].as_py()) for name in ("open", "close")] == ["0.0", "0.0"]


def test_a_sum_that_does_not_fit_is_refused() -> None:
    rows = pa.table({"k": [1, 1], "ts": pa.array([0, 1], US), "n": [2**62, 2**62]})
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", within="1 second")
    with pytest.raises(BraidedError, match=re.escape("total: sum(n) of a window does not fit 64 bits")):
        joined.aggregate(window="1 minute", total="sum(n)")
    with pytest.raises(OptionError, match=re.escape("other: Table is not a stream; write braided.local.stream(table")):
        local.stream(rows, time="ts").join(rows, on="k", within="1 second")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=re.escape("witin=: unknown option of join; did you mean within=?")):
        local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", witin="1 second")


def test_sums_of_decimals_are_exact_and_as_wide_as_sparks() -> None:
    values = [Decimal("99999999.99"), Decimal("-0.01"), None, Decimal("0.05")]
    rows = pa.table(
        {"k": [1] * 4, "ts": pa.array([0, 1, 2, 70_000_000], US), "d": pa.array(values, pa.decimal128(10, 2))}
    )
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", within="1 second")
    found = joined.aggregate(window="1 minute", total="sum(d)").table
    assert found["total"].to_pylist() == [Decimal("299999999.94"), Decimal("0.05")]
    assert found.schema.field("total").type == pa.decimal128(20, 2)
    wide = rows.set_column(2, "d", rows["d"].cast(pa.decimal128(29, 2)))
    joined = local.stream(wide, time="ts").join(local.stream(rows, time="ts"), on="k", within="1 second")
    with pytest.raises(OptionError, match=re.escape("because only Spark can compute sum of decimal(29,2)")):
        joined.aggregate(window="1 minute", total="sum(d)")


@pytest.mark.parametrize(
    ("time", "side", "reach"), [(None, 0, 3_000_000), ("ts", 0, 3_000_000), ("ts_right", 1, 2_000_000)]
)
def test_partials_know_which_time_is_windowed_and_how_far_results_may_lag(
    time: str | None, side: int, reach: int
) -> None:
    """A left row may be 3 seconds before the right row that it meets last, a right row 2 seconds before the left one."""
    schema = _stream(1, 1, 1).schema.set(0, pa.field("k", pa.string()))
    spec = JoinSpec(on="k", time="ts", between=("-2 seconds", "3 seconds"), lateness="0 seconds")
    plan = build(spec, [Stream("left", schema), Stream("right", schema)])
    columns = [column.name for column in plan.columns if isinstance(column, InputColumn)]
    join = Operator(spec, (Source(0, ()), Source(1, ())))
    node = aggregate_node(
        join, columns, by="k", window="6 seconds", every="4 seconds", time=time or "ts", values={"n": "count(*)"}
    )
    partials = plan_partials(node, plan)
    found = with_partials(plan, partials).operator
    assert isinstance(found, PartialAggregate)
    assert (found.panes.side, found.panes.reach, found.panes.width) == (side, reach, 2_000_000)
    assert partials.uses == (Use("sum", (0,)),)
    with pytest.raises(NotApplied, match="v is not a time column of the join"):
        plan_partials(replace(node, time="v"), plan)


def test_windows_that_advance_by_little_are_made_at_once() -> None:
    rows = pa.table({"k": [1, 1, 2], "ts": pa.array([-1, 300, 7], US)})
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", within="0 seconds")
    found = joined.aggregate(by="k", window="100 ms", every="1 us", n="count(*)").table
    starts = pc.struct_field(found["window"], "start").cast(pa.int64()).to_numpy()
    counts = {key: found.filter(pc.equal(found["k"], key))["n"].to_pylist() for key in (1, 2)}
    assert sorted(counts[1]) == [1] * 602 + [2] * 99_699
    assert counts[2] == [1] * 100_000
    assert (starts.min(), starts.max()) == (-100_000, 300)


@pytest.mark.parametrize(("time", "fits"), [(2**63 - 1, False), (2**63 - 70_000_000, True), (-(2**63), False)])
def test_windows_at_the_limits_of_time(time: int, fits: bool) -> None:
    rows = pa.table({"k": [1], "ts": pa.array([time], US)})
    joined = local.stream(rows, time="ts").join(local.stream(rows, time="ts"), on="k", within="0 seconds")
    if fits:
        assert joined.aggregate(window="2 seconds", n="count(*)").table["n"].to_pylist() == [1]
    else:
        with pytest.raises(BraidedError, match="64 bits can hold; leave such times out"):
            joined.aggregate(window="1 minute", n="count(*)")


def test_groups_of_doubles_have_one_zero_and_one_nan() -> None:
    values = np.array([0.0, -0.0, np.nan, -np.nan])
    left = pa.table({"k": [1] * 4, "ts": pa.array([0] * 4, pa.timestamp("us")), "d": values})
    right = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))})
    joined = local.stream(left, time="ts").join(local.stream(right, time="ts"), on="k", within="1 second")
    assert joined.aggregate(by="d", window="1 minute", n="count(*)").table["n"].to_pylist() == [2, 2]


def test_a_window_of_nothing_is_named() -> None:
    rows = local.stream(pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    with pytest.raises(OptionError, match=r"^window='0 seconds': not above 0; write a longer duration$"):
        rows.join(rows, on="k", within="1 second").aggregate(window="0 seconds", n="count(*)")
