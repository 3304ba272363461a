"""Changing routing tables: what a group stores where, what it still probes, and when that may end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples
from support.routing_cases import apply, changes

from braided.local.runtime import LocalRuntime
from braided.routing.assignment_expiry import AssignmentExpiry, Clocks
from braided.routing.content import content_hashes, row_hashes
from braided.routing.edit import Full, TableEdit
from braided.routing.grid import Grid, even_grid
from braided.routing.routes import Routes, route
from braided.routing.table import BUCKETS, GRIDS, MAX_LIVE, RoutingTable
from braided.time.clocks import Window

KEY = (9 << 20) + 17  # a key hash in bucket 17
OTHER = (8 << 20) + 17
WORKERS = 4
HOME = 17 % WORKERS


def edited(table: RoutingTable, *steps: Callable[[TableEdit], Any]) -> RoutingTable:
    """Return the table after one version per step."""
    for step in steps:
        edit = TableEdit(table)
        step(edit)
        table = edit.done()
    return table


def move(bucket: int, worker: int) -> Callable[[TableEdit], None]:
    return lambda edit: edit.assign(np.array([bucket]), worker)


def promote(key: int, columns: int = 1) -> Callable[[TableEdit], None]:
    return lambda edit: edit.promote(key, even_grid(range(WORKERS), columns))


def demote(key: int) -> Callable[[TableEdit], None]:
    return lambda edit: edit.demote(key)


def drop(group: int, place: int) -> Callable[[TableEdit], None]:
    def step(edit: TableEdit) -> None:
        dead = np.zeros(edit.done().live.shape, np.bool_)
        dead[group, place] = True
        edit.drop(dead)

    return step


def group_of(table: RoutingTable, key: int) -> int:
    return int(table.groups_of(np.array([key], np.uint64))[0])


def alive(table: RoutingTable, group: int) -> list[tuple[int, int]]:
    """A group's assignments and the versions that replaced them, newest first."""
    pairs = zip(table.live[group].tolist(), table.since[group].tolist(), strict=True)
    return [(assignment, since) for assignment, since in pairs if assignment >= 0]


START = RoutingTable.hashed(WORKERS)


# Assign.


def test_a_moved_bucket_is_stored_anew_and_still_probes_where_it_was() -> None:
    table = edited(START, move(17, 3))
    assert alive(table, 17) == [(3, 0), (HOME, 1)]
    assert (table.live[np.arange(BUCKETS) != 17] == START.live[np.arange(BUCKETS) != 17]).all()
    assert (table.version, table.plain, START.plain) == (1, False, True)


def test_nothing_changed_is_the_same_table() -> None:
    assert edited(START, move(17, HOME)) is START
    assert edited(START, demote(KEY)) is START
    assert edited(START, drop(17, 1)) is START


def test_an_edit_leaves_the_table_it_began_with_alone() -> None:
    before = START.digest
    edited(START, move(17, 3), promote(KEY), demote(KEY))
    assert RoutingTable.from_bytes(START.to_bytes()).digest == before


def test_a_return_to_a_living_assignment_moves_it_to_the_front() -> None:
    table = edited(START, move(17, 2), move(17, 3), move(17, HOME))
    assert alive(table, 17) == [(HOME, 0), (3, 3), (2, 2)]
    assert alive(edited(table, move(17, 2)), 17) == [(2, 0), (HOME, 4), (3, 3)]
    # From the middle of the list, too: no gap is left.
    assert edited(table, move(17, 3)).live[17].tolist() == [3, HOME, 2, -1]


def test_four_alive_are_full_until_one_is_dead() -> None:
    table = edited(START, move(17, 2), move(17, 3), move(17, 0))
    assert len(alive(table, 17)) == MAX_LIVE == 4
    edit = TableEdit(table)
    assert edit.has_room(np.array([16, 17, 18])).tolist() == [True, False, True]
    with pytest.raises(Full, match="4 assignments of a key group are alive; wait until one is dead"):
        edit.assign(np.array([17, 18]), HOME)
    assert edit.done() is table
    roomy = edited(table, drop(17, 2))
    assert alive(roomy, 17) == [(0, 0), (3, 3), (HOME, 1)]
    assert alive(edited(roomy, move(17, 2)), 17) == [(2, 0), (0, 5), (3, 3), (HOME, 1)]


