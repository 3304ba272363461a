"""How partitions are shared out among the stages of a query, and kept."""

from __future__ import annotations

from typing import Any

import pytest

from braided.errors import OptionError
from braided.plan.shares import Cost, shares_of
from braided.spark.deploy import _kept_partitions, _measured


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
    found = shares_of("abc", processors, {name: Cost(ms, 10) for name, ms in costs.items()})
    assert list(found.values()) == wanted


def test_a_query_goes_on_with_its_partitions_and_another_is_refused(tmp_path: Any) -> None:
    assert _kept_partitions(tmp_path / "x", "operator", {"1-where": 1, "2-join": 3}) == {"1-where": 1, "2-join": 3}
    assert _kept_partitions(tmp_path / "x", "operator", {"1-where": 2, "2-join": 9}) == {"1-where": 1, "2-join": 3}
    with pytest.raises(
        OptionError, match="another query is deployed there, with strategy='operator' and the stages 1-where, 2-"
    ):
        _kept_partitions(tmp_path / "x", "query", {"1-where-join": 4})
    (tmp_path / "x" / "deployment.json").write_text("{")
    with pytest.raises(OptionError, match=r"deployment\.json: is damaged"):
        _kept_partitions(tmp_path / "x", "query", {"1-where-join": 4})


def test_costs_are_those_that_another_run_has_noted(tmp_path: Any) -> None:
    (tmp_path / "costs.json").write_text('{"1-where": {"ms": 100, "rows": 10}, "2-join": {"ms": 700, "rows": 10}}')
    names = ["1-where", "2-join"]
    assert shares_of(names, 8, _measured(tmp_path, names)) == {"1-where": 1, "2-join": 7}
    assert shares_of(names, 8, _measured(None, names)) == {"1-where": 4, "2-join": 4}
    with pytest.raises(OptionError, match="it has no costs of the stage 3-select; give the topics= of"):
        _measured(str(tmp_path), [*names, "3-select"])
