"""Logical plans: nodes that compare and print, rules that apply or record why not, and how a plan is cut into stages."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

from braided.errors import OptionError
from braided.local.analysis import LocalAnalysis
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures, Plan
from braided.operators.registry import build
from braided.operators.stream import Stream, TimeMarks
from braided.plan.aggregates import aggregate_node
from braided.plan.nodes import (
    Aggregate,
    Filter,
    LogicalPlan,
    Node,
    Operator,
    Project,
    Source,
    Union,
    WithoutWatermark,
    combine,
    plan_of_source,
)
from braided.plan.optimiser import NotApplied, Optimised, optimise
from braided.plan.rules.hoist import HoistExpressions
from braided.plan.rules.partial_aggregate import NOT_ANSI, PartialAggregation
from braided.plan.rules.prune import PruneColumns
from braided.plan.rules.push_filter import PushFilter
from braided.plan.stages import Stage, split
from braided.typing import How

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("phone", pa.string()), ("ts", TIME), ("n", pa.int64()), ("cell", pa.string())])
SOURCES = [Source(0, tuple(SCHEMA.names)), Source(1, tuple(SCHEMA.names))]
SPEC = JoinSpec(on="phone", time="ts", within="2 seconds")
JOIN = Operator(SPEC, (SOURCES[0], SOURCES[1]))


class Analysis(LocalAnalysis):
    """The local analysis, which answers of Spark's questions what a test says."""

    def __init__(self, sources: int = 2) -> None:
        super().__init__([SCHEMA] * sources)
        self.unsafe: list[str] = []

    def is_safe(self, node: Node, expression: str) -> bool:
        return expression not in self.unsafe

    def schema(self, node: Node) -> pa.Schema:
        if isinstance(node, Filter | WithoutWatermark):
            return self.schema(node.input)
        if isinstance(node, Project):
            star, *texts = node.expressions
            if star != "*":
                return pa.schema([self.schema(node.input).field(text.strip("`")) for text in node.expressions])
            [text] = texts
            kind = pa.string() if "upper" in text.lower() else pa.int64()
            return self.schema(node.input).append(pa.field(text.rpartition(" AS ")[2], kind))
        return super().schema(node)


def _aggregate(input: Node, **values: str) -> Aggregate:
    columns = ["phone", "ts", "n", "cell", "ts_right", "n_right", "cell_right"]
    return aggregate_node(input, columns, by="cell", window="1 minute", every=None, time="ts", values=values)


def test_plans_that_were_written_alike_are_equal_and_json() -> None:
    calls, alerts = object(), object()
    plans = [plan_of_source(data, SCHEMA.names) for data in (calls, alerts)]
    one, other = (combine(plans, lambda streams: Operator(SPEC, streams)) for _ in range(2))
    assert one == other
    assert one.root == JOIN
    assert one.sources == (calls, alerts)
    assert one.then(lambda root: Filter(root, "n > 1")) != one.then(lambda root: Filter(root, "n > 2"))
    content = json.loads(json.dumps(_aggregate(Filter(JOIN, "n > 1"), x="count(*)").to_json()))
    assert content["inputs"][0]["inputs"][0]["on"] == "phone"
    assert str(Filter(JOIN, "n > 1")).splitlines() == [
        "Filter n > 1",
        "+- Join on='phone', time='ts', within='2 seconds'",
        "   +- Source 0: phone, ts, n, cell",
        "   +- Source 1: phone, ts, n, cell",
    ]


def test_a_source_that_is_read_twice_stays_one() -> None:
    calls = object()
    plan = plan_of_source(calls, SCHEMA.names)
    joined = combine([plan, plan], lambda streams: Operator(SPEC, streams))
    assert len(joined.sources) == 1
    assert joined.root.inputs == (SOURCES[0], SOURCES[0])
    again = combine([plan_of_source(object(), SCHEMA.names), joined], Union)
    assert [node.number for node in again.root.walk() if isinstance(node, Source)] == [0, 1, 1]


