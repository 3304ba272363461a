"""A silence of all streams releases what waits, once: outer joins against a nested loop, order, as-of, match, detect."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples
from support.two_streams import SCHEMA, histories, rows_of

from braided.local.runtime import LocalRuntime
from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.group_spec import GroupSpec, Join
from braided.operators.detect.spec import DetectSpec, Pattern
from braided.operators.join.spec import JoinSpec
from braided.operators.match.spec import MatchSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.registry import build
from braided.operators.spec import Spec
from braided.operators.stream import Stream

SECOND = 1_000_000
KINDS = ("left", "right", "full", "left_semi", "left_anti")
TICK = [(0, list[pa.RecordBatch]())]


def runtime_of(spec: Spec, workers: int = 1) -> LocalRuntime:
    return LocalRuntime(build(spec, [Stream(label, SCHEMA) for label in spec.labels]).operator, workers)


def releasable(runtime: LocalRuntime) -> bool:
    return any(report["last"]["releasable"] for report in runtime.reports)


def wanted(how: str, case: dict[str, Any], arrived: list[list[tuple[int, dict[str, Any]]]], ticks: list[int]) -> Any:
    """Return what comes out: all pairs, and rows that had met nothing when the next silence ended.

    `arrived` has the rows of each stream, each with its batch; a silence came after each batch of `ticks`.
    """
    window = case["window"]
    rows: Counter[tuple[int | None, ...]] = Counter()

    def met(one: dict[str, Any], other: dict[str, Any]) -> bool:
        known = None not in (one["k"], one["t"], other["k"], other["t"])
        return known and one["k"] == other["k"] and window.lo <= other["t"] - one["t"] <= window.hi

    left, right = arrived
    for at, one in left:
        partners = [(then, other) for then, other in right if met(one, other)]
        if how in ("left", "right", "full"):
            rows.update((one["id"], other["id"]) for _, other in partners)
        if how == "left_semi" and partners:
            rows[(one["id"],)] += 1
        silence = min((tick for tick in ticks if tick >= at), default=None)
        before = silence is not None and not any(then <= silence for then, _ in partners)
        nothing = one["t"] is None
        if (before or nothing) and how in ("left", "full", "left_anti"):
            rows[(one["id"],) if how == "left_anti" else (one["id"], None)] += 1
    if how in ("right", "full"):
        for at, other in right:
            partners = [then for then, one in left if met(one, other)]
            silence = min((tick for tick in ticks if tick >= at), default=None)
            before = silence is not None and not any(then <= silence for then in partners)
            if before or other["t"] is None:
                rows[(None, other["id"])] += 1
    return rows


@pytest.mark.parametrize("how", KINDS)
@settings(max_examples=examples(300, quick=12), deadline=None)
@given(case=histories(), data=st.data())
def test_rows_that_met_nothing_leave_when_all_streams_are_silent(how: str, case: dict[str, Any], data: Any) -> None:
    window = case["window"]
    # So late may rows be that no horizon releases one: only silences do.
    spec = JoinSpec(
        on="k", time="t", between=(f"{window.lo} us", f"{window.hi} us"), how=how, lateness="1 hour", idle="10 seconds",
    )  # type: ignore[arg-type]  # fmt: skip
    runtime = runtime_of(spec, case["workers"])
    found: Counter[Any] = Counter()
    taken, moment, ticks = [0, 0], 0, []
    arrived: list[list[tuple[int, dict[str, Any]]]] = [[], []]

    def collect(tasks: list[tuple[int, list[pa.RecordBatch]]]) -> None:
        for piece in runtime.run_batch(tasks, moment=moment):
            names = [name for name in ("id", "id_right") if name in piece.schema.names]
            found.update(zip(*(piece[name].to_pylist() for name in names), strict=True))
        if case["restart"]:
            runtime.stores = pickle.loads(pickle.dumps(runtime.stores))

    for number, (start, stop) in enumerate(zip(case["cuts"], case["cuts"][1:], strict=False)):
        tasks: list[tuple[int, list[pa.RecordBatch]]] = []
        for side in case["order"][start:stop]:
            row = case["streams"][side][taken[side]]
            taken[side] += 1
            arrived[side].append((number, row))
            tasks.append((side, [rows_of([row])]))
        moment += SECOND
        collect(tasks or TICK)
        if data.draw(st.booleans()):
            moment += 10 * SECOND
            ticks.append(number)
            collect(TICK)
            assert not releasable(runtime), "a silent query must not ask for batches for ever"
    assert found == wanted(how, case, arrived, ticks)


def test_a_silence_of_one_stream_alone_releases_nothing_new() -> None:
    spec = JoinSpec(on="k", time="t", within="5 us", how="left", lateness="1 hour", idle="10 seconds")
    runtime = runtime_of(spec)
    for number in range(20):
        rows = rows_of([{"k": number, "t": number, "id": number}])
        assert not list(runtime.run_batch([(0, [rows])], moment=number * SECOND))
        assert releasable(runtime)


def ids(runtime: LocalRuntime, tasks: Any, moment: int) -> list[int]:
    pieces = list(runtime.run_batch(tasks, moment=moment * SECOND))
    return [number for piece in pieces for number in piece["id"].to_pylist()]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("inputs", [1, 2])
def test_a_silence_lets_ordered_rows_go(inputs: int, key: Any) -> None:
    runtime = runtime_of(OrderSpec(inputs=inputs, time="t", key=key, lateness="1 minute", idle="10 seconds"))
    first = [{"k": 1, "t": 10 * (9 - number), "id": 9 - number} for number in range(10)]
    assert ids(runtime, [(0, [rows_of(first)])], 0) == []
    assert releasable(runtime)
    assert ids(runtime, TICK, 9) == []
    assert releasable(runtime)
    assert ids(runtime, TICK, 10) == list(range(10))
    assert not releasable(runtime)
    assert ids(runtime, TICK, 30) == []
    # What is after all that left is in order; what is before is late.
    later = [{"k": 1, "t": 95, "id": 11}, {"k": 1, "t": 85, "id": 10}, {"k": 1, "t": 100, "id": 12}]
    pieces = list(runtime.run_batch([(0, [rows_of(later)])], moment=31 * SECOND))
    assert [(row["id"], row["late"]) for piece in pieces for row in piece.to_pylist()] == [(10, True)]
    assert releasable(runtime)
    assert ids(runtime, TICK, 41) == [11, 12]


def test_rows_by_which_no_clock_counts_wait_on_in_order_and_ask_for_nothing() -> None:
    """The first of them may be the one with a wrong clock."""
    runtime = runtime_of(OrderSpec(time="t", lateness="1 minute", idle="10 seconds"))
    assert ids(runtime, [(0, [rows_of([{"k": 1, "t": 4_000_000_000_000_000, "id": 1}])])], 0) == []
    assert not releasable(runtime)
    assert ids(runtime, TICK, 20) == []
    rows = [{"k": 1, "t": number, "id": 2 + number} for number in range(9)]
    assert ids(runtime, [(0, [rows_of(rows)])], 21) == []
    assert ids(runtime, TICK, 40) == list(range(2, 11)), "all but the wrong one, none of them late"


def test_a_quarantined_row_does_not_leave_an_outer_join_by_a_silence() -> None:
    spec = JoinSpec(on="k", time="t", within="5 us", how="left", lateness="1 hour", idle="10 seconds")
    runtime = runtime_of(spec)
    rows = [{"k": 1, "t": number, "id": number} for number in range(9)]
    ahead = [{"k": 1, "t": 4_000_000_000_000_000, "id": 99}]
    assert ids(runtime, [(0, [rows_of(rows)])], 0) == []
    assert ids(runtime, [(0, [rows_of(ahead)])], 1) == []
    assert ids(runtime, TICK, 20) == list(range(9))
    assert not releasable(runtime)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_silence_answers_what_waits_in_an_as_of_join(direction: Any, how: Any) -> None:
    spec = AsofSpec(
        on="k", time="t", tolerance="20 us", direction=direction, how=how, lateness="1 minute", idle="10 seconds"
    )
    runtime = runtime_of(spec)
    left = [{"k": 1, "t": 10 * number, "id": number} for number in range(10)]
    right = [{"k": 1, "t": 10 * number + 4, "id": number} for number in range(3)]
    assert ids(runtime, [(0, [rows_of(left)]), (1, [rows_of(right)])], 0) == []
    assert releasable(runtime)
    pieces = list(runtime.run_batch(TICK, moment=11 * SECOND))
    answers = {row["id"]: row["id_right"] for piece in pieces for row in piece.to_pylist()}

    def answer(time: int) -> int | None:
        near = [number for number in range(3) if abs(10 * number + 4 - time) <= 20]
        before = [number for number in near if 10 * number + 4 <= time]
        after = [number for number in near if 10 * number + 4 >= time]
        if direction == "backward":
            return max(before, default=None)
        if direction == "forward":
            return min(after, default=None)
        return min(near, key=lambda number: abs(10 * number + 4 - time), default=None)

    every = {number: answer(10 * number) for number in range(10)}
    assert answers == (every if how == "left" else {a: b for a, b in every.items() if b is not None})
    assert not releasable(runtime)


def test_a_silence_after_some_rows_have_left_answers_those_that_wait_for_a_closer_one() -> None:
    """Here left rows have left the ordering stage, and wait beside the right ones, on workers that get no row more."""
    spec = AsofSpec(on="k", time="t", tolerance="1 minute", direction="forward", lateness="0 us", idle="10 seconds")
    runtime = runtime_of(spec, workers=3)
    left = [{"k": number, "t": number, "id": number} for number in range(20)]
    right = [{"k": -1, "t": number, "id": number} for number in range(40)]
    assert ids(runtime, [(0, [rows_of(left)]), (1, [rows_of(right)])], 0) == []
    assert releasable(runtime)
    assert sorted(ids(runtime, TICK, 10)) == list(range(20))
    assert not releasable(runtime)


WAITING = [
    JoinSpec(on="k", time="t", within="5 us", memory=100, lateness="1 minute", idle="10 seconds"),
    GroupSpec(
        streams=("a", "b"), joins=[Join("j", left="a", right="b", on="k", within="5 us")], time="t", memory=100,
        lateness="1 minute", idle="10 seconds",
    ),
    MatchSpec(
        time="t", key="k", pattern="A B", define={"B": "id > prev(id)"}, measures={"id": "last(B.id)"}, within="9 us",
        lateness="1 minute", idle="10 seconds",
    ),
    DetectSpec(
        streams=("s",), detectors=[Pattern("up", subscribes="s", pattern="A B", measures={"t": "last(B.t)"}, within="9 us")],
        time="t", key="k", lateness="1 minute", idle="10 seconds",
    ),
]  # fmt: skip


@pytest.mark.parametrize("spec", WAITING, ids=lambda spec: spec.kind)
def test_every_operator_that_puts_rows_in_order_goes_on_in_a_silence(spec: Spec) -> None:
    runtime = runtime_of(spec)
    rows = [{"k": 1, "t": number, "id": number} for number in range(10)]
    tasks = [(side, [rows_of(rows)]) for side in range(len(spec.labels))]
    assert not list(runtime.run_batch(tasks, moment=0))
    assert releasable(runtime)
    assert sum(piece.num_rows for piece in runtime.run_batch(TICK, moment=10 * SECOND)) > 0
    assert not releasable(runtime)


def test_without_idle_nothing_is_reported() -> None:
    for spec in (OrderSpec(time="t", idle=None), JoinSpec(on="k", time="t", within="5 us", how="left")):
        runtime = runtime_of(spec)
        list(runtime.run_batch([(0, [rows_of([{"k": 1, "t": 1, "id": 1}])])]))
        assert "releasable" not in runtime.reports[0]["last"]
        assert "moment" not in runtime.reports[0]


def test_a_batch_decides_by_the_clocks_that_its_own_rows_have_moved() -> None:
    """So the last batch of a run that ends leaves nothing behind that is certain."""
    rows = [{"k": number, "t": number, "id": number} for number in range(100)]
    order = runtime_of(OrderSpec(time="t", lateness="10 us"))
    assert ids(order, [(0, [rows_of(rows)])], 0) == list(range(89)), "before the clock, 99, minus 10"
    join = runtime_of(JoinSpec(on="k", time="t", between=("0 us", "5 us"), how="left_anti", lateness="10 us"))
    others = [{"k": -1, "t": number, "id": number} for number in range(100)]
    assert sorted(ids(join, [(0, [rows_of(rows)]), (1, [rows_of(others)])], 0)) == list(range(84)), "t + 5 < 99 - 10"
    closest = runtime_of(AsofSpec(on="k", time="t", tolerance="5 us", direction="forward", lateness="10 us"))
    assert sorted(ids(closest, [(0, [rows_of(rows)]), (1, [rows_of(others)])], 0)) == list(range(84))