def test_drop_never_drops_the_newest() -> None:
    table = edited(START, move(17, 3), move(17, 2))
    edit = TableEdit(table)
    edit.drop(np.ones(table.live.shape, np.bool_))
    after = edit.done()
    assert alive(after, 17) == [(2, 0)]
    assert (after.live[:, 0] == table.live[:, 0]).all()
    assert after.plain


# Hot keys.


def test_a_promoted_key_has_a_group_of_its_own_and_probes_what_its_bucket_did() -> None:
    table = edited(START, move(17, 3), promote(KEY, 2))
    assert table.groups_of(np.array([KEY, OTHER, 17, 18], np.uint64)).tolist() == [BUCKETS, 17, 17, 18]
    assert alive(table, BUCKETS) == [(GRIDS, 0), (3, 2), (HOME, 1)]
    assert alive(table, 17) == [(3, 0), (HOME, 1)]
    assert table.grids[GRIDS].shape == "2 x 2"


def test_keys_are_found_whatever_the_order_of_their_promotion() -> None:
    keys = [(5 << 30) + 1, 3, (1 << 64) - 1, (5 << 30) + 2, 0]
    table = edited(START, *(promote(key) for key in keys))
    groups = [group_of(table, key) for key in keys]
    assert [table.key_hashes[group - BUCKETS] for group in groups] == keys
    # The n-th promotion made the n-th grid.
    assert [int(table.live[group, 0]) - GRIDS for group in groups] == [0, 1, 2, 3, 4]
    assert group_of(table, 4) == 4


def test_a_demoted_key_keeps_its_group_until_its_grid_is_dead() -> None:
    table = edited(START, promote(KEY), demote(KEY))
    assert alive(table, group_of(table, KEY)) == [(HOME, 0), (GRIDS, 2)]
    assert table.key_demoted.tolist() == [True]
    assert list(table.grids) == [GRIDS]
    after = edited(table, drop(BUCKETS, 1))
    assert (len(after.key_hashes), len(after.grids), group_of(after, KEY)) == (0, 0, 17)
    assert after.plain


def test_demoted_keys_follow_their_bucket_and_promoted_ones_do_not() -> None:
    table = edited(START, promote(KEY), promote(OTHER), demote(KEY), move(17, 3))
    assert alive(table, 17) == [(3, 0), (HOME, 4)]
    assert alive(table, group_of(table, KEY)) == [(3, 0), (HOME, 4), (GRIDS, 3)]
    assert alive(table, group_of(table, OTHER)) == [(GRIDS + 1, 0), (HOME, 2)]


def test_a_bucket_has_no_room_while_a_key_that_follows_it_has_none() -> None:
    table = edited(START, promote(KEY), demote(KEY), promote(KEY), demote(KEY), move(17, 3))
    assert len(alive(table, 17)) == 2
    assert len(alive(table, group_of(table, KEY))) == MAX_LIVE
    edit = TableEdit(table)
    assert edit.has_room(np.array([16, 17])).tolist() == [True, False]
    with pytest.raises(Full):
        edit.assign(np.array([17]), 0)


def test_a_demoted_key_may_be_promoted_again() -> None:
    table = edited(START, promote(KEY, 1), demote(KEY), promote(KEY, 2))
    assert alive(table, group_of(table, KEY)) == [(GRIDS + 1, 0), (HOME, 3), (GRIDS, 2)]
    assert table.key_demoted.tolist() == [False]
    assert alive(edited(table, move(17, 3)), BUCKETS)[0] == (GRIDS + 1, 0)


def test_a_bucket_outlives_what_a_forgotten_key_still_needs() -> None:
    """Edits never make a key leave a worker later than its bucket did, but a table may say so."""
    table = edited(START, promote(KEY), demote(KEY), move(17, 3))
    assert alive(table, BUCKETS) == [(3, 0), (HOME, 3), (GRIDS, 2)]
    since = table.since.copy()
    since[BUCKETS, 1] = 9
    after = edited(replace(table, since=since, version=9), drop(BUCKETS, 2))
    assert len(after.key_hashes) == 0
    assert alive(after, 17) == [(3, 0), (HOME, 9)]


