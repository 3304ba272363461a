"""`braided.multijoin` on Spark DataFrames: read the options, run the operator, name and mark the result."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from braided.durations import Duration
from braided.errors import BraidedError
from braided.joins.arrivals import OutputColumn
from braided.spark.dataflow import check_session, stateful, with_delay
from braided.spark.driver import watch
from braided.spark.inputs import arrow_schema, check_frames
from braided.spark.planning import is_collated, learned_delay, make_routing, mark_time, result_schema, stream_lateness
from braided.specs.multi_options import (
    MultiNames,
    MultiOn,
    bound_multijoin,
    build_multijoin,
    check_streams,
    resolve_multi_names,
    resolve_span,
)
from braided.time.clocks import Span
from braided.time.resolve import how_learned, least, resolve_rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_numbers = itertools.count(1)


def multijoin_frames(
    streams: Sequence[DataFrame],
    *,
    on: MultiOn,
    time: str | Sequence[str],
    within: Duration,
    lateness: Duration | Sequence[Duration] | None = None,
    workers: int | None = None,
    suffixes: Sequence[str] | None = None,
    name: str | None = None,
    partition: str = "auto",
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
    control: str | None = None,
    redact: bool = False,
) -> DataFrame:
    """See `braided.multijoin`."""
    check_streams(streams)
    session = check_frames({f"streams[{number}]": frame for number, frame in enumerate(streams)})
    span = resolve_span(within)
    given = resolve_rules(lateness, len(streams))
    names = resolve_multi_names(on, time, [frame.columns for frame in streams])
    check_keys(names, streams)
    schemas = [arrow_schema(frame, f"streams[{number}]") for number, frame in enumerate(streams)]
    rules = [stream_lateness(frame, names, side, given) for side, frame in enumerate(streams)]
    window = Span(span, tuple(map(least, rules)))
    operator = build_multijoin(names, schemas, window, suffixes, how_learned(rules), adaptive=control is not None)
    if not streams[0].isStreaming:
        return _batch_join(streams, names, span, operator.columns)
    if partition not in ("auto", "hash"):
        raise BraidedError(f"partition={partition!r}: a join of many streams is hashed; write 'auto' or 'hash'")
    limited = bound_multijoin(operator, memory, evict, share, shed)
    routing = make_routing(check_session(session, workers), partition, control, redact, keyed=True)
    marked, marks = [], []
    for side, frame in enumerate(streams):
        changed, mark = mark_time(with_delay(frame), names.times[side], window, side)
        marked.append(changed)
        marks.append(mark)
    label = name or f"multijoin-{next(_numbers)}"
    watch(session, label, operator, routing)
    output = result_schema(operator.columns, names, streams, marks)
    hand_on = learned_delay(window, rules) if memory is None else None
    return stateful(limited, marked, output, name=label, routing=routing, hand_on=hand_on)


def check_keys(names: MultiNames, frames: Sequence[DataFrame]) -> None:
    """Refuse collated keys, which are equal in other ways than their bytes."""
    for frame, keys in zip(frames, names.keys, strict=True):
        for key in keys:
            kind = frame.schema[key].dataType
            if is_collated(kind):
                raise BraidedError(
                    f"on={key!r}: has type {kind.simpleString()}; collated keys are not supported, cast it to string"
                )


def _batch_join(
    frames: Sequence[DataFrame], names: MultiNames, within: int, columns: tuple[OutputColumn, ...]
) -> DataFrame:
    """Spark's own join of each stream with those before it, with our time condition and our columns."""

    def column(side: int, source: str) -> Column:
        return F.col(f"s{side}.`{source.replace('`', '``')}`")

    ntz = isinstance(frames[0].schema[names.times[0]].dataType, TimestampNTZType)
    times = [column(side, source) for side, source in enumerate(names.times)]
    if ntz:
        limit = F.lit(datetime.timedelta(microseconds=within))
    else:
        # Spark would subtract local times across DST changes.
        times, limit = [F.unix_micros(time) for time in times], F.lit(within)
    joined = frames[0].alias("s0")
    for side in range(1, len(frames)):
        keys = zip(names.keys[0], names.keys[side], strict=True)
        same = reduce(lambda a, b: a & b, [column(0, a) == column(side, b) for a, b in keys])
        known = times[: side + 1]
        near = (F.greatest(*known) - F.least(*known)) <= limit
        joined = joined.join(frames[side].alias(f"s{side}"), same & near & times[side].isNotNull(), "inner")
    joined = joined.where(times[0].isNotNull())
    return joined.select(*(column(c.side, c.source).alias(c.name) for c in columns))
