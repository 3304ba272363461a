"""Specs: options are written once, shown everywhere, checked where they are made, and written as JSON."""

from __future__ import annotations

import dataclasses
import inspect
import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import braided
import braided.local
from braided.operators.asof.spec import AsofSpec
from braided.operators.bounded.group_spec import GroupSpec, Join
from braided.operators.detect.spec import DetectSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.match.spec import MatchSpec
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures, InputColumn, Nested, describe
from braided.operators.registry import build
from braided.operators.row_windows.spec import RowWindowsSpec
from braided.operators.shared_options import RUNTIME
from braided.operators.spec import Spec, spec_kinds
from braided.operators.stream import Stream, TimeMarks

ROWS = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.string())])
FUNCTIONS = [
    (JoinSpec, braided.join),
    (JoinSpec, braided.local.join),
    (AsofSpec, braided.join_asof),
    (AsofSpec, braided.local.join_asof),
    (MultiJoinSpec, braided.multijoin),
    (MultiJoinSpec, braided.local.multijoin),
    (GroupSpec, braided.join_group),
    (GroupSpec, braided.local.join_group),
    (OrderSpec, braided.order),
    (OrderSpec, braided.merge),
    (OrderSpec, braided.local.order),
    (OrderSpec, braided.local.merge),
    (MatchSpec, braided.match),
    (MatchSpec, braided.local.match),
    (RowWindowsSpec, braided.row_windows),
    (RowWindowsSpec, braided.local.row_windows),
    (DetectSpec, braided.detect),
    (DetectSpec, braided.local.detect),
]
SPECS: list[Spec] = [
    JoinSpec(on="k", time="t", within="10 seconds"),
    JoinSpec(on=[("a", "b"), "c"], time=("t", "u"), between=("-1 second", "1 minute"), lateness=("5 seconds", None)),
    JoinSpec(time="t", within=timedelta(seconds=3), where="l.v < r.v", partition="ssp", suffixes=["", "_x"]),
    JoinSpec(on="k", time="t", within="1 hour", memory="1 MB", evict=braided.GDJ(initial=0.3), shed="unbiased"),
    JoinSpec(on="k", time="t", within="1 hour", lateness=braided.Lateness(recall=0.99, floor="1 second")),
    AsofSpec(
        on=[("a", "b")], time=("t", "u"), tolerance="5 seconds", direction="nearest", how="inner", idle="1 minute"
    ),
    MultiJoinSpec(streams=3, on=[("a", "b", "c")], time="t", within="1 second", memory=10, share="proportional"),
    GroupSpec(
        streams=("x", "y"),
        joins=[Join("j", left="x", right="y", on="k", within="1 second")],
        time={"x": "t", "y": "u"},
        memory=5,
        evict=braided.PROB(),
        lateness={"x": "1 second", "y": "auto"},
    ),
    GroupSpec(
        streams=("x", "y"),
        joins=[Join("j", left="x", right="y", on="k", within="1 second")],
        time="t",
        memory="1 MB",
        share="credits",
    ),
    OrderSpec(time="t", key=["a", "b"], late="side", idle=None, inputs=2),
    MatchSpec(time="t", pattern="A B", define={"A": "k > 1"}, measures={"n": "count(*)"}, within="1 second"),
    RowWindowsSpec(time="t", key="k", rows=10, every=3, values={"n": "count(*)"}, lateness="1 second"),
    DetectSpec(
        streams=("x",),
        detectors=[braided.Pattern("p", subscribes=["x"], pattern="A B", measures={"t": "A.t"}, within="1 second")],
        time="t",
        types=["p"],
        lateness={"x": "auto"},
    ),
]


def test_there_is_a_function_for_every_spec() -> None:
    missing = set(spec_kinds().values()) - {spec for spec, _ in FUNCTIONS}
    assert not missing, "write functions in api.py and local/functions.py, and name them in FUNCTIONS above"


