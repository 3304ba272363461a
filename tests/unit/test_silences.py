"""No silence loses a row, at any setting, and a row with a wrong clock loses at most its own results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import micros
from support.profiles import examples
from support.routing_cases import RandomController
from support.silences import HOUR, NOW, SCHEMA, SECOND, YEAR, Story, Times, stories

import braided
from braided.balance.controller import Controller
from braided.local.runtime import LocalRuntime
from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.group_spec import GroupSpec, Join
from braided.operators.join.spec import JoinSpec
from braided.operators.join.window_join import WindowJoin
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.edit import TableEdit
from braided.routing.grid import Grid
from braided.routing.table import BUCKETS, RoutingTable
from braided.runtime.contract import Operator
from braided.time.quarantine import VOTERS, StreamProgress
from braided.time.trust import JUMP, Cluster, Trust

MUCH = 100_000
"""A budget that keeps everything."""


def operator_of(spec: Any, *, adaptive: bool = False) -> Operator:
    return build(spec, [Stream(label, SCHEMA) for label in spec.labels], EngineFeatures(adaptive=adaptive)).operator


def lateness_of(story: Story) -> str | tuple[str, ...]:
    return story.lateness if isinstance(story.lateness, str) else micros(story.lateness)


def join_of(story: Story, memory: int | None = None) -> Operator:
    within, late = micros(story.within), lateness_of(story)
    return operator_of(JoinSpec(on="k", time="t", within=within, lateness=late, memory=memory, evict="fifo"))


def multijoin_of(story: Story, memory: int | None = None, *, adaptive: bool = False) -> Operator:
    spec = MultiJoinSpec(
        streams=3,
        on="k",
        time="t",
        within=micros(story.within),
        lateness=lateness_of(story),
        memory=memory,
        evict="fifo",
    )
    return operator_of(spec, adaptive=adaptive)


def group_of(story: Story) -> Operator:
    joins = [Join(right, left="a", right=right, on="k", within=micros(story.within)) for right in ("b", "c")]
    spec = GroupSpec(
        streams=("a", "b", "c"), joins=joins, time="t", memory=MUCH, evict="fifo", lateness=lateness_of(story)
    )
    return operator_of(spec)


def check(story: Story, wanted: set[tuple[int, ...]], streams: list[dict[str, Any]]) -> None:
    """Everything that has only right rows is there, once, and nothing else than what is wanted."""
    assert max(story.found.values(), default=1) == 1, "a double row"
    assert set(story.found) <= wanted
    lost = {rows for rows in wanted - set(story.found) if story.is_right(rows)}
    assert not lost
    if not any(off.any() for off in story.wrong):
        assert [(stream["late"], stream["discarded"]) for stream in streams] == [(0, 0)] * len(streams)


WRONG = pytest.mark.parametrize("wrong", [0, 2])


@WRONG
@settings(max_examples=examples(600, quick=20), deadline=None)
@given(data=st.data(), workers=st.integers(1, 2))
def test_a_join_loses_nothing(wrong: int, data: st.DataObject, workers: int) -> None:
    story = data.draw(stories(most=40, wrong=wrong))
    check(story, story.pairs(), story.run(LocalRuntime(join_of(story), workers), waits=False))


@WRONG
@settings(max_examples=examples(300, quick=10), deadline=None)
@given(data=st.data())
def test_a_join_of_three_streams_loses_nothing(wrong: int, data: st.DataObject) -> None:
    story = data.draw(stories(streams=3, most=20, wrong=wrong))
    check(story, story.triples(), story.run(LocalRuntime(multijoin_of(story)), waits=False))


@WRONG
@pytest.mark.parametrize("streams", [2, 3])
@settings(max_examples=examples(150, quick=5), deadline=None)
@given(data=st.data())
def test_a_join_with_a_budget_loses_nothing(wrong: int, streams: int, data: st.DataObject) -> None:
    story = data.draw(stories(streams=streams, most=30 if streams == 2 else 12, wrong=wrong))
    operator = join_of(story, MUCH) if streams == 2 else multijoin_of(story, MUCH)
    wanted = story.pairs() if streams == 2 else story.triples()
    check(story, wanted, story.run(LocalRuntime(operator), waits=True))


@WRONG
@settings(max_examples=examples(150, quick=5), deadline=None)
@given(data=st.data())
def test_joins_under_one_budget_lose_nothing(wrong: int, data: st.DataObject) -> None:
    story = data.draw(stories(streams=3, most=20, wrong=wrong))
    streams = story.run(LocalRuntime(group_of(story)), waits=True)
    for right, name in ((1, "b"), (2, "c")):
        pairs = [(row[name]["id"], row[name]["id_right"]) for row in story.rows if row["join"] == name]
        assert len(set(pairs)) == len(pairs)
        assert not {rows for rows in story.pairs(0, right) - set(pairs) if story.is_right(rows, (0, right))}
        assert set(pairs) <= story.pairs(0, right)
    if not wrong:
        assert [(stream["late"], stream["discarded"]) for stream in streams] == [(0, 0)] * 3


def closest(story: Story, direction: str, rights: Times) -> dict[int, int | None]:
    """Return the right row of each left row, among some right rows, by looking at all of them."""
    found: dict[int, int | None] = {}
    for left, (key, time) in enumerate(zip(story.keys[0].tolist(), story.times[0].tolist(), strict=True)):
        near = []
        for right in rights.tolist():
            away = int(story.times[1][right]) - time
            wanted = {"backward": away <= 0, "forward": away >= 0, "nearest": True}[direction]
            if int(story.keys[1][right]) == key and wanted and abs(away) <= story.within:
                near.append((abs(away), away, -right))
        found[left] = -min(near)[2] if near else None
    return found


@WRONG
@settings(max_examples=examples(300, quick=12), deadline=None)
@given(data=st.data(), direction=st.sampled_from(("backward", "forward", "nearest")), workers=st.integers(1, 2))
def test_an_as_of_join_loses_nothing(wrong: int, data: st.DataObject, direction: Any, workers: int) -> None:
    """Every left row with a right clock comes out once, with the closest right row; one with a wrong clock may be it."""
    story = data.draw(stories(most=40, wrong=wrong))
    late = braided.Lateness() if story.lateness == "auto" else lateness_of(story)
    spec = AsofSpec(on="k", time="t", direction=direction, tolerance=micros(story.within), lateness=late)
    streams = story.run(LocalRuntime(operator_of(spec), workers), waits=True)
    rights = np.arange(len(story.times[1]))
    wanted = [closest(story, direction, rights), closest(story, direction, rights[~story.wrong[1]])]
    lefts = Counter(left for left, _ in story.found.elements())
    assert max(lefts.values(), default=1) == 1
    for left in np.flatnonzero(~story.wrong[0]).tolist():
        assert lefts[left] == 1
    for left, right in story.found:
        if not story.wrong[0][left]:
            assert right in [answers[left] for answers in wanted]
    if not any(off.any() for off in story.wrong):
        assert [(stream["late"], stream["discarded"]) for stream in streams] == [(0, 0)] * 2


@WRONG
@settings(max_examples=examples(400, quick=12), deadline=None)
@given(data=st.data(), count=st.integers(1, 3))
def test_order_keeps_the_order(wrong: int, data: st.DataObject, count: int) -> None:
    """Every row leaves; no row with a right clock is late, and all those are in order."""
    story = data.draw(stories(streams=count, wrong=wrong))
    late = braided.Lateness() if story.lateness == "auto" else lateness_of(story)
    operator = operator_of(OrderSpec(inputs=count, time="t", lateness=late, idle=None))
    streams = story.run(LocalRuntime(operator), waits=True)
    assert len(story.rows) == sum(map(len, story.times))
    moments = [int(row["t"].timestamp()) for row in story.rows if not row["late"]]
    years_off = [abs(moment - NOW // SECOND) > YEAR // SECOND // 2 for moment in moments]
    right = [moment for moment, off in zip(moments, years_off, strict=True) if not off]
    assert right == sorted(right)
    assert len(right) == sum(int((~off).sum()) for off in story.wrong)
    if not wrong:
        assert [(stream["late"], stream["discarded"]) for stream in streams] == [(0, 0)] * count


class Rerouting(RandomController):
    """Changes the routing after every batch, and drops what is dead by what the workers report."""

    keys = 3
    columns = True

    def step(self, seen: Any, wanted: Any) -> list[Any]:
        self._deaths.window = replace(self._deaths.window, lateness=seen.lateness)
        return super().step(seen, wanted)

    def grid(self, grid: Grid) -> Grid:
        return grid if self.columns else Grid((tuple(worker for column in grid.columns for worker in column),))


@WRONG
@pytest.mark.parametrize("streams", [2, 3])
@settings(max_examples=examples(100, quick=4), deadline=None)
@given(data=st.data())
def test_no_assignment_dies_with_rows_that_can_still_match(wrong: int, streams: int, data: st.DataObject) -> None:
    story = replace(data.draw(stories(streams=streams, most=20 if streams == 2 else 8, wrong=wrong)), restart=False)
    operator = join_of(story) if streams == 2 else multijoin_of(story, adaptive=True)
    controller = Rerouting(RoutingTable.hashed(3), operator.window, slots=3)  # type: ignore[attr-defined]
    controller.columns = streams == 2
    runtime = LocalRuntime(operator, 3, controller=controller)  # type: ignore[arg-type]
    check(story, story.pairs() if streams == 2 else story.triples(), story.run(runtime, waits=False))


def in_order(times: list[int], sizes: list[int], within: int = 100 * SECOND, lateness: int | str = "auto") -> Story:
    """Two streams of the same times, in order."""
    both = [np.array(times, np.int64)] * 2
    none = [np.zeros(len(times), np.int64)] * 2
    return Story(both, both, none, [column != 0 for column in none], lateness, within, sizes)


@pytest.mark.parametrize("lateness", ["auto", 0, 10 * SECOND])
@pytest.mark.parametrize("memory", [None, MUCH])
def test_three_hours_of_silence(memory: int | None, lateness: int | str) -> None:
    dense = [2 * SECOND * row for row in range(100)]
    story = in_order(
        [NOW + at for at in (*dense, *(3 * HOUR + 200 * SECOND + at for at in dense))], [10], lateness=lateness
    )
    check(story, story.pairs(), story.run(LocalRuntime(join_of(story, memory)), waits=memory is not None))
    assert len(story.found) == 15_100


def test_a_leap_of_the_clock_starts_every_wait_anew() -> None:
    """A row years ahead waits when its stream falls silent; a silence is not going on, a thousand rows are."""
    story = in_order([NOW + row * SECOND for row in range(100)], [10], within=SECOND, lateness=0)
    runtime = LocalRuntime(join_of(story))
    story.run(runtime, waits=False)
    last = int(story.times[0][-1])

    def batch(*times: int) -> dict[str, Any]:
        rows = pa.RecordBatch.from_arrays(
            [pa.array([0] * len(times)), pa.array(times, pa.timestamp("us")), pa.array(range(len(times)))],
            schema=SCHEMA,
        )
        list(runtime.run_batch([(0, [rows]), (1, [rows])]))
        stream: dict[str, Any] = runtime.report().to_dict()["streams"][0]
        return {name: stream[name] for name in ("clock", "quarantined", "discarded")}

    assert batch(last + YEAR)["quarantined"] == 1
    after = last + 5 * HOUR
    assert batch(*range(after, after + 200)) == {"clock": after + 199, "quarantined": 1, "discarded": 0}
    # It has gone on for more than a second, but not yet by as many rows as vote; then by both.
    assert batch(after + 3 * SECOND) == {"clock": after + 3 * SECOND, "quarantined": 1, "discarded": 0}
    assert batch(*[after + 4 * SECOND] * VOTERS) == {"clock": after + 4 * SECOND, "quarantined": 0, "discarded": 1}


@pytest.mark.parametrize("memory", [None, MUCH])
def test_rows_are_believed_before_anybody_asks_whether_to_give_them_up(memory: int | None) -> None:
    """A row 70 minutes ahead, then a hundred rows up to 10 minutes ahead: the stream has gone on, and come near it."""
    minutes = [*np.linspace(0, 1, 100), 70, *np.linspace(2, 10, 100), 70]
    times = NOW + (np.array(minutes) * 60).astype(np.int64) * SECOND
    story = in_order(times.tolist(), [100, 1, 100], within=SECOND, lateness=0)
    story.arrivals = [np.arange(202), np.where(np.arange(202) == 201, 300, np.arange(202))]
    story.times[1] = np.where(np.arange(202) == 100, NOW, times)
    streams = story.run(LocalRuntime(join_of(story, memory)), waits=memory is not None)
    assert [stream["discarded"] for stream in streams] == [0, 0]
    assert {(100, 201), (201, 201)} <= set(story.found)


class Moving(Controller):
    """Moves every key to the other worker after the batch in which a row far ahead came, and drops what is dead."""

    def _decide(self, seen: Any, edit: TableEdit, wanted: Any) -> Iterator[Any]:
        if seen.batch == 5:
            homes = self.table.live[:BUCKETS, 0]
            for home in (0, 1):
                edit.assign(np.flatnonzero(homes == home), 1 - home)
        yield from ()


def test_a_row_far_ahead_keeps_its_assignment_alive_until_it_is_believed() -> None:
    seconds = [*range(100), *range(3 * 3600, 3 * 3600 + 300)]
    sizes = [*[40] * 5, 2, *[10] * 80]
    story = in_order([NOW + SECOND * second for second in seconds], sizes, lateness=0)
    operator = join_of(story)
    assert isinstance(operator, WindowJoin)
    table = RoutingTable.hashed(2)
    runtime = LocalRuntime(operator, 2, controller=Moving(table, operator.window, measure="work"))
    check(story, story.pairs(), story.run(runtime, waits=False))
    assert runtime.table.version > table.version
    assert (runtime.table.live[:, 1:] < 0).all(), "the older assignment has died after all"


def test_the_first_row_of_a_stream_may_be_the_wrong_one() -> None:
    """Nothing expires by its clock, and the row itself is put apart once others count."""
    story = in_order([NOW + YEAR, *(NOW + row * SECOND for row in range(200))], [1], within=SECOND, lateness=0)
    story.arrivals = [np.arange(201)] * 2
    story.wrong = [np.arange(201) == 0] * 2
    streams = story.run(LocalRuntime(join_of(story)), waits=False)
    check(story, story.pairs(), streams)
    assert len(story.found) == len(story.pairs())
    assert [stream["quarantined"] + stream["discarded"] for stream in streams] == [1, 1]


def test_one_wrong_row_of_a_sparse_stream_takes_its_clock_nowhere() -> None:
    """It is the eighth vote, but the middle of eight is not it."""
    trust = Trust()
    for hour in range(0, 16, 2):
        trust.update([Cluster(hour * HOUR, hour * HOUR, 1)], JUMP)
    assert trust.clock == 0
    trust.update([Cluster(YEAR, YEAR, 1)], JUMP)
    assert trust.clock == 8 * HOUR
    assert trust.settled
    assert trust.gone == StreamProgress(leaps=1)


def test_a_clock_counts_once_enough_rows_or_another_clock_have_been_there() -> None:
    trust = Trust()
    for row in range(7):
        trust.update([Cluster(row, row, 1)], JUMP)
    assert not trust.settled
    trust.update([Cluster(7, 7, 1)], JUMP)
    assert trust.settled
    beside = Trust()
    beside.update([Cluster(NOW + YEAR, NOW + YEAR, 1)], JUMP, others=NOW)
    assert (beside.clock, beside.settled) == (NOW + YEAR, False)
    # A row where the others are takes it back at once.
    beside.update([Cluster(NOW - 5, NOW - 5, 1)], JUMP, others=NOW)
    assert (beside.clock, beside.settled) == (NOW - 5, True)
