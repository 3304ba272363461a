"""Streams of a query that share a key and a window, as one `braided.multijoin`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from braided.spark.frontend import run
from braided.spark.names import quoted
from braided.specs.multijoin import MultiJoinSpec
from braided.sqltext.common import Common

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AROUND = ("name", "control", "redact")


def common_lateness(common: Common, hints: Mapping[str, Sequence[str]], given: Any) -> tuple[Any, ...] | None:
    """Return the lateness of each stream; None where a hint says something else, which is of one join of two."""
    found = dict.fromkeys(common.streams, given)
    for alias, texts in hints.items():
        for text in texts:
            name, _, value = (part.strip() for part in text.partition("="))
            if alias not in found or name != "lateness":
                return None
            found[alias] = value
    return tuple(found.values())


def join_many(
    common: Common,
    span: int,
    frames: Sequence[DataFrame],
    names: Mapping[tuple[str, str], str],
    options: Mapping[str, Any],
    said: Sequence[str],
    messages: Mapping[str, Any],
) -> DataFrame | None:
    """Return streams joined within a span of microseconds; None where their keys are not of one type.

    The result has every key once. So that it can stand for those of all streams, equal ones must look alike.
    """
    keys = [tuple(names[alias, name] for alias, name in zip(common.streams, key, strict=True)) for key in common.keys]
    for key in keys:
        kinds = [frame.schema[name].dataType for frame, name in zip(frames, key, strict=True)]
        if any(kind != kinds[0] for kind in kinds) or isinstance(kinds[0], DoubleType | FloatType):
            return None
    chosen = {name: value for name, value in options.items() if name not in _AROUND}
    if all(value is None for value in chosen["lateness"]):
        chosen.pop("lateness")
    spec = MultiJoinSpec(
        streams=len(frames),
        on=keys,
        time=tuple(names[alias, time] for alias, time in zip(common.streams, common.times, strict=True)),
        within=datetime.timedelta(microseconds=span),
        **chosen,
    )
    around = {name: value for name, value in options.items() if name in _AROUND}
    notes = [*said, f"{len(frames)} streams share their key and window: one join of many"]
    result = run(spec, frames, **around, said=notes, **messages)
    for key in keys:
        for other in key[1:]:
            result = result.withColumn(other, F.col(quoted(key[0])))
    return result
