"""Several joins under one budget: each a part of its exact result, the same however the streams are cut."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.multi_cases import batches, restarted
from support.operators import group_operator
from support.routing_cases import apply

import braided
from braided.local.runtime import LocalRuntime
from braided.operators.bounded.group_spec import GroupSpec
from braided.operators.physical import EngineFeatures
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.grid import Grid

SCHEMA = pa.schema([("k1", pa.int64()), ("k2", pa.string()), ("t", pa.timestamp("us")), ("id", pa.int64())])
POLICIES = ("gdj", "prob", "fifo", "random")
STREAMS = ("a", "b", "c")


def run(case: dict[str, Any], memory: int, evict: str, *, rerouted: bool = False) -> dict[str, Counter[Any]]:
    joins = [
        braided.Join(name, left=STREAMS[left], right=STREAMS[right], on=key, between=(f"{lo} us", f"{hi} us"))
        for name, left, right, key, lo, hi in case["joins"]
    ]
    count = len(case["streams"])
    operator = group_operator(joins, STREAMS[:count], SCHEMA, case["lateness"], memory, evict, adaptive=rerouted)
    runtime = LocalRuntime(operator, case["workers"])
    deaths = AssignmentExpiry(operator.window)
    hashes = operator.members[0].join.hasher.hash([pa.array(range(3))], 3).tolist() if rerouted else []
    found: dict[str, Counter[Any]] = {join.name: Counter() for join in joins}
    for number, tasks in enumerate([*batches(case, SCHEMA), None]):
        if rerouted and tasks is not None:
            runtime.table = apply(runtime.table, case["changes"][number], hashes, deaths)
        for piece in runtime.run_batch([(0, [])] if tasks is None else tasks, final=tasks is None):
            for row in piece.to_pylist():
                result = row[row["join"]]
                assert all(row[name] is None for name in found if name != row["join"])
                found[row["join"]][result["id"], result["id_right"]] += 1
        assert all(report["last"]["stored_rows"] <= memory for report in runtime.reports)
        if rerouted and runtime.reports and tasks:
            clocks = tuple(stream["clock"] for stream in runtime.reports[0]["streams"])
            deaths.observe(number, runtime.table.version, clocks)
        if case["restart"]:
            runtime = restarted(runtime)
    return found


@pytest.mark.parametrize("first", [0, 1])
def test_a_bucket_that_returns_makes_no_pair_twice(first: int) -> None:
    row = {"k1": 0, "k2": None, "t": 1, "id": 0}
    back_and_forth = [
        [{"change": "move", "key": 0, "worker": worker, "grid": Grid(((0,),))}] for worker in (first, 1 - first, first)
    ]
    case: dict[str, Any] = {
        "streams": [[row, {**row, "id": 1}], [{**row, "t": 2}]], "lateness": [5, 5], "joins": [("j", 0, 1, "k1", -9, 9)],
        "order": [0, 0, 1], "cuts": [0, 1, 2, 3], "workers": 2, "tasks": 1, "shuffle": 0, "restart": False,
        "changes": back_and_forth,
    }  # fmt: skip
    assert run(case, 100, "fifo", rerouted=True) == {"j": Counter({(0, 0): 1, (1, 0): 1})}


def two_attributes(rows: int = 6000) -> dict[str, pa.Table]:
    """The paper's streams of several attributes: skewed on one side, uniform on the other."""
    rng = np.random.default_rng(8)
    ts = pa.array(np.arange(rows) * 1000, pa.timestamp("us"))
    skewed = {f"k{n}": rng.zipf(1.2 + 0.3 * n, rows) % 50 for n in (1, 2)}
    even = {f"k{n}": rng.integers(0, 50, rows) for n in (1, 2)}
    return {name: pa.table({**keys, "ts": ts, "id": np.arange(rows)}) for name, keys in (("s", skewed), ("r", even))}


def both(**options: Any) -> list[braided.Join]:
    return [
        braided.Join(key, left="s", right="r", on=key, within="200 milliseconds", **options) for key in ("k1", "k2")
    ]