def test_a_grid_that_no_group_lists_is_forgotten_and_its_number_never_used_again() -> None:
    table = edited(START, promote(KEY), demote(KEY), drop(BUCKETS, 1), promote(KEY))
    assert list(table.grids) == [GRIDS + 1]
    assert table.next_grid == GRIDS + 2


# Weights.


def test_weights_change_and_workers_do_not() -> None:
    table = edited(START, promote(KEY, 2))
    grid = table.grids[GRIDS]
    weighed = Grid(grid.columns, ((5, 1), (1, 1)), (3, 1))
    after = edited(table, lambda edit: edit.set_weights(GRIDS, weighed))
    assert (after.grids[GRIDS], after.version) == (weighed, 2)
    assert alive(after, BUCKETS) == alive(table, BUCKETS)
    for columns in (((0, 1), (3, 2)), ((0, 1, 2, 3),), ((0, 1), (2,))):
        with pytest.raises(ValueError, match="the workers of a grid cannot be changed; add another"):
            TableEdit(table).set_weights(GRIDS, Grid(columns))


# Deaths.

WINDOW = Window(-3, 5, (1, 2))  # a left row at t matches right rows of t-3 to t+5


def dead_places(deaths: AssignmentExpiry, table: RoutingTable, group: int = 17) -> list[int]:
    return np.flatnonzero(deaths.dead(table)[group]).tolist()


def test_death_is_judged_by_the_clocks_before_the_first_batch_of_the_new_version() -> None:
    table = edited(START, move(17, 3))
    deaths = AssignmentExpiry(WINDOW)
    deaths.observe(0, 0, (100, 100))
    deaths.observe(1, 1, (150, 90))
    # Rows stored before are at most at 100. The left ones can match until 100 + 5 < clock_right - 2, the right
    # ones until 100 + 3 < clock_left - 1: the left clock had passed that in the first batch.
    for batch, (right, found) in enumerate([(107, []), (108, [1])], 2):
        deaths.observe(batch, 1, (150, right))
        assert dead_places(deaths, table) == found


def test_each_side_holds_an_assignment_alive() -> None:
    table = edited(START, move(17, 3))
    for clocks, found in (((105, 108), [1]), ((104, 108), []), ((105, 107), []), ((None, 108), []), ((105, None), [])):
        deaths = AssignmentExpiry(WINDOW)
        deaths.observe(0, 0, (100, 100))
        deaths.observe(1, 1, clocks)
        assert dead_places(deaths, table) == found


def test_a_side_without_rows_holds_nothing_alive() -> None:
    table = edited(START, move(17, 3))
    deaths = AssignmentExpiry(WINDOW)
    deaths.observe(0, 0, (None, 100))
    deaths.observe(1, 1, (105, 100))
    assert dead_places(deaths, table) == [1]


def test_a_version_that_has_not_run_yet_replaces_nothing() -> None:
    table = edited(START, move(17, 3))
    deaths = AssignmentExpiry(WINDOW)
    assert not deaths.dead(table).any()
    deaths.observe(0, 0, (100, 100))
    deaths.observe(1, 0, (9000, 9000))
    assert dead_places(deaths, table) == []


def test_a_missing_batch_only_lengthens_life() -> None:
    """Whatever batches are not observed, and wherever a new `AssignmentExpiry` begins, nothing dies earlier."""
    table = edited(START, move(17, 3), move(17, 2))
    rng = np.random.default_rng(3)
    later = 0
    for _ in range(300):
        clocks = np.cumsum(rng.integers(0, 6, (12, 2)), axis=0).tolist()
        versions = np.sort(rng.integers(0, 3, 12)).tolist()
        full, partial = AssignmentExpiry(WINDOW), AssignmentExpiry(WINDOW)
        dead = np.zeros(table.live.shape, np.bool_)
        for batch, (version, (left, right)) in enumerate(zip(versions, clocks, strict=True)):
            full.observe(batch, version, (left, right))
            dead |= full.dead(table)  # it is told once: whoever asks drops what is dead
            if rng.random() < 0.6:
                if rng.random() < 0.2:
                    partial = AssignmentExpiry(WINDOW)
                partial.observe(batch, version, (left, right))
                known = partial.dead(table)
                assert not (known & ~dead).any()
                later += int((dead & ~known).any())
    assert later > 50


