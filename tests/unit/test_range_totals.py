"""Totals over ranges of sorted runs are those of the pairs, and a nested loop's, whatever is grouped and measured."""

from __future__ import annotations

import dataclasses
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
from braided.operators.aggregate import ranges
from braided.operators.aggregate.measures import Measure
from braided.operators.aggregate.partial import PANE, TICK, Panes, PartialAggregate
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.key_hashes import KeyHasher
from braided.routing.table import RoutingTable
from braided.time.clocks import Window

US = pa.timestamp("us")
SCHEMA = pa.schema([
    ("k", pa.int64()), ("t", US), ("g", pa.string()), ("n", pa.int64()), ("i", pa.int32()), ("x", pa.float64()), ("d", pa.date32()),
])  # fmt: skip
BIG = pa.decimal128(38, 0)
LATENESS = 6
MEASURES = [
    ("rows", None, pa.int64()), ("count", "g", pa.int64()), ("sum", "n", BIG), ("sum", "i", pa.int64()),
    ("sum", "x", pa.float64()), ("min", "n", pa.int64()), ("max", "d", pa.date32()), ("max", "t", US),
]  # fmt: skip


class Colliding(KeyHasher):
    """A hasher under which many keys have one hash, as strings of an unlucky stream might."""

    @property
    def exact(self) -> bool:
        return False

    def hash(self, columns: Any, rows: int) -> Any:
        return super().hash(columns, rows) & np.uint64(1 << 63)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, Any]:
    """Two streams with a few keys and many matches, an aggregate over them, and how they are cut and routed."""
    workers = draw(st.integers(1, 3))
    rows, clock = [], 0
    for _ in range(draw(st.integers(1, 60))):
        clock += draw(st.integers(0, 2))
        rows.append(
            {
                "k": draw(st.integers(0, 3)),
                "t": clock - draw(st.integers(0, LATENESS)),
                "g": draw(st.sampled_from(["a", "b", None])),
                "n": draw(st.sampled_from([1, -2, None, 7, 2**61] if draw(st.booleans()) else [3, None])),
                "i": draw(st.integers(-3, 3)),
                "x": draw(st.sampled_from([0.25, -1.5, None])),
                "d": draw(st.sampled_from([-5, 10, None])),
            }
        )
    lo = draw(st.integers(-9, 3))
    sided = st.sampled_from(["", "_r"])
    measures = []
    for kind, source, type_ in draw(st.lists(st.sampled_from(MEASURES), min_size=1, max_size=4, unique=True)):
        measures.append((kind, None if source is None else source + draw(sided), type_))
    cuts = sorted(draw(st.sets(st.integers(1, len(rows)), max_size=5)) | {len(rows)})
    return {
        "sides": [draw(st.integers(0, 1)) for _ in rows],
        "rows": rows,
        "cuts": cuts,
        "window": Window(lo, draw(st.integers(max(lo, 0), 9)), (LATENESS, LATENESS)),
        "time": draw(st.sampled_from(["t", "t_r"])),
        "keys": draw(st.sampled_from([(), ("k",), ("g",), ("k", "g_r"), ("g", "g_r"), ("t_r",)])),
        "measures": measures,
        "width": draw(st.sampled_from([1, 4, 7])),
        "workers": workers,
        "colliding": draw(st.booleans()),
        "changes": [draw(changes(workers, 4)) for _ in cuts],
        "share": draw(st.sampled_from([0.0, 0.25])),
        "pieces": draw(st.sampled_from([0.5, 1.0])),
    }


def _operator(case: dict[str, Any]) -> PartialAggregate:
    join = join_operator(SCHEMA, case["window"])
    if case["colliding"]:
        join = dataclasses.replace(join, hasher=Colliding(join.hasher.types))
    measures = tuple(Measure(f"m{at}", *given) for at, given in enumerate(case["measures"]))
    side = int(case["time"] == "t_r")
    panes = Panes(case["width"], 2, side, case["window"].hi if side == 0 else -case["window"].lo)
    return PartialAggregate(join, case["time"], case["keys"], measures, panes)


