"""Streams of a query that share a key and a window, as one `braided.multijoin`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import DataType, DoubleType, FloatType

from braided.operators.multijoin.spec import MultiJoinSpec
from braided.sqltext.common import Common

_AROUND = ("name", "control", "redact")


def common_lateness(common: Common, hints: Mapping[str, Sequence[str]], default: Any) -> tuple[Any, ...] | None:
    """Return the lateness of each stream; None if a hint has another option, which is for a single join of two."""
    lateness = dict.fromkeys(common.streams, default)
    for alias, texts in hints.items():
        for text in texts:
            name, _, value = (part.strip() for part in text.partition("="))
            if alias not in lateness or name != "lateness":
                return None
            lateness[alias] = value
    return tuple(lateness.values())


def many_spec(
    common: Common,
    span: int,
    names: Mapping[tuple[str, str], str],
    types: Mapping[tuple[str, str], DataType],
    options: Mapping[str, Any],
) -> MultiJoinSpec | None:
    """Return the join of streams within a span of microseconds; None if their keys are not of one type.

    The result has every key once, for all streams. So equal keys must have equal representations.
    """
    for key in common.keys:
        kinds = [types[alias, name] for alias, name in zip(common.streams, key, strict=True)]
        if any(kind != kinds[0] for kind in kinds) or isinstance(kinds[0], DoubleType | FloatType):
            return None
    chosen = {name: value for name, value in options.items() if name not in _AROUND}
    if all(value is None for value in chosen["lateness"]):
        chosen.pop("lateness")
    return MultiJoinSpec(
        streams=len(common.streams),
        on=[tuple(names[alias, name] for alias, name in zip(common.streams, key, strict=True)) for key in common.keys],
        time=tuple(names[alias, time] for alias, time in zip(common.streams, common.times, strict=True)),
        within=datetime.timedelta(microseconds=span),
        **chosen,
    )