@st.composite
def stories(draw: st.DrawFn) -> dict[str, Any]:
    """Batches of row times per side, with a change of the routing of bucket 17 before some; some are not observed."""
    lo = draw(st.integers(-6, 4))
    window = Window(lo, draw(st.integers(lo, 6)), (draw(st.integers(0, 4)), draw(st.integers(0, 4))))
    batches = []
    clocks: list[int | None] = [None, None]
    for _ in range(draw(st.integers(2, 10))):
        rows: list[list[int]] = [[], []]
        for side in (0, 1):
            for _ in range(draw(st.integers(0, 2))):
                clock = clocks[side]
                start = draw(st.integers(-5, 5)) if clock is None else clock + draw(st.integers(0, 9))
                clocks[side] = start
                rows[side].append(start - draw(st.integers(0, window.lateness[side])))
                rows[side].append(start)
        batches.append({"rows": rows, "clocks": tuple(clocks), "seen": draw(st.booleans())})
        batches[-1]["move"] = draw(st.sampled_from([None, 0, 1, 2, 3]))
    return {"window": window, "batches": batches}


def _could_match(window: Window, side: int, time: int, clocks: Clocks) -> bool:
    """By search over times: is there a row of the other side, not late, that this row would match?"""
    other = clocks[1 - side]
    if other is None:
        return True
    earliest = other - window.lateness[1 - side]
    return any(
        window.lo <= (partner - time if side == 0 else time - partner) <= window.hi
        for partner in range(earliest, earliest + 200)
    )


@settings(max_examples=examples(300), deadline=None)
@given(stories())
def test_nothing_is_declared_dead_while_a_stored_row_could_match(story: dict[str, Any]) -> None:
    window, table, deaths = story["window"], START, AssignmentExpiry(story["window"])
    stored: dict[int, list[tuple[int, int]]] = {}
    for number, batch in enumerate(story["batches"]):
        if batch["move"] is not None and TableEdit(table).has_room(np.array([17])).all():
            table = edited(table, move(17, batch["move"]))
        newest = int(table.live[17, 0])
        for side in (0, 1):
            stored.setdefault(newest, []).extend((side, time) for time in batch["rows"][side])
        if not batch["seen"]:
            continue
        deaths.observe(number, table.version, batch["clocks"])
        mask = deaths.dead(table)
        for place in np.flatnonzero(mask[17]).tolist():
            assignment = int(table.live[17, place])
            alive_rows = [
                row for row in stored.get(assignment, []) if _could_match(window, row[0], row[1], batch["clocks"])
            ]
            assert alive_rows == []
            stored[assignment] = []
        edit = TableEdit(table)
        edit.drop(mask)
        table = edit.done()


def test_what_can_match_no_more_is_dead_when_every_batch_is_seen() -> None:
    """The rule is not merely safe: with rows at both clocks it is as early as a brute-force search says."""
    table = edited(START, move(17, 3))
    for lo, hi, left, right in product((-4, 0, 2), (2, 5), (0, 3), (0, 2)):
        window = Window(lo, hi, (left, right))
        deaths = AssignmentExpiry(window)
        deaths.observe(0, 0, (50, 53))
        for batch in range(1, 25):
            clocks = (50 + batch, 53 + batch)
            deaths.observe(batch, 1, clocks)
            could = _could_match(window, 0, 50, clocks) or _could_match(window, 1, 53, clocks)
            assert dead_places(deaths, table) == ([] if could else [1])


# Routes.


@st.composite
def routed(draw: st.DrawFn) -> tuple[RoutingTable, int, list[int]]:
    """A random table and rows of a few keys."""
    workers = draw(st.integers(1, 5))
    hashes = [KEY, OTHER, 5, (1 << 63) + 5]
    table, deaths = RoutingTable.hashed(workers), AssignmentExpiry(WINDOW)
    for batch in range(draw(st.integers(0, 4))):
        table = apply(table, draw(changes(workers, len(hashes))), hashes, deaths)
        deaths.observe(batch, table.version, (batch, batch))
    return table, draw(st.integers(0, 1)), draw(st.lists(st.sampled_from(hashes), min_size=1, max_size=20))