def test_a_node_that_is_read_twice_stays_one_and_equal_ones_stay_two() -> None:
    plan = combine([plan_of_source(object(), SCHEMA.names) for _ in range(2)], lambda streams: Operator(SPEC, streams))
    filtered = plan.then(lambda root: Filter(root, "n > 1"))
    other = plan_of_source(object(), SCHEMA.names)
    shared = combine([other, filtered, filtered], Union)
    _, one, two = optimise(shared, [PushFilter()], Analysis(3)).after.inputs
    assert isinstance(one, Operator)
    assert one is two
    again = plan.then(lambda root: Filter(root, "n > 1"))
    _, one, two = optimise(combine([other, filtered, again], Union), [PushFilter()], Analysis(3)).after.inputs
    assert one == two
    assert one is not two


def test_a_condition_moves_before_the_join_or_into_its_predicate() -> None:
    moved = optimise(
        LogicalPlan(Filter(JOIN, "n > 1 AND n_right < n AND cell_right = 'x'")), [PushFilter()], Analysis()
    )
    after = moved.after
    assert isinstance(after, Operator)
    assert after.spec == replace(SPEC, where="(r.`n` < l.`n`)")
    assert after.inputs == (Filter(SOURCES[0], "`n` > 1"), Filter(SOURCES[1], "`cell` = 'x'"))
    assert [firing.reason for firing in moved.firings] == [None]


@pytest.mark.parametrize("condition", ["rand() > n", "my_function(n) = 1", "1 = 1", "n IN (SELECT 1)"])
def test_a_condition_that_may_differ_elsewhere_stays(condition: str) -> None:
    plan = Filter(JOIN, condition)
    found = optimise(LogicalPlan(plan), [PushFilter()], Analysis())
    assert found.after == plan
    assert found.reason_of(PushFilter.name) == "the condition does not only compare columns"


def test_columns_that_nothing_reads_are_dropped_before_the_join() -> None:
    inputs = (Project(SOURCES[0], ("`phone`", "`ts`", "`cell`")), Project(SOURCES[1], ("`phone`", "`ts`", "`cell`")))
    for above in (Project(JOIN, ("CELL_right", "phone AS p")), _aggregate(JOIN, x="count(*)")):
        after = optimise(LogicalPlan(above), [PruneColumns()], Analysis()).after
        assert after == above.with_inputs([replace(JOIN, streams=inputs)])


def test_columns_stay_that_conditions_read() -> None:
    spec = replace(SPEC, where="l.n < r.n")
    plan = Project(Filter(replace(JOIN, spec=spec), "cell = 'x'"), ("phone",))
    assert optimise(LogicalPlan(plan), [PruneColumns()], Analysis()).after == plan
    alone = Project(replace(JOIN, spec=spec), ("phone",))
    kept = list(optimise(LogicalPlan(alone), [PruneColumns()], Analysis()).after.walk())
    assert Project(SOURCES[0], ("`phone`", "`ts`", "`n`")) in kept


@pytest.mark.parametrize("expression", ["*", "struct(*)", "phone"])
def test_no_column_is_dropped_where_all_are_read(expression: str) -> None:
    plan = Project(JOIN, (expression, "n", "cell"))
    assert optimise(LogicalPlan(plan), [PruneColumns()], Analysis()).after == plan


def test_columns_are_dropped_below_every_join_of_a_chain() -> None:
    third = Operator(replace(SPEC, suffixes=("", "_third")), (JOIN, Source(2, tuple(SCHEMA.names))))
    after = optimise(LogicalPlan(Project(third, ("phone",))), [PruneColumns()], Analysis(3)).after
    below = [node for node in after.walk() if isinstance(node, Project) and isinstance(node.input, Source)]
    assert [node.expressions for node in below] == [("`phone`", "`ts`")] * 3


@pytest.mark.parametrize("how", ["left", "right", "full", "left_semi", "left_anti"])
def test_aggregates_begin_in_the_workers_of_every_join_and_nothing_is_computed_below_outer_ones(how: How) -> None:
    outer = replace(JOIN, spec=replace(SPEC, how=how))
    for node in (_aggregate(outer, x="count(*)"), _aggregate(outer, x="sum(n * 2)")):
        found = optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], Analysis())
        assert found.after == replace(node, in_workers=True)


KEPT_SIDES: dict[How, tuple[int, str, str]] = {
    # Which stream is kept, a condition on it alone, and what must stay after the join: also the key that a right join
    # takes from whichever row there is.
    "left": (0, "n > 1", "(n_right < n) AND (n_right > 2)"),
    "right": (1, "n_right > 1", "(n_right < n) AND (n > 2) AND (phone = 'p')"),
    "left_semi": (0, "n > 1", ""),
    "left_anti": (0, "n > 1", ""),
}