@pytest.mark.parametrize(("spec", "function"), FUNCTIONS, ids=lambda value: getattr(value, "__qualname__", None))
def test_a_function_takes_the_options_of_its_spec_and_shows_their_words(spec: type[Spec], function: Any) -> None:
    parameters = inspect.signature(function).parameters
    fields = {field.name: field for field in dataclasses.fields(spec) if field.metadata}
    missing = {name for name in fields if name not in parameters}
    assert not missing
    for name, field in fields.items():
        default = parameters[name].default
        if function is braided.join and name == "time":  # a condition may say it instead
            assert default is None
            continue
        assert default == (inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default), name
    for name, parameter in parameters.items():
        assert parameter.annotation != "Any", name
        known = name in fields or name in RUNTIME
        assert known == (f"\n    {name}:\n" in function.__doc__), name
        assert known or name in ("left", "right", "df", "data", "inputs", "streams"), name


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_a_spec_is_plain_json_of_its_kind_and_what_was_given(spec: Spec) -> None:
    content = json.loads(json.dumps(spec.to_json()))
    changed = {f.name for f in dataclasses.fields(spec) if getattr(spec, f.name) != f.default}
    assert set(content) == {"kind", *changed}
    assert content["kind"] == spec.kind
    plain = {name: value for name, value in content.items() if isinstance(value, str | int) and name != "kind"}
    assert all(str(getattr(spec, name)) == str(value) for name, value in plain.items() if name != "within")


def test_json_has_policies_and_other_objects_by_name() -> None:
    evict = SPECS[3].to_json()["evict"]
    assert evict == {"is": "GDJ", "initial": 0.3}
    assert SPECS[2].to_json()["within"] == "3 seconds"


def test_what_cannot_be_written_as_json_is_refused() -> None:
    rule = braided.Lateness(measure="next", clock_rows=len)
    with pytest.raises(braided.OptionError, match="clock_rows=<built-in function len>: cannot be written as JSON"):
        OrderSpec(time="t", lateness=rule).to_json()


def test_specs_are_frozen_and_comparable() -> None:
    spec = JoinSpec(on=["k"], time="t", within="1 second")
    assert spec == JoinSpec(on=("k",), time="t", within="1 second")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.time = "u"  # type: ignore[misc]


def streams(spec: Spec, **marks: TimeMarks) -> list[Stream]:
    return [Stream(label, ROWS, marks) for label in spec.labels]


def test_what_an_operator_hands_on_travels_in_the_plan() -> None:
    """A join of a join: the second waits as long as results of the first may take, with no DataFrame anywhere."""
    first = JoinSpec(on="k", time="t", within="10 seconds", lateness="5 seconds")
    plan = build(first, streams(first))
    result = plan.as_stream("left")
    assert result.schema.names == ["k", "t", "v", "t_right", "v_right"]
    assert result.marks_of("t") == TimeMarks(25_000_000, 15_000_000, exact=True, offsets=(0, 0))
    second = JoinSpec(on="k", time="t", within="1 second", lateness="2 seconds", suffixes=("", "_b"))
    after = build(second, [result, Stream("right", ROWS)])
    assert after.operator.lateness == (27_000_000, 2_000_000)
    ordered = build(OrderSpec(time="t_right"), [plan.as_stream("input")])
    assert ordered.operator.lateness == (25_000_000,)


AFTER = JoinSpec(on="k", time="t", within="1 second", suffixes=("", "_b")), OrderSpec(time="t")


@pytest.mark.parametrize("spec", AFTER)
def test_the_result_of_a_fixed_lateness_has_a_fixed_one_and_that_of_a_learned_one_is_learned(spec: Spec) -> None:
    """A learned lateness knows nothing before its first rows, so whatever waits for it would wait for them too."""
    for lateness, fixed in (("5 seconds", True), (("5 seconds", "auto"), False), (None, False)):
        first = JoinSpec(on="k", time="t", within="10 seconds", lateness=lateness)
        result = build(first, streams(first)).as_stream(spec.labels[0])
        rule = build(spec, [result, *(Stream(label, ROWS) for label in spec.labels[1:])]).operator.lateness[0]
        assert rule == 25_000_000 if fixed else isinstance(rule, braided.Lateness), lateness


