"""Partial aggregates in the workers of a join: they add up to the whole, and keep what the horizon promises."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import join_operator
from support.profiles import examples

from braided.local.runtime import LocalRuntime
from braided.operators.aggregate import partial
from braided.operators.aggregate.measures import Measure, timed_type
from braided.operators.aggregate.partial import HORIZON, PANE, TICK, Panes, PartialAggregate
from braided.operators.bounded.budget import limit
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("g", pa.string()), ("n", pa.int64())])
BIG = pa.decimal128(38, 0)
LATENESS = 6


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """Two streams whose times rise with an error below the lateness, cut anywhere."""
    rows = draw(st.integers(1, 50))
    sides, streams = [], []
    clock = 0
    for _ in range(rows):
        clock += draw(st.integers(0, 3))
        sides.append(draw(st.integers(0, 1)))
        streams.append(
            {
                "k": draw(st.integers(0, 2)),
                "t": clock - draw(st.integers(0, LATENESS)),
                "g": draw(st.sampled_from(["a", "b", None])),
                "n": draw(st.sampled_from([1, -2, None, 2**62])),
            }
        )
    lo = draw(st.integers(-5, 3))
    return {
        "sides": sides,
        "rows": streams,
        "cuts": sorted(draw(st.sets(st.integers(1, rows), max_size=6)) | {rows}),
        "window": Window(lo, draw(st.integers(lo, 5)), (LATENESS, LATENESS)),
        "side": draw(st.integers(0, 1)),
        "workers": draw(st.integers(1, 3)),
        "width": draw(st.sampled_from([1, 4, 7])),
        "room": draw(st.sampled_from([1, 2, 1 << 17])),
        "budget": draw(st.booleans()),
        "alone": draw(st.booleans()),
        "ordered": draw(st.booleans()),
        "how": draw(st.sampled_from(["inner", "left", "right", "full"])),
    }


def _operator(case: dict[str, Any]) -> PartialAggregate:
    how = case.get("how", "inner")
    join = join_operator(SCHEMA, case["window"], how=how)
    budget = case.get("budget", False) and how == "inner"
    inner = limit(join, 1000, "prob", "unified", None) if budget else join
    window, side = case["window"], case["side"]
    measures = (
        Measure("m0", "rows", None, pa.int64()),
        Measure("m1", "count", "n_r", pa.int64()),
        Measure("m2", "sum", "n_r", BIG),
        Measure("m3", "max", "n", pa.int64()),
        Measure("m4", "first", "n", timed_type(SCHEMA.field("t").type, pa.int64())),
        Measure("m5", "last", "g_r", timed_type(SCHEMA.field("t").type, pa.string())),
    )
    if not case.get("ordered", True):
        measures = measures[:4]
    panes = Panes(case["width"], 2, side, window.hi if side == 0 else -window.lo, budget)
    return PartialAggregate(inner, "t" if side == 0 else "t_r", ("g",), measures, panes)


def _wanted(case: dict[str, Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    rows = list(zip(case["sides"], case["rows"], strict=True))
    lefts, rights = ([row for at, row in rows if at == side] for side in (0, 1))
    window = case["window"]
    pairs = [
        (left, right)
        for left in lefts
        for right in rights
        if left["k"] == right["k"] and window.lo <= right["t"] - left["t"] <= window.hi
    ]
    nothing = dict.fromkeys(SCHEMA.names)
    if case["how"] in ("left", "full"):
        pairs += [(left, nothing) for left in lefts if not any(left is met for met, _ in pairs)]
    if case["how"] in ("right", "full"):
        pairs += [(nothing, right) for right in rights if not any(right is met for _, met in pairs)]
    for left, right in pairs:
        time = (left if case["side"] == 0 else right)["t"]
        if time is None:
            continue  # in no window
        key = ((time - 2) // case["width"] * case["width"] + 2, left["g"])
        timed = [{"time": time, "value": value} for value in (left["n"], right["g"])]
        new = [1, int(right["n"] is not None), right["n"], left["n"], *timed]
        _merge(groups, key, new if case["ordered"] else new[:4])
    return groups


def _merge(groups: dict[Any, list[Any]], key: Any, new: list[Any]) -> None:
    if key not in groups:
        groups[key] = new
        return
    old = groups[key]
    total = None if old[2] is None and new[2] is None else (old[2] or 0) + (new[2] or 0)
    most = max((value for value in (old[3], new[3]) if value is not None), default=None)
    timed = [by(old[at], new[at], key=_place) for at, by in ((4, min), (5, max)) if at < len(old)]
    groups[key] = [old[0] + new[0], old[1] + new[1], total, most, *timed]


def _place(timed: dict[str, Any]) -> tuple[Any, ...]:
    value = timed["value"]
    return timed["time"], value is not None, value if value is not None else 0


class _Alone(partial._Partials):
    """Hands all pairs on, each as a group of its own."""

    def __init__(self, aggregate: PartialAggregate) -> None:
        super().__init__(aggregate)
        self._not_grouped = 1 << 30


@settings(max_examples=examples(150), deadline=None)
@given(histories())
def test_partials_add_up_to_the_whole_and_the_horizon_holds(case: dict[str, Any]) -> None:
    operator = _operator(case)
    runtime = LocalRuntime(operator, case["workers"])
    found: dict[Any, list[Any]] = {}
    horizon = None
    start = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial, "PARTIAL_ROWS", case["room"])
        if case["alone"]:
            patch.setattr(partial, "_Partials", _Alone)
        for stop in [*case["cuts"], len(case["rows"])]:  # the last batch is empty, and lets go of what waits
            batch = list(zip(case["sides"], case["rows"], strict=True))[start:stop]
            tasks = [
                (side, [pa.RecordBatch.from_pylist([row for at, row in batch if at == side], SCHEMA)])
                for side in (0, 1)
            ]
            ticks = []
            for piece in runtime.run_batch(tasks, final=start == stop):
                assert piece.schema == operator.output
                for row in _plain(piece):
                    if row[TICK]:
                        ticks.append(row[HORIZON])
                        continue
                    assert horizon is None or row[PANE] + case["width"] > horizon, "older than was promised"
                    _merge(found, (row[PANE], row["g"]), [row[f"m{at}"] for at in range(len(operator.measures))])
            assert len(ticks) == case["workers"]
            assert len(set(ticks)) == 1, "workers disagree"
            assert horizon is None or ticks[0] >= horizon
            horizon = ticks[0]
            runtime = LocalRuntime(operator, stores=runtime.stores)
            start = stop
    assert found == _wanted(case)


def _plain(piece: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = {field.name: _integers(piece.column(at)) for at, field in enumerate(piece.schema)}
    return pa.table(columns).to_pylist()


def _integers(column: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_struct(column.type):
        parts = [_integers(column.field(at)) for at in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(parts, column.type.names, mask=column.is_null())
    return column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column


def test_late_results_are_counted() -> None:
    case = {"window": Window(0, 100, (0, 0)), "side": 0, "width": 10}
    runtime = LocalRuntime(_operator(case), 1)
    row = {"k": 0, "g": "a", "n": 1}

    def batch(*times: tuple[int, int]) -> None:
        tasks = [
            (side, [pa.RecordBatch.from_pylist([{**row, "t": t} for at, t in times if at == side], SCHEMA)])
            for side in (0, 1)
        ]
        list(runtime.run_batch(tasks))

    batch(*((side, 1000 + at) for side in (0, 1) for at in range(10)))
    batch((0, 905), (1, 1005))
    assert runtime.reports[0]["last"]["late_results"] == 1


def test_pairs_are_handed_on_where_groups_are_nearly_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every so often a piece is grouped again, to see whether that has changed."""
    monkeypatch.setattr(partial, "FEW_PAIRS", 1)
    partials = partial._Partials(_operator({"window": Window(0, 5, (0, 0)), "side": 0, "width": 1}))
    names = ("k", "t", "g", "n", "t_r", "g_r", "n_r")
    kinds = [pa.int64(), *(SCHEMA.field(name[0]).type for name in names[1:])]

    def piece(*times: int) -> pa.RecordBatch:
        rows = {"k": 1, "g": "a", "n": None, "g_r": None, "n_r": None}
        return pa.RecordBatch.from_pylist(
            [{**rows, "t": t, "t_r": t} for t in times], pa.schema(list(zip(names, kinds, strict=True)))
        )

    alone = [partials.add(piece(1, 2, 3)) is not None for _ in range(partial.NOT_GROUPED + 2)]
    assert alone == [False, *[True] * partial.NOT_GROUPED, False]
    few = partial._Partials(_operator({"window": Window(0, 5, (0, 0)), "side": 0, "width": 1}))
    assert [few.add(piece(1, 1, 1, 2)) for _ in range(3)] == [None] * 3