@pytest.mark.parametrize("how", KEPT_SIDES)
def test_a_condition_on_the_stream_that_is_kept_moves_before_the_join(how: How) -> None:
    side, moves, stays = KEPT_SIDES[how]
    outer = replace(JOIN, spec=replace(SPEC, how=how))
    plan = Filter(outer, f"{moves} AND {stays}" if stays else moves)
    inputs = list(SOURCES)
    inputs[side] = Filter(SOURCES[side], "`n` > 1")  # type: ignore[call-overload]
    wanted: Node = replace(outer, streams=tuple(inputs))
    wanted = Filter(wanted, stays) if stays else wanted
    assert optimise(LogicalPlan(plan), [PushFilter()], Analysis()).after == wanted


def test_a_condition_after_a_full_join_stays() -> None:
    plan = Filter(replace(JOIN, spec=replace(SPEC, how="full")), "n > 1 AND n_right > 2")
    assert optimise(LogicalPlan(plan), [PushFilter()], Analysis()).after == plan


def test_no_rule_changes_a_join_with_the_last_rows() -> None:
    other = replace(JOIN, spec=replace(SPEC, rows=2))
    for node in (Filter(other, "n > 1"), _aggregate(other, x="count(*)"), _aggregate(other, x="sum(n * 2)")):
        rules = [PushFilter(), HoistExpressions(), PartialAggregation()]
        assert optimise(LogicalPlan(node), rules, Analysis()).after == node


def test_a_join_with_the_last_rows_keeps_all_columns() -> None:
    """They decide which rows are the last where times are equal."""
    plan = Project(replace(JOIN, spec=replace(SPEC, rows=2)), ("phone",))
    assert optimise(LogicalPlan(plan), [PruneColumns()], Analysis()).after == plan


def test_an_aggregate_begins_in_the_workers_and_its_expressions_move_below() -> None:
    node = _aggregate(JOIN, total="sum(n * 2)", both="max(n - n_right)", some="count(*) FILTER (WHERE n_right > 3)")
    found = optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], Analysis())
    after = found.after
    assert isinstance(after, Aggregate)
    assert after.in_workers
    assert dict(after.values) == {"total": "SUM(e0)", "both": "max(n - n_right)", "some": "COUNT(e1)"}
    assert after.input.inputs == (
        Project(SOURCES[0], ("*", "`n` * 2 AS e0")),
        Project(SOURCES[1], ("*", "CASE WHEN `n` > 3 THEN 1 END AS e1")),
    )
    assert [firing.rule for firing in found.firings] == [HoistExpressions.name, PartialAggregation.name]


def test_a_group_of_the_windows_own_name_is_refused() -> None:
    with pytest.raises(OptionError, match="by='window': the result has the window in a column of that name"):
        aggregate_node(
            JOIN, ["ts", "Window"], by=["Window"], window="1 minute", every=None, time="ts", values={"n": "count(*)"}
        )


def test_equal_expressions_become_one_column() -> None:
    node = _aggregate(JOIN, low="min(n + 1)", high="max(n + 1)", other="max(n_right + 1)")
    after = optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], Analysis()).after
    assert isinstance(after, Aggregate)
    assert dict(after.values) == {"low": "MIN(e0)", "high": "MAX(e0)", "other": "MAX(e1)"}


@pytest.mark.parametrize("text", ["first(n * 2) FILTER (WHERE n > 1)", "count(DISTINCT n + 1)", "stddev(n + 1)"])
def test_expressions_of_what_cannot_begin_in_workers_stay(text: str) -> None:
    node = _aggregate(JOIN, x=text, y="sum(n * 2)")
    assert optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], Analysis()).after == node


