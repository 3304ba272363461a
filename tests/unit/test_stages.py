"""How a query is cut into stages by each strategy, and how partitions are shared out."""

from __future__ import annotations

from typing import Any

import pytest

from braided.errors import OptionError
from braided.spark.deploy import Cost, _kept_partitions, _shares
from braided.spark.query import Query, Step
from braided.spark.query_join import PendingJoin
from braided.spark.stages import Stage, split


def made(name: str, *inputs: Query, stateful: bool = False, by_spark: bool = False, source: Any = None) -> Query:
    """Return a query of which only the steps are known; made again, it says of what."""

    def make(queries: Any) -> Query:
        return made(f"{name}({', '.join(label(query) for query in queries)})")

    return Query(source, "ts", "1 second", step=Step(name, inputs, make, stateful, by_spark))


def label(query: Query) -> str:
    return "source" if query.step is None else query.step.name


def pending() -> PendingJoin:
    found = object.__new__(PendingJoin)
    object.__setattr__(found, "plan", type("Plan", (), {"operator": type("Operator", (), {"lateness": (1, 2)})}))
    return found


def shown(stages: list[Stage]) -> list[str]:
    """Return each stage as what it makes of the streams before it."""
    streams = [[made(before.name) for before in stage.inputs] for stage in stages]
    return [label(stage.make(given)) for stage, given in zip(stages, streams, strict=True)]


SOURCE = Query(None, "ts")  # type: ignore[arg-type]
OTHER = Query(None, "ts")  # type: ignore[arg-type]


@pytest.fixture
def chain() -> Query:
    """where -> join -> where -> join -> aggregate -> select; the aggregate begins in the second join."""
    first = made("join", made("where", SOURCE), OTHER, stateful=True)
    second = made("join", made("where", first), OTHER, stateful=True, source=pending())
    return made("select", made("aggregate", second, stateful=True, by_spark=True))


def test_each_strategy_cuts_where_it_should(chain: Query) -> None:
    assert shown(split(chain, "query")) == [
        "select(aggregate(join(where(join(where(source), source)), source)))",
    ]
    assert shown(split(chain, "operator")) == [
        "where(source)", "join(1-where, source)", "where(2-join)", "join(3-where, source)", "aggregate(4-join)",
        "select(5-aggregate)",
    ]  # fmt: skip
    assert shown(split(chain, "subquery")) == [
        "where(source)", "where(join(1-where, source))", "select(aggregate(join(2-join-where, source)))",
    ]  # fmt: skip
    with pytest.raises(OptionError, match="strategy='tree': write 'query', 'operator', 'subquery'"):
        split(chain, "tree")  # type: ignore[arg-type]


def test_an_aggregate_that_is_sparks_is_a_subquery_of_its_own() -> None:
    chain = made("aggregate", made("where", made("order", SOURCE, stateful=True)), stateful=True, by_spark=True)
    assert [stage.name for stage in split(chain, "subquery")] == ["1-order-where", "2-aggregate"]


def test_what_is_read_twice_is_made_once_and_a_union_keeps_its_inputs_apart() -> None:
    cleaned = made("where", SOURCE)
    twice = made("join", cleaned, cleaned, stateful=True)
    assert shown(split(twice, "subquery")) == ["where(source)", "join(1-where, 1-where)"]
    both = made("union", twice, made("select", OTHER))
    assert shown(split(both, "subquery")) == [
        "where(source)", "join(1-where, 1-where)", "union(2-join, select(source))",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("processors", "costs", "wanted"),
    [
        (3, {}, [1, 1, 1]),
        (8, {}, [3, 3, 2]),
        (8, {"a": 1, "b": 6, "c": 1}, [1, 6, 1]),
        (8, {"a": 0.001, "b": 4, "c": 4}, [1, 4, 3]),
        (6, {"b": 100}, [2, 2, 2]),
        (200, {"a": 1, "b": 1, "c": 98}, [2, 2, 196]),
    ],
)
def test_partitions_follow_costs(processors: int, costs: dict[str, float], wanted: list[int]) -> None:
    found = _shares("abc", processors, {name: Cost(ms, 10) for name, ms in costs.items()})
    assert list(found.values()) == wanted


def test_a_query_goes_on_with_its_partitions_and_another_is_refused(tmp_path: Any) -> None:
    assert _kept_partitions(tmp_path / "x", "operator", {"1-where": 1, "2-join": 3}) == {"1-where": 1, "2-join": 3}
    assert _kept_partitions(tmp_path / "x", "operator", {"1-where": 2, "2-join": 9}) == {"1-where": 1, "2-join": 3}
    with pytest.raises(
        OptionError, match="another query is deployed there, by 'operator', with the stages 1-where, 2-"
    ):
        _kept_partitions(tmp_path / "x", "query", {"1-where-join": 4})
    (tmp_path / "x" / "deployment.json").write_text("{")
    with pytest.raises(OptionError, match=r"deployment\.json: is damaged"):
        _kept_partitions(tmp_path / "x", "query", {"1-where-join": 4})
