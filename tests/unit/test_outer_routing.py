"""Outer, semi and anti joins stay exact while their routing changes: the real operator, against a nested loop."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.outer_histories import READINGS, judge_real_history
from support.outer_streams import doubted_before_silence
from support.profiles import examples
from support.routing_cases import apply, changes, split_grid
from support.two_streams import histories, rows_of
from test_outer_join import operator, wanted

from braided.errors import BraidedError
from braided.local.runtime import LocalRuntime
from braided.operators.join.outer_join import OuterJoin
from braided.routing.assignment_expiry import Ahead, AssignmentExpiry
from braided.routing.edit import Full
from braided.routing.grid import even_grid
from braided.routing.home_edit import HomeEdit
from braided.routing.home_routes import route_to_homes
from braided.routing.table import BUCKETS, RoutingTable
from braided.time.clocks import Window
from braided.time.quarantine import StreamProgress

SEEDS = examples(300, quick=4)
EVENTS = ("settle", "dead", "several old", "promote", "demote", "move", "weights", "late", "leap", "full")
RARE = ("merge", "restart", "scale in", "scale out", "discarded", "idle")


def test_random_histories_are_exact() -> None:
    events: Counter[str] = Counter()
    for seed in range(SEEDS):
        for how in READINGS:
            history, wrong = judge_real_history(seed, how)
            assert wrong is None, f"{seed=} {how=}"
            events += history.events
    expected = (*EVENTS, *RARE) if SEEDS > 50 else EVENTS
    assert not [event for event in expected if not events[event]], "histories in which nothing happens prove nothing"


def test_doubted_rows_are_waited_for() -> None:
    for seed in range(SEEDS):
        assert judge_real_history(seed, "left", doubted_before_silence())[1] is None, f"{seed=}"


@st.composite
def rerouted(draw: st.DrawFn, home: int) -> dict[str, Any]:
    """A history of two streams with a few changes of routing before every batch."""
    case = draw(histories())
    case["workers"] = draw(st.integers(1, 5))
    keys = 1 + max((row["k"] for side in case["streams"] for row in side if row["k"] is not None), default=0)
    case["keys"] = keys
    case["changes"] = [
        [{**change, "grid": split_grid(change["grid"], home)} for change in draw(changes(case["workers"], keys))]
        for _ in case["cuts"][1:]
    ]
    return case


class Watch:
    """Stands in for a controller: takes the reports and decides nothing."""

    table = None

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def step(self, seen: Any, _wanted: Any) -> list[Any]:
        self.seen.append(seen)
        return []


def run_rerouted(how: str, case: dict[str, Any]) -> Counter[tuple[int | None, ...]]:
    """Run a case in which nothing is late; rows without a key or a time are among it."""
    join = operator(how, case)
    assert isinstance(join, OuterJoin)
    hashes = join.hasher.hash([pa.array(range(case["keys"]))], case["keys"]).tolist()
    rng = np.random.default_rng(case["shuffle"])
    watch: Any = Watch()
    runtime = LocalRuntime(join, stores=LocalRuntime(join, case["workers"]).stores, controller=watch)
    table = RoutingTable.hashed(case["workers"])
    deaths = AssignmentExpiry(join.window, join.home)
    found: Counter[tuple[int | None, ...]] = Counter()
    taken = [0, 0]

    def collect(tasks: Any, *, final: bool = False) -> None:
        runtime.table = table
        for piece in runtime.run_batch(tasks, final=final):
            names = [name for name in ("id", "id_right") if name in piece.schema.names]
            found.update(zip(*(piece[name].to_pylist() for name in names), strict=True))

    for start, stop, wishes in zip(case["cuts"], case["cuts"][1:], case["changes"], strict=False):
        table = apply(table, wishes, hashes, deaths)
        batch: list[list[dict[str, Any]]] = [[], []]
        for side in case["order"][start:stop]:
            batch[side].append(case["streams"][side][taken[side]])
            taken[side] += 1
        shuffled = [[rows[at] for at in rng.permutation(len(rows))] for rows in batch]
        tasks = [
            (side, [rows_of(rows[part :: case["tasks"]])])
            for side, rows in enumerate(shuffled)
            for part in range(case["tasks"])
        ]
        collect(tasks)
        for seen in watch.seen:
            deaths.observe(seen.batch, seen.version, seen.clocks, seen.ahead)
        watch.seen.clear()
        if case["restart"]:
            table = RoutingTable.from_bytes(table.to_bytes())
            number = runtime._batch
            runtime = LocalRuntime(join, stores=pickle.loads(pickle.dumps(runtime.stores)), controller=watch)
            runtime._batch = number
            if case["shuffle"] % 2:
                deaths = AssignmentExpiry(join.window, join.home)
    collect([(0, [])], final=True)
    return found


@pytest.mark.parametrize("how", READINGS)
@settings(max_examples=examples(400, quick=10), deadline=None)
@given(data=st.data())
def test_every_change_of_routing_is_exact(how: str, data: st.DataObject) -> None:
    case = data.draw(rerouted(1 if how == "right" else 0))
    assert run_rerouted(how, case) == wanted(how, case)


def hashes_of(buckets: list[int]) -> Any:
    return np.array([bucket + (number << 40) for number, bucket in enumerate(buckets)], np.uint64)


def routed(table: RoutingTable, side: int, split: int, bucket: int) -> set[tuple[int, bool]]:
    """Return the workers that get copies of a row of a bucket, and whether they store it."""
    routes = route_to_homes(table, side, split, hashes_of([bucket]), lambda at: np.full(len(at), 5 << 40, np.uint64))
    if routes.rows is None:
        return {(int(routes.workers[0]), True)}
    assert routes.stored is not None
    assert routes.primary is not None
    assert routes.primary.sum() == 1, "a row is counted once"
    assert len(set(zip(routes.workers.tolist(), routes.tags.tolist(), strict=True))) == len(routes.workers)  # type: ignore[union-attr]
    return set(zip(routes.workers.tolist(), routes.stored.tolist(), strict=True))


@pytest.mark.parametrize("split", [0, 1])
def test_a_change_has_two_phases(split: int) -> None:
    table = RoutingTable.hashed(4)
    edit = HomeEdit(table)
    edit.assign(np.array([0]), edit.add_grid(even_grid([1, 2, 3], 1 if split == 0 else 3)))
    opened = RoutingTable.from_bytes(edit.done().to_bytes())
    assert routed(opened, split, split, 0) == {(0, True)}
    assert routed(opened, 1 - split, split, 0) == {(0, True), (1, True), (2, True), (3, True)}
    edit = HomeEdit(opened)
    edit.drop(np.ones(opened.live.shape, np.bool_))
    assert edit.done() is opened, "neither an opening nor a home is ever dropped"
    assert edit.settle(np.ones(len(opened.live), np.bool_)) == 1
    changed = RoutingTable.from_bytes(edit.done().to_bytes())
    (home,) = routed(changed, split, split, 0)
    assert home[0] in (1, 2, 3)
    assert routed(changed, 1 - split, split, 0) == {(0, False), (1, True), (2, True), (3, True)}
    assert routed(changed, split, split, 1) == routed(changed, 1 - split, split, 1) == {(1, True)}, "another bucket"


def test_an_assignment_that_comes_back_is_opened_anew() -> None:
    table = RoutingTable.hashed(4)
    everything = np.ones(len(table.live), np.bool_)
    for worker in (1, 2):
        edit = HomeEdit(table)
        edit.assign(np.array([0]), worker)
        table = edit.done()
        edit = HomeEdit(table)
        edit.settle(everything)
        table = edit.done()
    edit = HomeEdit(table)
    edit.assign(np.array([0]), 0)
    table = edit.done()
    assert table.live[0].tolist() == [0, 2, 1, -1]
    assert routed(table, 0, 0, 0) == {(2, True)}
    assert routed(table, 1, 0, 0) == {(0, True), (2, True), (1, False)}


def test_a_key_has_one_change_at_a_time_its_bucket_s_included() -> None:
    key = 17 + (1 << 30)
    edit = HomeEdit(RoutingTable.hashed(4))
    assert edit.has_room(np.array([17])).all()
    edit.promote(key, even_grid([0, 2], 1))
    assert edit.has_room(np.array([16, 17, BUCKETS])).tolist() == [True, False, False]
    with pytest.raises(Full):
        edit.assign(np.array([17]), 3)
    table = edit.done()
    edit = HomeEdit(table)
    edit.settle(np.ones(len(table.live), np.bool_))
    edit.assign(np.array([17]), 3)
    assert edit.has_room(np.array([17, BUCKETS])).tolist() == [False, False], "the bucket is changing now"
    with pytest.raises(Full):
        edit.demote(key)


def test_a_grid_that_would_copy_rows_with_a_home_is_refused() -> None:
    edit = HomeEdit(RoutingTable.hashed(4))
    edit.assign(np.arange(BUCKETS), edit.add_grid(even_grid([0, 1], 2)))
    edit = HomeEdit(edit.done())
    edit.settle(np.ones(BUCKETS, np.bool_))
    with pytest.raises(BraidedError, match="a grid copies rows that must have one home"):
        routed(edit.done(), 0, 0, 0)


@pytest.mark.parametrize("versions", [(0, 0), (3, 3), (9, 0)], ids=["two homes", "no home", "of the future"])
def test_a_table_without_one_home_is_damaged(versions: tuple[int, int]) -> None:
    table = RoutingTable.hashed(2)
    live, since = table.live.copy(), table.since.copy()
    live[5, :2], since[5, :2] = (0, 1), versions
    damaged = replace(table, version=4, live=live, since=since)
    with pytest.raises(BraidedError, match="the home of a key group"):
        RoutingTable.from_bytes(damaged.to_bytes())


class Bounds:
    """An opening of bucket 0 in version 2, and what is known of the batches; the left rows have homes."""

    def __init__(self, *, settled: int | None = None) -> None:
        edit = HomeEdit(replace(RoutingTable.hashed(2), version=1))
        edit.assign(np.array([0]), 1)
        self.table = edit.done()
        if settled is not None:
            edit = HomeEdit(replace(self.table, version=settled - 1))
            edit.settle(np.ones(BUCKETS, np.bool_))
            self.table = edit.done()
        self.expiry = AssignmentExpiry(Window(-5, 5, (0, 0)), home=0)

    def observe(self, batch: int, version: int, left: int, right: int, ahead: list[Ahead] | None = None) -> None:
        self.expiry.observe(batch, version, (left, right), ahead)

    @property
    def ready(self) -> bool:
        return bool(self.expiry.ready(self.table)[0])

    @property
    def dead(self) -> bool:
        return bool(self.expiry.dead(self.table)[0].any())


def test_an_opening_begins_with_the_first_batch_pinned_to_it() -> None:
    bounds = Bounds()
    bounds.observe(0, 1, 10, 10)
    bounds.observe(1, 1, 20, 20)  # its table was published before this batch, which was pinned to the older one
    bounds.observe(2, 2, 25, 90)
    assert not bounds.ready
    bounds.observe(3, 2, 26, 91)
    assert bounds.ready, "right rows up to 20 can match no left row from 26 on"


def test_where_a_report_is_missing_the_bound_of_the_next_one_is_taken() -> None:
    bounds = Bounds()
    bounds.observe(0, 1, 10, 10)
    bounds.observe(2, 2, 30, 30)  # batch 1 may have been pinned to either table
    assert not bounds.ready
    bounds.observe(3, 2, 35, 35)
    assert not bounds.ready
    bounds.observe(4, 2, 36, 36)
    assert bounds.ready


@pytest.mark.parametrize("version", [2, 5])
def test_a_restarted_controller_takes_the_bound_of_its_first_report(version: int) -> None:
    bounds = Bounds()
    bounds.observe(7, version, 50, 50)
    bounds.observe(8, version, 55, 55)
    assert not bounds.ready
    bounds.observe(9, version, 56, 56)
    assert bounds.ready


def test_an_old_home_is_dead_once_its_last_preserved_row_has_left_and_not_before() -> None:
    bounds = Bounds(settled=4)
    bounds.observe(0, 3, 10, 10)
    bounds.observe(1, 3, 20, 12)
    bounds.observe(2, 4, 100, 25)
    assert not bounds.dead, "a left row at 20 may match a right one at 25"
    bounds.observe(3, 4, 101, 26)
    assert bounds.dead


@pytest.mark.parametrize("side", [0, 1], ids=["preserved", "other"])
def test_rows_in_quarantine_hold_a_change_back_until_they_are_discarded(side: int) -> None:
    bounds = Bounds(settled=4 if side == 0 else None)
    passed = lambda: bounds.dead if side == 0 else bounds.ready  # noqa: E731

    def ahead(clock: int, rows: int) -> list[Ahead]:
        """A row at 1,000 came in batch 0; nothing beyond the clock plus 100 is vouched for."""
        tops = [clock, clock]
        tops[side] = 1_000
        return [Ahead(top, clock + 100, StreamProgress(0, clock, rows)) for top in tops]

    before, after = (3, 4) if side == 0 else (1, 2)
    bounds.observe(0, before, 10, 10, ahead(10, 100))
    bounds.observe(1, after, 300, 300, ahead(11, 101))
    assert not passed(), "it may still be believed"
    bounds.observe(2, after, 301, 301, ahead(301, 163))
    assert not passed(), "its stream has gone on by too few rows"
    bounds.observe(3, after, 302, 302, ahead(302, 164))
    assert not passed(), "discarded; but others up to the limit may be stored"
    bounds.observe(4, after, 420, 420, ahead(420, 170))
    assert passed()


def test_rows_without_a_key_travel_beside_rows_of_a_grid() -> None:
    join = operator("left", {"window": Window(-5, 5, (0, 0))})
    assert isinstance(join, OuterJoin)
    runtime = LocalRuntime(join)
    edit = HomeEdit(runtime.table)
    edit.promote(int(join.hasher.hash([pa.array([7])], 1)[0]), even_grid([0], 1))
    edit = HomeEdit(edit.done())
    edit.settle(np.ones(BUCKETS + 1, np.bool_))
    runtime.table = edit.done()
    rows = [{"k": None, "t": 1, "id": 1}, {"k": 7, "t": 1, "id": 2}]
    found = [
        (row["id"], row["id_right"])
        for piece in runtime.run_batch([(0, [rows_of(rows)]), (1, [rows_of([{"k": 7, "t": 2, "id": 3}])])], final=True)
        for row in piece.to_pylist()
    ]
    assert sorted(found) == [(1, None), (2, 3)]