def copies_of(routes: Routes, rows: int) -> Iterator[tuple[int, int, int, bool, bool]]:
    """Every copy as (row, worker, tag, stored, primary)."""
    if routes.rows is None:
        yield from ((row, worker, 0, True, True) for row, worker in enumerate(routes.workers.tolist()))
        return
    assert routes.tags is not None
    assert routes.stored is not None
    assert routes.primary is not None
    columns = (routes.rows, routes.workers, routes.tags, routes.stored, routes.primary)
    yield from zip(*(column.tolist() for column in columns), strict=True)


@settings(max_examples=examples(300), deadline=None)
@given(routed(), st.integers(0, 1000))
def test_every_row_has_exactly_one_primary_copy_and_copies_only_where_its_group_says(
    case: tuple[RoutingTable, int, list[int]], seed: int
) -> None:
    table, side, keys = case
    hashes = np.array(keys, np.uint64)
    content = np.random.default_rng(seed).integers(0, 1 << 64, len(keys), dtype=np.uint64)
    routes = route(table, side, hashes, lambda at: content[at])
    copies = list(copies_of(routes, len(keys)))
    primary = Counter(row for row, _, _, _, is_primary in copies if is_primary)
    assert primary == Counter(range(len(keys)))
    assert all(stored for _, _, _, stored, is_primary in copies if is_primary)
    groups = table.groups_of(hashes)
    for row in range(len(keys)):
        listed = [assignment for assignment in table.live[groups[row]].tolist() if assignment >= 0]
        mine = [copy[1:4] for copy in copies if copy[0] == row]
        assert len(set(mine)) == len(mine)
        for place, assignment in enumerate(listed):
            under = [
                (worker, stored)
                for worker, tag, stored in mine
                if (tag == assignment if assignment >= GRIDS else (worker, tag) == (assignment, 0))
            ]
            assert all(stored == (place == 0) for _, stored in under)
            grid = table.grids[assignment] if assignment >= GRIDS else Grid(((assignment,),))
            touched = {worker for worker, _ in under}
            if side == 0:
                assert all(len(touched & set(column)) == 1 for column in grid.columns)
            else:
                assert touched in [set(column) for column in grid.columns]
        expected = sum(1 if a < GRIDS else len(table.grids[a].columns) if side == 0 else 0 for a in listed) + sum(
            len(next(c for c in table.grids[a].columns if any(w in c for w, tag, _ in mine if tag == a)))
            for a in listed
            if a >= GRIDS and side == 1
        )
        assert len(mine) == expected


def test_weights_say_how_often_each_worker_is_picked() -> None:
    grid = Grid(((0, 1), (2, 3)), ((3, 1), (1, 1)), (1, 4))
    content = np.random.default_rng(5).integers(0, 1 << 64, 40_000, dtype=np.uint64)
    counts = [np.zeros(4), np.zeros(4)]
    for side in (0, 1):
        for _, workers in grid.spread(side, content):
            counts[side] += np.bincount(workers, minlength=4)
    np.testing.assert_allclose(counts[0] / 40_000, [0.75, 0.25, 0.5, 0.5], atol=0.01)
    np.testing.assert_allclose(counts[1] / 40_000, [0.2, 0.2, 0.8, 0.8], atol=0.01)


# The cost of a move, measured.

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])