def test_a_watermark_is_the_lateness_where_none_is_given_in_order_as_in_joins() -> None:
    marked = {"t": TimeMarks(watermark=7_000_000)}
    join = JoinSpec(on="k", time="t", within="1 second")
    assert build(join, streams(join, **marked)).operator.lateness == (7_000_000, 7_000_000)
    order = OrderSpec(time="T")
    assert build(order, streams(order, **marked)).operator.lateness == (7_000_000,)
    given = OrderSpec(time="t", lateness="1 second")
    assert build(given, streams(given, **marked)).operator.lateness == (1_000_000,)


def test_the_joins_of_a_group_mark_their_times() -> None:
    joins = [Join("j", left="x", right="y", on="k", within="10 seconds")]
    spec = GroupSpec(streams=("x", "y"), joins=joins, time="t", memory=10, lateness="5 seconds")
    nested = build(spec, streams(spec)).columns[1]
    assert isinstance(nested, Nested)
    marks = {column.name: column.marks for column in nested.columns if isinstance(column, InputColumn)}
    assert marks["t"] == TimeMarks(25_000_000, 15_000_000, exact=True, offsets=(0, 0))
    assert marks["t_right"] == TimeMarks(25_000_000, 15_000_000, exact=True, offsets=(-10_000_000, 10_000_000))
    assert marks["k"] is None


def test_names_are_found_by_sparks_case_rule() -> None:
    spec = JoinSpec(on="K", time="T", within="1 second", lateness="1 second")
    assert build(spec, streams(spec)).operator.times == ("t", "t")
    exact = [Stream(label, ROWS, case_sensitive=True) for label in spec.labels]
    with pytest.raises(braided.OptionError, match="on='K': the left input has no such column; it has k, t, v"):
        build(spec, exact)
    both = pa.schema([*ROWS, pa.field("K", pa.int64())])
    lower = JoinSpec(on="k", time="t", within="1 second", suffixes=("", "_r"), lateness="1 second")
    sensitive = [Stream(label, both, case_sensitive=True) for label in lower.labels]
    assert build(lower, sensitive).operator.output.names == ["k", "t", "v", "K", "t_r", "v_r", "K_r"]


def test_idle_is_an_option_of_every_operator() -> None:
    for spec in (
        JoinSpec(on="k", time="t", within="1 second", idle="1 minute"),
        MultiJoinSpec(streams=3, on="k", time="t", within="1 second", idle="1 minute"),
        GroupSpec(
            streams=("x", "y"),
            joins=[Join("j", left="x", right="y", on="k", within="1 second")],
            time="t",
            memory=5,
            idle="1 minute",
        ),
        OrderSpec(time="t", idle="1 minute"),
    ):
        assert build(spec, streams(spec)).operator.idle == 60_000_000


def test_a_predicate_that_no_kernel_covers_is_left_to_a_runtime_that_can_filter() -> None:
    spec = JoinSpec(on="k", time="t", within="1 second", where="soundex(l.v) = soundex(r.v)")
    with pytest.raises(braided.BraidedError, match="soundex"):
        build(spec, streams(spec))
    plan = build(spec, streams(spec), EngineFeatures(filters=True))
    assert plan.residual is not None
    assert plan.operator.output.names == ["l0", "l1", "l2", "r0", "r1", "r2"]
    assert [column.name for column in plan.columns] == ["k", "t", "v", "t_right", "v_right"]


def test_a_plan_says_what_it_does() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    streams = [Stream("left", schema), Stream("right", schema)]
    keyed = JoinSpec(on="k", time="t", within="1 second", where="l.v < r.v")
    assert describe(build(keyed, streams)) == "joins on k, -1 second <= r.t - l.t <= 1 second, where l.v < r.v"
    theta = JoinSpec(time="t", within="1 second", where="l.v < r.v")
    assert describe(build(theta, streams)).startswith("joins by l.v < r.v")
