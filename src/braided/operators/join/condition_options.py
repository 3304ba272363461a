"""The options of `braided.join` beside a condition of Spark's: how it runs, and nothing that the condition has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from braided.errors import OptionError
from braided.operators.join.spec import JoinSpec

TIME_OR_CONDITION = (
    "join: give on= and time=, with within= or between=; or a condition as Spark's join takes it, such as "
    "F.expr('clickAdId = adId AND clickTime BETWEEN adTime AND adTime + INTERVAL 1 MINUTE')"
)
_IN_CONDITION = ("time", "within", "between", "where")
_AROUND = ("name", "control", "redact")


def is_condition(value: object) -> bool:
    """Whether a value is a Column of Spark's, or a list of them."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return type(first).__name__ == "Column" and type(first).__module__.startswith("pyspark.sql")


def condition_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a join by a condition from all arguments; refuse those that the condition has itself."""
    condition = arguments["condition"]
    if condition is not None and not is_condition(condition):
        raise OptionError(
            f"condition={condition!r}: write a Column such as F.expr('...'); names of keys go into on=, beside time= "
            "and within="
        )
    for name in _IN_CONDITION if condition is None else ("on", *_IN_CONDITION):
        if arguments[name] is not None:
            raise OptionError(f"{name}={arguments[name]!r}: the condition already has this; leave one of them out")
    if tuple(arguments["suffixes"]) != ("", "_right"):
        raise OptionError("suffixes=: a join by a condition has the columns of both streams as they are; leave it out")
    from_condition = ("on", *_IN_CONDITION, "suffixes", "how")
    around = {name: arguments[name] for name in (*_AROUND, "cap")}
    own = {name: arguments[name] for name in JoinSpec.descriptions() if name not in from_condition}
    return {**own, **around}