def test_a_group_by_an_expression_moves_below() -> None:
    node = replace(_aggregate(JOIN, x="count(*)"), by=(("city", "upper(cell_right)"),))
    found = optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], Analysis())
    assert isinstance(found.after, Aggregate)
    assert found.after.by == (("city", "e0"),)
    assert found.after.in_workers
    analysis = Analysis()
    analysis.unsafe.append("UPPER(`cell`)")
    left = optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], analysis)
    assert left.after == node
    assert left.reason_of(PartialAggregation.name) == "it groups by upper(cell_right), which is not a column"


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (_aggregate(JOIN, x="stddev(n)"), "partial results of stddev(n) cannot be merged"),
        (_aggregate(JOIN, x="count(DISTINCT n)"), "partial results of count(DISTINCT n) cannot be merged"),
        (_aggregate(JOIN, x="max(cell)"), "only Spark can compute max of string"),
        (
            _aggregate(Filter(JOIN, "rand() > 1"), x="count(*)"),
            "there are tables or conditions of Spark between join and aggregate",
        ),
        (replace(_aggregate(JOIN, x="count(*)"), time="n"), "n is not a time column of the join"),
    ],
)
def test_an_aggregate_that_stays_says_why(node: Aggregate, reason: str) -> None:
    found = optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], Analysis())
    assert found.after == node
    assert found.reason_of(PartialAggregation.name) == reason


def test_arithmetic_that_wraps_keeps_an_aggregate_sparks() -> None:
    analysis = Analysis()
    analysis.is_ansi = False  # type: ignore[misc]
    with pytest.raises(NotApplied, match=NOT_ANSI):
        PartialAggregation().apply(_aggregate(JOIN, x="sum(n - n_right)"), analysis)


class Marked(Analysis):
    """Sources of which some have a watermark, of so many seconds by their numbers."""

    def __init__(self, delays: dict[int, int], why: str | None = None, sources: int = 2) -> None:
        super().__init__(sources)
        self.delays = delays
        self.why = why

    def has_watermark(self, node: Node) -> bool:
        if isinstance(node, Source):
            return node.number in self.delays
        return not isinstance(node, WithoutWatermark) and any(map(self.has_watermark, node.inputs))

    def why_marked(self, node: WithoutWatermark) -> str | None:
        return self.why

    def physical(self, node: Operator) -> Plan:
        return build(
            node.spec,
            [self._stream(side, label) for side, label in zip(node.inputs, node.spec.labels, strict=True)],
            EngineFeatures(),
        )

    def _stream(self, side: Node, label: str) -> Stream:
        if isinstance(side, Operator):
            return self.physical(side).as_stream(label)
        leaf = next(node for node in side.walk() if isinstance(node, Source))
        delay = self.delays[leaf.number] if self.has_watermark(side) else None
        return Stream(label, self.schema(side), {} if delay is None else {"ts": TimeMarks(watermark=delay * 1_000_000)})


def _moved(node: Aggregate, analysis: Analysis) -> Optimised:
    return optimise(LogicalPlan(node), [HoistExpressions(), PartialAggregation()], analysis)


def test_watermarks_become_the_lateness_where_the_aggregate_moves() -> None:
    after = _moved(_aggregate(JOIN, x="count(*)"), Marked({0: 10, 1: 20})).after
    assert isinstance(after, Aggregate)
    assert after.in_workers
    join = after.input
    assert isinstance(join, Operator)
    assert isinstance(join.spec, JoinSpec)
    assert join.spec.lateness == (timedelta(seconds=10), timedelta(seconds=20))
    assert [type(side) for side in join.inputs] == [WithoutWatermark, WithoutWatermark]
    assert not Marked({0: 10, 1: 20}).has_watermark(join)


def test_a_lateness_that_was_given_stays_and_one_without_watermark_is_learned() -> None:
    spec = JoinSpec(on="phone", time="ts", within="2 seconds", lateness=(None, "3 seconds"))
    join = Operator(spec, (SOURCES[0], SOURCES[1]))
    for delays, lateness in (({0: 10, 1: 20}, (timedelta(seconds=10), "3 seconds")), ({1: 20}, (None, "3 seconds"))):
        after = _moved(_aggregate(join, x="count(*)"), Marked(delays)).after.inputs[0]
        assert isinstance(after, Operator)
        assert isinstance(after.spec, JoinSpec)
        assert after.spec.lateness == lateness