def test_one_budget_serves_both_attributes() -> None:
    streams = two_attributes()
    options: dict[str, Any] = {"streams": streams, "time": "ts", "lateness": "0 seconds"}
    exact = {
        key: braided.local.join(streams["s"], streams["r"], on=key, time="ts", within="200 milliseconds").table
        for key in ("k1", "k2")
    }
    all_of_it = braided.local.join_group(both(), **options, memory=1000)
    for key, table in exact.items():
        everything = [(name, "ascending") for name in table.column_names]
        assert all_of_it.tables[key].sort_by(everything) == table.sort_by(everything)
    total = sum(table.num_rows for table in exact.values())
    assert all_of_it.report.query["results"] == total
    recall = {}
    for evict in POLICIES:
        part = braided.local.join_group(both(), **options, memory=80, evict=evict, batch_rows=1000)
        recall[evict] = sum(table.num_rows for table in part.tables.values()) / total
    assert all(0 < share < 1 for share in recall.values())
    assert min(recall["prob"], recall["gdj"]) > 1.2 * recall["random"]


def test_joins_share_the_budget_by_their_average_credits() -> None:
    """Section 4.3, the coarser way: nearly all results are those of the join with the skewed, frequent keys."""
    rng = np.random.default_rng(5)
    ts = pa.array(np.arange(4000) * 1000, pa.timestamp("us"))
    keys = {"a": 20, "b": 20, "c": 2000, "d": 2000}
    streams = {
        name: pa.table({"k": rng.integers(0, most, 4000), "ts": ts, "id": range(4000)}) for name, most in keys.items()
    }
    joins = [
        braided.Join("often", left="a", right="b", on="k", within="200 milliseconds"),
        braided.Join("rarely", left="c", right="d", on="k", within="200 milliseconds"),
    ]
    options: dict[str, Any] = {"streams": streams, "time": "ts", "lateness": "0 seconds", "share": "credits"}
    exact = braided.local.join_group(joins, **options, memory=4000)
    found = [braided.local.join_group(joins, **options, memory=160, batch_rows=rows) for rows in (20_000, 777)]
    for name, table in exact.tables.items():
        pairs = [
            Counter(zip(one.tables[name]["id"].to_pylist(), one.tables[name]["id_right"].to_pylist(), strict=True))
            for one in (exact, *found)
        ]
        assert table.num_rows == pairs[0].total()
        assert pairs[1] == pairs[2]
        assert pairs[1] <= pairs[0]
    assert found[0].report.workers[0]["last"]["stored_rows"] == 160
    # Of its own window of 800 rows, a join with all of the budget would find a fifth.
    assert found[0].tables["often"].num_rows > 0.15 * exact.tables["often"].num_rows
    assert 0 < found[0].tables["rarely"].num_rows < 0.1 * exact.tables["rarely"].num_rows


@pytest.mark.parametrize("shed", [None, 0.3])
def test_the_report_estimates_what_was_lost(shed: float | None) -> None:
    streams = two_attributes()
    options: dict[str, Any] = {"streams": streams, "time": "ts", "lateness": "0 seconds", "shed": shed}
    exact = sum(
        table.num_rows
        for table in braided.local.join_group(both(), **options | {"shed": None}, memory=1000).tables.values()
    )
    reports = []
    for rows in (12_000, 999):
        result = braided.local.join_group(both(), **options, memory=300, batch_rows=rows)
        report = result.report.to_dict()
        found = sum(table.num_rows for table in result.tables.values())
        assert abs(report["query"]["recall"] - found / exact) <= 0.03
        assert report["query"]["recall_error"] < 0.03
        assert f"recall {report['query']['recall']:.3f} +- " in str(result.report)
        assert abs(report["workers"][0]["total"]["shed"] / 12_000 - (shed or 0)) < 0.01
        assert [stream["name"] for stream in report["streams"]] == ["s", "r"]
        reports.append((report["query"]["recall"], found))
    assert reports[0] == reports[1]


def test_one_key_is_spread_over_workers_and_several_are_not() -> None:
    streams = two_attributes(500)
    options: dict[str, Any] = {"streams": streams, "time": "ts", "memory": 5000, "workers": 2}
    spread = braided.local.join_group(both()[:1], **options)
    assert all(worker["total"]["rows"] > 0 for worker in spread.report.workers)
    together = braided.local.join_group(both(), **options, arrival="ts", name="two")
    assert [worker["total"]["rows"] > 0 for worker in together.report.workers] == [True, False]
    assert together.tables["k1"].num_rows == spread.tables["k1"].num_rows
    assert together.report.query["name"] == "two"


