"""`braided.join_group` on Spark DataFrames."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from braided.durations import Duration
from braided.errors import BraidedError
from braided.joins.bounded.join_group import JOIN, JoinGroup
from braided.spark.dataflow import check_session, stateful, with_delay
from braided.spark.driver import watch
from braided.spark.inputs import arrow_schema, check_frames
from braided.spark.planning import is_collated, make_routing, stream_lateness
from braided.specs.group_options import (
    Join,
    build_group,
    centre_first,
    check_group,
    resolve_group_lateness,
    resolve_group_names,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_numbers = itertools.count(1)


def group_frames(
    joins: Sequence[Join],
    *,
    streams: Mapping[str, DataFrame],
    time: str | Mapping[str, str],
    memory: int | str,
    evict: Any = "gdj",
    shed: float | str | None = None,
    lateness: Duration | Mapping[str, Duration] | None = None,
    workers: int | None = None,
    name: str | None = None,
    control: str | None = None,
    redact: bool = False,
) -> DataFrame:
    """See `braided.join_group`."""
    check_group(joins, streams)
    streams = centre_first(joins, streams)
    frames = list(streams.values())
    session = check_frames({f"streams[{key!r}]": frame for key, frame in streams.items()})
    names = resolve_group_names(time, {key: frame.columns for key, frame in streams.items()})
    schemas = [arrow_schema(frame, f"streams[{key!r}]") for key, frame in streams.items()]
    given = resolve_group_lateness(lateness, names.streams)
    delays = [stream_lateness(frame, names, side, given) for side, frame in enumerate(frames)]
    adaptive = control is not None
    operator = build_group(joins, names, schemas, delays, memory, evict, shed=shed, adaptive=adaptive)
    _check_keys(operator, frames)
    if not frames[0].isStreaming:
        raise BraidedError("streams: batch DataFrames need no budget; write one braided.join each")
    partition = "auto" if operator.one_key else "hash"
    routing = make_routing(check_session(session, workers), partition, control, redact, keyed=True)
    label = name or f"join_group-{next(_numbers)}"
    watch(session, label, operator, routing)
    inputs = [with_delay(frame) for frame in frames]
    return stateful(operator, inputs, result_schema(operator, frames), name=label, routing=routing)


def _check_keys(operator: JoinGroup, frames: Sequence[DataFrame]) -> None:
    for member in operator.members:
        for stream, keys in zip(member.streams, member.join.keys, strict=True):
            for key in keys:
                if is_collated(frames[stream].schema[key].dataType):
                    raise BraidedError(f"on={key!r}: collated keys are not supported, cast it to string")


def result_schema(operator: JoinGroup, frames: Sequence[DataFrame]) -> StructType:
    """Return the Spark schema of the result: the name of the join, and a struct for each."""
    fields = [StructField(JOIN, StringType())]
    for member in operator.members:
        columns = []
        for column in member.join.columns:
            source = frames[member.streams[column.side]].schema[column.source]
            columns.append(StructField(column.name, source.dataType, source.nullable))
        fields.append(StructField(member.name, StructType(columns)))
    return StructType(fields)