def test_watermarks_of_a_join_below_a_join_are_taken_from_its_streams() -> None:
    third = Source(2, tuple(SCHEMA.names))
    joined = Operator(SPEC, (JOIN, third))
    columns = [*SCHEMA.names, *(f"{name}_right" for name in SCHEMA.names[1:])]
    clashing = replace(SPEC, suffixes=("", "_third"))
    node = aggregate_node(
        replace(joined, spec=clashing),
        columns,
        by="cell",
        window="1 minute",
        every=None,
        time="ts",
        values={"x": "count(*)"},
    )
    after = _moved(node, Marked({0: 10, 1: 20, 2: 30}, sources=3)).after.inputs[0]
    assert isinstance(after, Operator)
    assert isinstance(after.spec, JoinSpec)
    assert after.spec.lateness == (None, timedelta(seconds=30))  # the results of a join bring their own
    inner = next(each for each in after.inputs[0].walk() if isinstance(each, Operator))
    assert isinstance(inner.spec, JoinSpec)
    assert inner.spec.lateness == (timedelta(seconds=10), timedelta(seconds=20))
    assert not Marked({0: 10, 1: 20, 2: 30}).has_watermark(after)


@pytest.mark.parametrize(("values", "why", "reason"), [
    ({"x": "count(*)"}, "below dropDuplicates", "the watermark of ts is below dropDuplicates"),
    ({"x": "median(n)"}, None, "partial results of median(n) cannot be merged"),
])  # fmt: skip
def test_a_watermark_stays_where_it_must_or_where_the_aggregate_does_not_move(
    values: dict[str, str], why: str | None, reason: str
) -> None:
    found = _moved(_aggregate(JOIN, **values), Marked({0: 10}, why))
    assert found.reason_of(PartialAggregation.name) == reason
    assert not any(isinstance(node, WithoutWatermark) for node in found.after.walk())


ORDER = OrderSpec(time="ts")


def _where(node: Node) -> Node:
    return Filter(node, "n > 1")


def _join(one: Node, other: Node) -> Node:
    return Operator(SPEC, (one, other))


def _shown(stages: list[Stage]) -> list[str]:
    """Return each stage as what it makes of the streams before it."""

    def text(node: Node) -> str:
        if isinstance(node, Source):
            return node.columns[0] if node.number >= 2 else "source"
        name = {"filter": "where", "project": "select"}.get(node.kind, node.kind)
        return f"{name}({', '.join(map(text, node.inputs))})"

    return [text(stage.root) for stage in stages]


def _split(node: Node, strategy: str, *, learned: bool = False) -> list[Stage]:
    return split(node, 2, strategy, lambda join: learned)  # type: ignore[arg-type]


@pytest.fixture
def chain() -> Node:
    """where -> join -> where -> join -> aggregate -> select; the aggregate begins in the second join."""
    first = _join(_where(SOURCES[0]), SOURCES[1])
    return Project(_aggregate(_join(_where(first), SOURCES[1]), x="count(*)"), ("x",))


def test_each_strategy_cuts_where_it_should(chain: Node) -> None:
    assert _shown(_split(chain, "query")) == ["select(aggregate(join(where(join(where(source), source)), source)))"]
    assert _shown(_split(chain, "operator")) == [
        "where(source)", "join(1-where, source)", "where(2-join)", "join(3-where, source)", "aggregate(4-join)",
        "select(5-aggregate)",
    ]  # fmt: skip
    assert _shown(_split(chain, "subquery")) == [
        "where(source)", "where(join(1-where, source))", "select(aggregate(join(2-join-where, source)))",
    ]  # fmt: skip
    with pytest.raises(OptionError, match="strategy='tree': unknown value; write 'query', 'operator', 'subquery'"):
        _split(chain, "tree")


def test_an_aggregate_that_is_sparks_is_a_subquery_of_its_own() -> None:
    node = _aggregate(_where(Operator(ORDER, (SOURCES[0],))), x="count(*)")
    assert [stage.name for stage in _split(node, "subquery")] == ["1-order-where", "2-aggregate"]


def test_what_is_read_twice_is_made_once_and_a_union_keeps_its_inputs_apart() -> None:
    cleaned = _where(SOURCES[0])
    twice = _join(cleaned, cleaned)
    assert _shown(_split(twice, "subquery")) == ["where(source)", "join(1-where, 1-where)"]
    both = Union((twice, Project(SOURCES[1], ("*",))))
    assert _shown(_split(both, "subquery")) == [
        "where(source)", "join(1-where, 1-where)", "union(2-join, select(source))",
    ]  # fmt: skip


def test_windows_are_not_closed_by_a_topic_whose_lateness_was_learned(chain: Node) -> None:
    with pytest.raises(OptionError, match="needs a fixed lateness of the join's rows; set lateness= of the join"):
        _split(chain, "operator", learned=True)
    assert len(_split(chain, "subquery", learned=True)) == 3
