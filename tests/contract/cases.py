"""The operators that the contract is tried on: for each kind of spec what it must give, its variants and its options.

A new kind of spec needs an entry here and nothing else (`test_coverage.py` fails until there is one): `wanted`, a naive
reading of the spec, `cases` with the variants to try, and `changes`, what may and may not change on a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import oracles
import pyarrow.compute as pc
from histories import History, Row
from hypothesis import strategies as st
from oracles import Bag, Streams, key_of, names_of

import braided
from braided.specs.group import GroupSpec, Join
from braided.specs.join import JoinSpec
from braided.specs.multijoin import MultiJoinSpec
from braided.specs.order import OrderSpec
from braided.specs.spec import Spec
from braided.time.lateness import Lateness
from braided.typing import PolicyName


@dataclass(frozen=True)
class Case:
    """One variant of a kind: the specs of it that Hypothesis tries, and one of them for tests that need no variety.

    twins : whether rows may come twice with equal content and the result be the same for all cuts all the same.
    """

    name: str
    example: Spec
    specs: st.SearchStrategy[Any]
    twins: bool = True


@dataclass(frozen=True)
class Change:
    """A change of one option on a checkpoint.

    given : the options that change, or how they follow from the spec. refused : as what, for it gives state its meaning;
        None: it is accepted. when : the specs for which it is a change.
    """

    option: str
    refused: str | None
    given: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
    when: Callable[[Any], bool] = lambda spec: True

    def apply(self, spec: Any) -> Any:
        """Return the spec with other options."""
        return replace(spec, **(self.given(spec) if callable(self.given) else self.given))


@dataclass(frozen=True)
class Kind:
    """What the contract suite knows of a kind of spec.

    wanted : the bag of results that a naive reading of a spec gives for whole streams.
    content : a result as it is in that bag; default: all of its columns.
    whole : whether a spec must give all of it for a history, and not a part, as with a budget.
    line : the group of a result within which results come in an order that counts; None: no order counts.
    null_key : whether a row of a stream is left out for a null in its key.
    keeps_late : whether late rows come out as well.
    crowded : a variant, and how many rows of one key and time in each stream make far more results than fit in a piece:
        so many small ones, or so many of 20,000 bytes.
    """

    wanted: Callable[[Any, Streams], Bag]
    cases: tuple[Case, ...]
    changes: tuple[Change, ...]
    crowded: Callable[[Any], tuple[Spec, int, int]]
    content: Callable[[Any, Row], tuple[Any, ...]] = lambda _, row: tuple(row.values())
    whole: Callable[[Any, History], bool] = lambda spec, history: True
    line: Callable[[Any, Row], Any] | None = None
    null_key: Callable[[Any, int, Row], bool] = lambda spec, side, row: False
    keeps_late: Callable[[Any], bool] = lambda spec: False
    no_case: Mapping[str, str] = field(default_factory=dict)
    """Options that no case tries, and why."""


def us(count: int) -> str:
    return f"{count} us"


micros = st.integers(0, 6).map(us)
windows = st.tuples(st.integers(-8, 6), st.integers(0, 9)).map(lambda w: (us(w[0]), us(w[0] + w[1])))
policies = st.sampled_from((*get_args(PolicyName), braided.GDJ(initial=0.3)))
budgets = st.integers(3, 8) | st.just(1000)
learned = st.builds(
    Lateness,
    margin=st.sampled_from((0, 0.5)),
    floor=micros,
    recall=st.sampled_from((None, 0.5)),
    memory=st.just(us(50)),
) | st.builds(
    Lateness,
    floor=micros,
    measure=st.just("next"),
    clock_rows=st.sampled_from((None, lambda rows: pc.equal(rows.column("k"), 0))),
)
keys = st.sampled_from(("k", "s", ("k", "s"), (("k", "k"), "s")))
shares = st.sampled_from(("unified", "proportional"))


def fits(spec: Any, history: History) -> bool:
    """Whether a budget has room for all there is."""
    room = spec.memory is None or (isinstance(spec.memory, int) and spec.memory > 2 * len(history.rows))
    return room and spec.shed is None


def _fixed(spec: Any) -> bool:
    """Whether the lateness is not learned."""
    given = spec.lateness.values() if isinstance(spec.lateness, dict) else spec.lateness
    parts = (given,) if isinstance(given, str | Lateness) else given
    return not any(isinstance(part, Lateness) for part in parts)


_budget_changes = (
    Change("evict", "evict", {"evict": "random"}, lambda spec: spec.memory is not None),
    Change("share", "share", {"share": "proportional"}, lambda spec: spec.memory is not None),
)


# Joins of two streams.

_join = {"time": "t", "lateness": (us(3), us(5)), "between": (us(-8), us(9))}
_two = st.tuples(micros, micros)


def _joins(**options: Any) -> st.SearchStrategy[Any]:
    given = {"time": st.just("t"), "lateness": _two, "between": windows, "on": keys, **options}
    return st.builds(JoinSpec, **given)


def _crowded_join(spec: JoinSpec) -> tuple[Spec, int, int]:
    where = None if spec.on else "abs(l.id - r.id) <= 9"
    return replace(spec, memory=spec.memory and 2_000, shed=None, where=where), 700, 70


JOINS = Kind(
    wanted=oracles.join,
    whole=fits,
    null_key=lambda spec, side, row: key_of(row, names_of(spec.on, 2)[side]) is None,
    crowded=_crowded_join,
    cases=(
        Case(
            "exact",
            JoinSpec(on="k", **_join),
            _joins(
                where=st.sampled_from((None, "abs(l.id - r.id) <= 9")),
                time=st.sampled_from(("t", ("t", "u"))),
                partition=st.sampled_from(("auto", "hash", "ssp", "grid")),
                suffixes=st.sampled_from((("", "_right"), ("_l", "_r"))),
                idle=st.sampled_from((None, "1 hour")),
            ),
        ),
        Case(
            "window on one side",
            JoinSpec(on="s", time="t", within=(us(9), us(0)), lateness=us(3)),
            st.builds(JoinSpec, on=keys, time=st.just("t"), lateness=micros, within=micros | _two),
        ),
        Case(
            "theta",
            JoinSpec(where="l.k < r.k", **_join),
            _joins(
                on=st.none(),
                where=st.sampled_from(sorted(oracles.WHERE)),
                partition=st.sampled_from(("auto", "ssp", "grid")),
            ),
        ),
        Case(
            "learned lateness",
            JoinSpec(on="k", **{**_join, "lateness": Lateness(floor=us(4), memory=us(50))}),
            _joins(on=st.just("k"), lateness=st.tuples(learned, micros | learned)),
        ),
        Case(
            "budget",
            JoinSpec(on="k", memory=6, evict="gdj", **_join),
            _joins(on=st.just("k"), memory=budgets, evict=policies, share=shares),
        ),
        Case(
            "budget tuned",
            JoinSpec(on="s", memory=6, **_join),
            _joins(on=st.just("s"), memory=budgets, lateness=st.tuples(learned, micros)),
        ),
        Case(
            "budget in bytes",
            JoinSpec(on="k", memory="8 KB", evict="prob", **_join),
            _joins(on=st.just("k"), memory=st.sampled_from(("3 KB", "8 KB")), evict=policies, share=st.just("unified")),
        ),
        Case(
            # Identical rows are told apart by their number within a task, so that cuts matter where there are any.
            "sample",
            JoinSpec(on="k", shed=0.3, **_join),
            _joins(shed=st.just(0.3)),
            twins=False,
        ),
        Case(
            "sample and budget",
            JoinSpec(on="k", shed=0.2, memory=6, evict="fifo", **_join),
            _joins(on=st.just("k"), shed=st.sampled_from((0.2, "unbiased")), memory=budgets, evict=policies),
        ),
    ),
    changes=(
        Change("on", "on", {"on": ("k", "s")}),
        Change("time", "time", {"time": "u"}),
        Change("within", "between", {"within": us(5), "between": None}),
        Change("between", "between", {"within": None, "between": (us(-8), us(10))}),
        Change("where", "where", {"where": "l.id <= r.id"}),
        Change("lateness", None, {"lateness": (us(7), us(5))}, _fixed),
        Change("lateness", "lateness", {"lateness": (us(3), us(2))}, _fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("lateness", "lateness", {"lateness": us(3)}, lambda spec: not _fixed(spec)),
        Change("suffixes", None, {"suffixes": ("_l", "_r")}),
        Change("idle", None, {"idle": "1 hour"}),
        Change("partition", "partition", {"partition": "ssp"}),
        Change("memory", "memory", {"memory": 7}, lambda spec: spec.on is not None),
        *_budget_changes,
        Change("shed", "shed", {"shed": 0.4}),
    ),
    no_case={"how": "there is one value"},
)


# Joins of many streams.

_multi = {"time": "t", "within": us(9)}


def _multijoins(**options: Any) -> st.SearchStrategy[Any]:
    @st.composite
    def specs(draw: st.DrawFn) -> MultiJoinSpec:
        count = draw(st.integers(2, 4))
        late = draw(st.tuples(*[options.get("lateness", micros)] * count))
        given = {name: draw(values) for name, values in options.items() if name != "lateness"}
        within = draw(st.integers(0, 9).map(us))
        return MultiJoinSpec(**{"streams": count, "on": "k", "time": "t", "within": within, "lateness": late, **given})

    return specs()


MULTIJOINS = Kind(
    wanted=oracles.multijoin,
    whole=fits,
    null_key=lambda spec, side, row: key_of(row, names_of(spec.on, spec.streams)[side]) is None,
    crowded=lambda spec: (
        replace(spec, memory=spec.memory and 2_000, shed=None),
        *((80, 14) if spec.streams == 3 else (700, 70)),
    ),
    cases=(
        Case(
            "exact",
            MultiJoinSpec(streams=3, on="k", lateness=(us(3), us(5), us(0)), **_multi),
            _multijoins(
                on=st.sampled_from(("k", "s", ("k", "s"))),
                partition=st.sampled_from(("auto", "hash")),
                idle=st.sampled_from((None, "1 hour")),
            ),
        ),
        Case(
            "names of their own",
            MultiJoinSpec(
                streams=2, on=(("k", "k"), "s"), time=("t", "u"), within=us(9), lateness=us(4), suffixes=("_a", "_b")
            ),
            st.builds(
                MultiJoinSpec,
                streams=st.just(2),
                on=st.just((("k", "k"), "s")),
                time=st.just(("t", "u")),
                within=micros,
                lateness=micros,
                suffixes=st.just(("_a", "_b")),
            ),
        ),
        Case(
            "learned lateness",
            MultiJoinSpec(streams=3, on="k", lateness=Lateness(floor=us(4), memory=us(50)), **_multi),
            _multijoins(lateness=micros | learned),
        ),
        Case(
            "budget",
            MultiJoinSpec(streams=3, on="k", lateness=us(4), memory=6, evict="gdj", **_multi),
            _multijoins(memory=st.integers(5, 9) | st.just(1000), evict=policies, share=shares),
        ),
        Case(
            "budget tuned",
            MultiJoinSpec(streams=3, on="s", lateness=us(4), memory=6, **_multi),
            _multijoins(on=st.just("s"), memory=budgets),
        ),
        Case(
            "budget in bytes",
            MultiJoinSpec(streams=3, on="k", lateness=us(4), memory="8 KB", evict="prob", **_multi),
            _multijoins(memory=st.just("8 KB"), evict=policies),
        ),
        Case(
            "sample",
            MultiJoinSpec(streams=3, on="k", lateness=us(4), shed=0.3, **_multi),
            _multijoins(shed=st.just(0.3)),
            twins=False,
        ),
        Case(
            "sample and budget",
            MultiJoinSpec(streams=2, on="k", lateness=us(4), shed=0.2, memory=6, evict="fifo", **_multi),
            _multijoins(shed=st.sampled_from((0.2, "unbiased")), memory=budgets, evict=policies),
        ),
    ),
    changes=(
        Change("on", "on", lambda spec: {"on": ("k", "s") if isinstance(spec.on, str) else "k"}),
        Change("time", "time", {"time": "u"}),
        Change("within", "within", {"within": us(10)}),
        Change("lateness", None, lambda spec: {"lateness": (us(7),) * spec.streams}, _fixed),
        Change("lateness", "lateness", lambda spec: {"lateness": (us(0),) * spec.streams}, _fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("suffixes", None, lambda spec: {"suffixes": tuple(f"_s{n}" for n in range(spec.streams))}),
        Change("idle", None, {"idle": "1 hour"}),
        Change("partition", "partition", {"partition": "hash"}),
        Change("memory", "memory", {"memory": 7}),
        *_budget_changes,
        Change("shed", "shed", {"shed": 0.4}),
    ),
)


# Several joins under one budget.

_STREAMS = ("a", "b", "c")
_group = {"streams": _STREAMS, "time": "t"}
_two_keys = (
    Join("ab", left="a", right="b", on="k", between=(us(-5), us(6))),
    Join("cb", left="c", right="b", on="s", within=us(4)),
    Join("ac", left="a", right="c", on="k", within=us(3), suffixes=("_a", "_c")),
)
_star = (
    Join("ab", left="a", right="b", on="k", between=(us(-5), us(6))),
    Join("ca", left="c", right="a", on="k", between=(us(0), us(7))),
)


@st.composite
def _groups(draw: st.DrawFn, joins: st.SearchStrategy[Any], **options: Any) -> GroupSpec:
    late = {name: draw(options.get("lateness", micros)) for name in _STREAMS}
    given = {name: draw(values) for name, values in options.items() if name != "lateness"}
    return GroupSpec(streams=_STREAMS, joins=draw(joins), **{"time": "t", "lateness": late, **given})


@st.composite
def _members(draw: st.DrawFn, pairs: tuple[str, ...], on: tuple[str, ...]) -> tuple[Join, ...]:
    out = []
    for number, pair in enumerate(pairs):
        left, right = draw(st.permutations(pair))
        out.append(Join(f"j{number}", left=left, right=right, on=draw(st.sampled_from(on)), between=draw(windows)))
    return tuple(out)


def _no_key(spec: GroupSpec, side: int, row: Row) -> bool:
    """Whether a row has a null in the key of every join that it serves."""
    stream = spec.streams[side]
    serving = [
        names_of(join.on, 2)[part]
        for join in spec.joins
        for part, name in enumerate((join.left, join.right))
        if name == stream
    ]
    return all(key_of(row, names) is None for names in serving)


def _of_join(row: Row) -> tuple[Any, ...]:
    """Return the name of the join and its part; the parts of the other joins are null."""
    assert [name for name, part in row.items() if part is not None] == ["join", row["join"]]
    return row["join"], *row[row["join"]].values()


_group_policies = st.sampled_from(("gdj", "recent", "prob", "fifo", "random", braided.GDJ(initial=0.3)))

GROUPS = Kind(
    wanted=oracles.join_group,
    content=lambda spec, row: _of_join(row),
    whole=fits,
    null_key=_no_key,
    crowded=lambda spec: (replace(spec, memory=3_000, shed=None), 500, 50),
    cases=(
        Case(
            "star of one key",
            GroupSpec(joins=_star, lateness=us(4), memory=12, **_group),
            _groups(_members(("ab", "ac", "ab"), ("k",)), memory=budgets, evict=_group_policies),
        ),
        Case(
            "several keys",
            GroupSpec(
                joins=_two_keys, lateness={"a": us(2), "b": us(0), "c": us(5)}, memory=12, evict="prob", **_group
            ),
            _groups(
                _members(("ab", "bc", "ac"), ("k", "s")),
                memory=budgets,
                evict=_group_policies,
                time=st.sampled_from(("t", {"a": "t", "b": "u", "c": "t"})),
                idle=st.sampled_from((None, "1 hour")),
            ),
        ),
        Case(
            "learned lateness",
            GroupSpec(joins=_star, lateness=Lateness(floor=us(4), memory=us(50)), memory=1000, **_group),
            _groups(_members(("ab", "ac"), ("k",)), memory=budgets, lateness=micros | learned),
        ),
        Case(
            "budget in bytes",
            GroupSpec(joins=_star, lateness=us(4), memory="8 KB", evict="fifo", **_group),
            _groups(
                _members(("ab", "ac"), ("s",)), memory=st.just("8 KB"), evict=st.sampled_from(("gdj", "fifo", "random"))
            ),
        ),
        Case(
            "sample",
            GroupSpec(joins=_two_keys, lateness=us(4), shed=0.2, memory=12, **_group),
            _groups(_members(("ab", "bc"), ("k", "s")), memory=budgets, shed=st.sampled_from((0.2, "unbiased"))),
        ),
    ),
    changes=(
        Change("joins", "joins", lambda spec: {"joins": spec.joins[:2] if len(spec.joins) > 2 else _two_keys}),
        Change(
            "joins",
            r"joins\[0\].between",
            lambda spec: {"joins": (replace(spec.joins[0], between=("0 us", "1 us")), *spec.joins[1:])},
        ),
        Change("joins", None, lambda spec: {"joins": (replace(spec.joins[0], suffixes=("_x", "_y")), *spec.joins[1:])}),
        Change("time", r"joins\[0\].time", {"time": "u"}),
        Change("lateness", None, {"lateness": us(7)}, _fixed),
        Change("lateness", "lateness", {"lateness": {"a": us(1), "b": us(9), "c": us(9)}}, _fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("idle", None, {"idle": "1 hour"}),
        Change("memory", "memory", {"memory": 7}),
        Change("evict", "evict", {"evict": "random"}),
        Change("shed", "shed", {"shed": 0.4}),
    ),
)


# Streams in order.

_orders = {"time": st.just("t"), "lateness": micros, "key": st.sampled_from((None, "k", ("k", "s")))}


def _line(spec: OrderSpec, row: Row) -> Any:
    return tuple(row[name] for name in names_of(spec.key, 1)[0])


ORDERS = Kind(
    wanted=oracles.order,
    content=lambda spec, row: tuple(value for name, value in row.items() if name not in ("seq", "late")),
    line=_line,
    keeps_late=lambda spec: spec.late != "drop",
    crowded=lambda spec: (spec, 300_000, 3_000),
    cases=(
        Case(
            "one stream",
            OrderSpec(time="t", lateness=us(5)),
            st.builds(OrderSpec, late=st.sampled_from(("flag", "side", "drop")), **_orders),
        ),
        Case(
            "per key",
            OrderSpec(time="t", key=("k", "s"), lateness=us(5), late="drop"),
            st.builds(OrderSpec, **{**_orders, "key": st.sampled_from(("k", ("k", "s")))}),
        ),
        Case(
            "several streams",
            OrderSpec(inputs=3, time="t", lateness=us(5), idle=None),
            st.builds(OrderSpec, inputs=st.integers(2, 3), idle=st.sampled_from((None, "1 hour")), **_orders),
        ),
        Case(
            "learned lateness",
            OrderSpec(time="t", lateness=Lateness(floor=us(4), memory=us(50)), key="k"),
            st.builds(OrderSpec, inputs=st.integers(1, 2), **{**_orders, "lateness": learned}),
        ),
    ),
    changes=(
        Change("time", "time", {"time": "u"}),
        Change("key", "key", {"key": "id"}),
        Change("late", None, lambda spec: {"late": "drop" if spec.late == "flag" else "flag"}),
        Change("lateness", None, {"lateness": us(7)}, _fixed),
        Change("lateness", "lateness", {"lateness": us(4)}, _fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("idle", None, {"idle": "1 hour"}),
    ),
)

KINDS: dict[type[Spec], Kind] = {JoinSpec: JOINS, MultiJoinSpec: MULTIJOINS, GroupSpec: GROUPS, OrderSpec: ORDERS}