def test_while_one_bucket_moves_only_its_rows_are_copied_and_only_until_the_old_place_is_dead() -> None:
    window = Window(-40, 40, (0, 0))
    operator = join_operator(SCHEMA, window)
    hashes = operator.hasher.hash([pa.array(range(500))], 500)
    bucket = int(hashes[0]) & (BUCKETS - 1)
    runtime, deaths = LocalRuntime(operator, WORKERS), AssignmentExpiry(window)
    rng = np.random.default_rng(8)
    extra_until = None
    for number in range(14):
        if number == 5:
            target = (int(runtime.table.owner[bucket]) + 1) % WORKERS
            runtime.table = edited(runtime.table, move(bucket, target))
        tasks = []
        in_bucket = 0
        for side in (0, 1):
            keys = rng.integers(0, 500, 300)
            keys[:20] = 0
            in_bucket += int(np.count_nonzero((hashes[keys] & np.uint64(BUCKETS - 1)) == bucket))
            times = np.sort(rng.integers(10 * number, 10 * number + 10, 300))
            times[-1] = 10 * number + 9
            rows = [pa.array(keys), pa.array(times, pa.timestamp("us")), pa.array(np.arange(300))]
            tasks.append((side, [pa.RecordBatch.from_arrays(rows, schema=SCHEMA)]))
        for _ in runtime.run_batch(tasks):
            pass
        extra = sum(report.copies - report.rows for report in runtime.routed)
        moving = len(alive(runtime.table, bucket)) > 1
        assert extra == (in_bucket if moving else 0)
        assert in_bucket >= 40
        extra_until = number if moving else extra_until
        clocks = [stream["clock"] for stream in runtime.reports[0]["streams"]]
        deaths.observe(number, runtime.table.version, (clocks[0], clocks[1]))
        edit = TableEdit(runtime.table)
        edit.drop(deaths.dead(runtime.table))
        runtime.table = edit.done()
    # Rows stored before batch 5 are at most at 49 and match until 89: the clocks pass that in batch 9.
    assert extra_until == 9


# Content.


def _rows(count: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return pa.record_batch(
        {
            "a": pa.array(rng.integers(0, 10, count), mask=rng.random(count) < 0.1),
            "b": pa.array(["x" * int(n) for n in rng.integers(0, 5, count)]),
            "c": pa.array(np.arange(count), pa.timestamp("us")),
            "d": pa.array(rng.random(count) < 0.5),
        }
    )


def test_identical_rows_spread_evenly_over_a_grid() -> None:
    rows = pa.record_batch({"a": [1] * 8000, "b": ["same"] * 8000})
    hashes = content_hashes(rows)
    assert len(np.unique(hashes)) == 8000
    (_, workers), *_ = even_grid(range(8), 1).spread(0, hashes)
    counts = np.bincount(workers, minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1150


def test_different_rows_hash_the_same_however_they_are_cut() -> None:
    rows = _rows(600)
    whole = content_hashes(rows)
    assert len(np.unique(whole)) == 600
    for step in (1, 7, 100):
        parts = [content_hashes(rows.slice(at, step)) for at in range(0, 600, step)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    order = np.random.default_rng(1).permutation(600)
    np.testing.assert_array_equal(content_hashes(rows.take(pa.array(order))), whole[order])


def test_duplicates_are_numbered_within_their_cut_and_nothing_else_changes() -> None:
    rows = pa.record_batch({"a": [1, 2, 1, 1, 2, 3]})
    whole = content_hashes(rows).tolist()
    cut = [*content_hashes(rows.slice(0, 3)).tolist(), *content_hashes(rows.slice(3)).tolist()]
    assert cut[:3] == whole[:3]
    assert (cut[3], cut[4], cut[5]) == (whole[0], whole[1], whole[5])
    assert len(set(whole)) == 6


def test_every_column_counts_and_nested_ones_only_by_their_ordinal() -> None:
    base = {"a": [1], "b": ["x"], "c": [True], "d": [None]}
    others = [base | change for change in ({"a": [2]}, {"b": ["y"]}, {"b": [""]}, {"c": [False]}, {"a": [None]})]
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_()), ("d", pa.null())])
    found = {int(content_hashes(pa.record_batch(value, schema=schema))[0]) for value in (base, *others)}
    assert len(found) == 1 + len(others)
    nested = pa.record_batch({"a": [1, 1], "n": [[1], [2]]})
    plain = pa.record_batch({"a": [1, 1]})
    np.testing.assert_array_equal(content_hashes(nested), content_hashes(plain))


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 3), st.none() | st.sampled_from(["", "a", "bc"]), st.none() | st.booleans()
        ),
        min_size=1,
        max_size=12,
    ),
    st.data(),
)
def test_a_rows_content_hash_does_not_depend_on_the_other_rows(rows: list[Any], data: Any) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    columns = [
        pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    hashes = row_hashes(batch)
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    assert row_hashes(batch.slice(start, stop - start)).tolist() == hashes[start:stop].tolist()
    assert row_hashes(batch.take(pa.array([start]))).tolist() == [hashes[start]]
    assert len(set(hashes.tolist())) == len(set(rows))