def _run(case: dict[str, Any], *, pairs: bool) -> tuple[dict[Any, list[Any]], list[Any]]:
    """Return the totals of each group, and what the workers counted in every batch."""
    operator = _operator(case)
    if pairs:
        object.__setattr__(operator, "layout", None)
    runtime = LocalRuntime(operator, case["workers"])
    table, deaths = RoutingTable.hashed(case["workers"]), AssignmentExpiry(case["window"])
    hashes = KeyHasher((pa.int64(),)).hash([pa.array(range(4))], 4).tolist()
    found: dict[Any, list[Any]] = {}
    counted = []
    start = 0
    every = list(zip(case["sides"], case["rows"], strict=True))
    for stop, wanted in zip(case["cuts"], case["changes"], strict=True):
        table = apply(table, [c for c in wanted if c["change"] != "drop"], hashes, deaths)
        runtime.table = table
        tasks = [(side, [_batch([row for at, row in every[start:stop] if at == side])]) for side in (0, 1)]
        for piece in runtime.run_batch(tasks):
            assert piece.schema == operator.output
            for row in _plain(piece):
                if not row[TICK]:
                    key = (row[PANE], *(row[name] for name in case["keys"]))
                    _merge(found, key, [row[m.name] for m in operator.measures], case["measures"])
        counted.append([(r["last"]["results"], r["last"]["late_results"]) for r in runtime.reports])
        start = stop
    return found, counted


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = [
        pa.array([row[f.name] for row in rows], pa.int32()).cast(f.type) if f.name == "d"
        else pa.array([row[f.name] for row in rows], f.type)
        for f in SCHEMA
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _plain(piece: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = {}
    for at, field in enumerate(piece.schema):
        column = piece.column(at)
        if pa.types.is_timestamp(field.type):
            column = column.view(pa.int64())
        columns[field.name] = column.cast(pa.int32()) if pa.types.is_date32(field.type) else column
    return pa.table(columns).to_pylist()


def _merge(groups: dict[Any, list[Any]], key: Any, new: list[Any], measures: list[Any]) -> None:
    old = groups.setdefault(key, [None] * len(measures))
    for at, ((kind, _, _), value) in enumerate(zip(measures, new, strict=True)):
        if value is not None:
            plain = int(value) if kind == "sum" and not isinstance(value, float) else value
            both = [v for v in (old[at], plain) if v is not None]
            old[at] = {"min": min, "max": max}.get(kind, sum)(both)


def _wanted(case: dict[str, Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    sides = [[row for at, row in zip(case["sides"], case["rows"], strict=True) if at == side] for side in (0, 1)]
    for left in sides[0]:
        for right in sides[1]:
            apart = right["t"] - left["t"]
            if left["k"] != right["k"] or not case["window"].lo <= apart <= case["window"].hi:
                continue
            pair = {**left, **{f"{name}_r": value for name, value in right.items()}}
            moment = pair[case["time"]]
            key = ((moment - 2) // case["width"] * case["width"] + 2, *(pair[name] for name in case["keys"]))
            values = []
            for kind, source, _ in case["measures"]:
                value = None if source is None else pair[source]
                values.append(1 if kind == "rows" else int(value is not None) if kind == "count" else value)
            _merge(groups, key, values, case["measures"])
    return groups


@settings(max_examples=examples(400, quick=30), deadline=None)
@given(histories())
def test_totals_over_ranges_are_those_of_the_pairs(case: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_PAIRS_PER_ROW", case["share"])
        patch.setattr(ranges, "_PIECES_PER_PAIR", case["pieces"])
        found, counted = _run(case, pairs=False)
    by_pairs, pairs_counted = _run(case, pairs=True)
    assert counted == pairs_counted
    assert found == by_pairs
    assert found == _wanted(case)


HOT = {
    "window": Window(-(10**9), 10**9, (0, 0)),
    "width": 1_000_000,
    "colliding": False,
    "measures": [("rows", None, pa.int64()), ("sum", "n_r", BIG), ("max", "i_r", pa.int32())],
}


@pytest.mark.parametrize("keys", [(), ("k",), ("g",), ("g_r",)])
@pytest.mark.parametrize("moment", ["t", "t_r"])
def test_a_hot_key_makes_no_pairs(monkeypatch: pytest.MonkeyPatch, moment: str, keys: tuple[str, ...]) -> None:
    """Pairs are never asked for, in the first batch nor against what is stored."""

    def refuse(*_: Any) -> None:
        raise AssertionError("pairs were made")

    monkeypatch.setattr("braided.operators.join.emit.expand_pairs", refuse)
    runtime = LocalRuntime(_operator({**HOT, "time": moment, "keys": keys}), 1)
    for start in (0, 2_000):
        rows = [
            {"k": 5, "t": 1000 * at, "g": "ab"[at % 2], "n": at, "i": at, "x": 0.5, "d": 3}
            for at in range(start, start + 2_000)
        ]
        list(runtime.run_batch([(side, [_batch(rows)]) for side in (0, 1)]))
    assert runtime.reports[0]["total"]["results"] == 4_000**2


def test_pairs_are_made_where_groups_are_of_both_sides_or_a_predicate_reads_them() -> None:
    of_both = _operator({**HOT, "time": "t", "keys": ("g", "g_r")})
    assert of_both.layout is None
    plain = _operator({**HOT, "time": "t", "keys": ("g",)})
    assert plain.layout is not None
    join = join_operator(SCHEMA, HOT["window"], where="l.n < r.n")
    assert dataclasses.replace(plain, inner=join).layout is None


def _rows(side: int, times: list[int], **values: Any) -> list[tuple[int, dict[str, Any]]]:
    return [(side, {"k": 0, "t": t, "g": "a", "n": 1, "i": 1, "x": 0.5, "d": 3, **values}) for t in times]


def _case(*batches: list[tuple[int, dict[str, Any]]], **more: Any) -> dict[str, Any]:
    rows = [row for batch in batches for row in batch]
    cuts = np.cumsum([len(batch) for batch in batches]).tolist()
    return {
        "sides": [side for side, _ in rows], "rows": [row for _, row in rows], "cuts": cuts, "workers": 1, "width": 4, "keys": (),
        "window": Window(0, 100, (0, 0)), "colliding": False, "changes": [[] for _ in cuts], "measures": MEASURES[:1], **more,
    }  # fmt: skip


@pytest.mark.parametrize("moment", ["t", "t_r"])
def test_late_results_are_counted_as_those_of_pairs(moment: str) -> None:
    first = _rows(0, list(range(1000, 1010))) + _rows(1, list(range(1000, 1010)))
    late = _rows(0, [905]) + _rows(1, [1001, 1002, 1005, 1006])
    case = _case(first, late, time=moment)
    found, counted = _run(case, pairs=False)
    assert (found, counted) == _run(case, pairs=True)
    assert 0 < counted[1][0][1] <= counted[1][0][0]


@pytest.mark.parametrize("column", ["n", "n_r"])
def test_sums_beyond_64_bits_are_exact(column: str) -> None:
    every = [side_row for side in (0, 1) for side_row in _rows(side, list(range(12)), n=2**61)]
    case = _case(every, time="t", measures=[("sum", column, BIG)])
    found, _ = _run(case, pairs=False)
    assert sum(int(total) for [total] in found.values()) == 78 * 2**61


def test_equal_doubles_that_look_different_stay_as_they_are() -> None:
    """0.0 and -0.0 are one key and two values: groups show the left stream's."""
    schema = SCHEMA.set(0, pa.field("k", pa.float64()))
    join = join_operator(schema, Window(0, 10, (0, 0)))
    totals = PartialAggregate(join, "t_r", ("k",), (Measure("m0", "rows", None, pa.int64()),), Panes(100, 0, 1, 0))
    left = [row for _, row in [*_rows(0, [1], k=0.0), *_rows(0, [1], k=-0.0)]]
    right = [row for _, row in _rows(1, [3], k=0.0)]
    runtime = LocalRuntime(totals, 1)
    list(runtime.run_batch([(0, [pa.RecordBatch.from_pylist(left, schema)])]))
    pieces = runtime.run_batch([(1, [pa.RecordBatch.from_pylist(right, schema)])])
    rows = [row for piece in pieces for row in _plain(piece) if not row[TICK]]
    assert sorted(str(row["k"]) for row in rows) == ["-0.0", "0.0"]