def test_bad_options_are_refused() -> None:
    streams = two_attributes(5)
    join = both()[0]
    good: dict[str, Any] = {"joins": [join], "streams": streams, "time": "ts", "memory": 10}
    for options, message in (
        ({"streams": list(streams.values())}, "streams: give a dict from a name to its stream"),
        ({"joins": {"k1": join}}, "joins: give a list of braided.Join"),
        ({"joins": []}, "0 joins over 2 streams given; give 1 to 16 joins over 2 to 8 streams"),
        ({"joins": [join, join]}, "joins: the names k1, k1 must differ, and none may be empty or 'join'"),
        (
            {"joins": [braided.Join("x", left="s", right="q", on="k1", within="1 s")]},
            r"Join\('x'\): right='q': unknown stream",
        ),
        ({"streams": {"s": streams["s"]}}, r"Join\('k1'\): right='r': unknown stream; write one of s"),
        ({"joins": [braided.Join("x", left="s", right="s", on="k1", within="1 s")]}, "a stream with itself"),
        ({"joins": [braided.Join("x", left="s", right="r", on=None, within="1 s")]}, "a join without keys"),
        ({"joins": [braided.Join("x", left="s", right="r", on="k1")]}, "give within= or between="),
        ({"streams": {**streams, "q": streams["s"]}}, "streams: no join uses 'q'; leave it out"),
        ({"time": {"s": "ts"}}, "write one, or a dict with one for each of s, r"),
        ({"time": "t"}, r"time='t': streams\['s'\] has no such column"),
        ({"lateness": "-1 second"}, "negative"),
        ({"memory": None}, "memory=None: write a number of rows, or '256 MB'; to join without a budget"),
        ({"memory": 0}, "memory=0: no row fits"),
        ({"evict": "auto"}, "evict='auto': tunes single joins; write 'gdj', 'prob', 'fifo', 'random' or 'tail'"),
        ({"evict": "age"}, "not supported for several joins; use 'gdj'"),
        ({"share": "proportional"}, "share='proportional': write 'unified' or 'credits'"),
        ({"share": "credits", "evict": "prob"}, r"share='credits': evict=PROB\(\) has no credits; write evict='gdj'"),
    ):
        with pytest.raises(braided.BraidedError, match=message):
            braided.local.join_group(**{**good, **options})


def test_groups_that_cannot_be_laid_over_workers_in_other_ways_are_refused() -> None:
    def why_fixed(*joins: tuple[str, str, str]) -> str | None:
        wanted = [braided.Join(f"{a}{b}", left=a, right=b, on=key, within="1 second") for a, b, key in joins]
        spec = GroupSpec(streams=STREAMS, joins=wanted, time="t", memory=10)
        plan = build(spec, [Stream(label, SCHEMA) for label in spec.labels], EngineFeatures(adaptive=True))
        assert plan.operator.adapts == (plan.fixed is None)
        return plan.fixed

    assert why_fixed(("a", "b", "k1"), ("c", "a", "k1")) is None
    assert "a stream has different keys in different joins" in str(why_fixed(("a", "b", "k1"), ("a", "c", "k2")))
    assert "no stream is in every join" in str(why_fixed(("a", "b", "k1"), ("a", "c", "k1"), ("b", "c", "k1")))


def test_names_of_streams_do_not_clash_in_the_report() -> None:
    """`late_us` of `x` and `late` of `us_x` were one counter."""
    rows = pa.table({"k": [1] * 20, "ts": pa.array(range(20), pa.timestamp("us"))})
    joins = [braided.Join("j", left="x", right="us_x", on="k", within="1 second")]
    result = braided.local.join_group(joins, streams={"x": rows, "us_x": rows}, time="ts", memory=1000)
    assert result.tables["j"].num_rows == 400
    assert [(stream["name"], stream["rows"], stream["late"]) for stream in result.report.streams] == [
        ("x", 20, 0),
        ("us_x", 20, 0),
    ]
