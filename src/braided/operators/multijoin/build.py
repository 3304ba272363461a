"""Building a join of many streams."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from braided.operators.column_names import Names, find_names, result_columns
from braided.operators.join.build import handed_on, mark_times, stream_rules
from braided.operators.late_rows import with_late
from braided.operators.multijoin.multijoin import MultiJoin
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.physical import EngineFeatures, Plan
from braided.operators.stream import Stream
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.runtime.contract import Operator
from braided.time.clocks import Span
from braided.time.lateness import Lateness
from braided.time.resolve import how_learned, least, resolve_idle, resolve_rules


def build_multijoin(spec: MultiJoinSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    names = find_names(streams, spec.on, spec.time)
    rules = stream_rules(streams, names.times, resolve_rules(spec.lateness, len(streams)))
    window = Span(spec.span, tuple(map(least, rules)))
    join = multi_join(
        names, streams, window, spec.suffixes, rules=rules, idle=resolve_idle(spec.idle), adaptive=setting.adaptive
    )
    columns, watermark_delays = mark_times(join.columns, streams, names.times, window, rules)
    plan = Plan(
        spec,
        streams,
        _with_budget(join, spec),
        names.times,
        watermark_delays,
        columns,
        joined=join,
        scheme=spec.partition,
        waits=spec.memory is not None,
        propagated_delay=handed_on(window, rules) if spec.memory is None else None,
    )
    return with_late(plan, spec.late)


def multi_join(
    names: Names,
    streams: tuple[Stream, ...],
    window: Span,
    suffixes: Sequence[str] | None = None,
    *,
    rules: tuple[int | Lateness, ...] | None = None,
    idle: int | None = None,
    adaptive: bool = False,
) -> MultiJoin:
    count = len(streams)
    chosen = ("", *(f"_{number}" for number in range(2, count + 1))) if suffixes is None else suffixes
    return MultiJoin(
        inputs=tuple(stream.schema for stream in streams),
        keys=names.keys,
        times=names.times,
        window=window,
        hasher=KeyHasher(_key_types(names, streams)),
        columns=result_columns(names, streams, chosen),
        learned=how_learned(rules or (0,) * count),
        idle=idle,
        adaptive=adaptive,
    )


def _key_types(names: Names, streams: Sequence[Stream]) -> tuple[pa.DataType, ...]:
    """Return the type in which each key column is compared over all streams."""
    kinds = []
    for key in zip(*names.keys, strict=True):
        kind = streams[0].schema.field(key[0]).type
        for stream, name in zip(streams[1:], key[1:], strict=True):
            kind = common_key_type(kind, stream.schema.field(name).type, (key[0], name))
        kinds.append(kind)
    return tuple(kinds)


def _with_budget(join: MultiJoin, spec: MultiJoinSpec) -> Operator:
    if spec.memory is None and spec.shed is None:
        return join
    from braided.operators.bounded.budget import limit_multijoin

    return limit_multijoin(join, spec.memory, spec.evict, spec.share, spec.shed)
