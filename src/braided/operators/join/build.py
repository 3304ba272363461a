"""Building a window join: names and types found, the predicate compiled, the budget set."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import fields, replace

from braided.errors import OptionError
from braided.expressions.compile import Predicate, Uncompilable, compile_where
from braided.operators.column_names import Names, find_names, result_columns
from braided.operators.join.arrivals import OutputColumn
from braided.operators.join.outer_join import OuterJoin
from braided.operators.join.spec import JoinSpec
from braided.operators.join.window_join import WindowJoin
from braided.operators.late_rows import with_late
from braided.operators.physical import EngineFeatures, InputColumn, Plan, Residual, watermark_after
from braided.operators.stream import Stream, TimeMarks
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.runtime.contract import Operator
from braided.time.clocks import Span, Window
from braided.time.lateness import Lateness
from braided.time.propagated_delay import PropagatedDelay
from braided.time.resolve import are_fixed, how_learned, least, resolve_idle, resolve_rules

_log = logging.getLogger("braided")


def build_join(spec: JoinSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    predicate, why = compile_predicate(spec.where, streams, setting)
    if spec.rows is not None:
        from braided.operators.rows_join.build import build_rows_join

        return build_rows_join(spec, streams, predicate, why)
    names = find_names(streams, spec.on, spec.time)
    spec_rules = resolve_rules(spec.lateness, 2)
    rules = stream_rules(streams, names.times, spec_rules)
    window = Window(*spec.bounds, tuple(map(least, rules)))
    join = window_join(names, streams, window, spec.suffixes, rules=rules, idle=resolve_idle(spec.idle))
    if spec.join_kind != "inner":
        outer = _outer(spec, streams, names, _as_kind(join, spec, streams), predicate, why)
        return with_late(outer, spec.late)
    if not names.keys[0] and spec.where is None:
        _log.warning("join by time alone: every pair within the window is a result; give a key if you do not want this")
    columns, watermark_delays = mark_times(join.columns, streams, names.times, window, rules)
    residual = None
    wide = join
    if predicate is not None:
        join = wide = with_predicate(join, predicate, spec.where)
    elif spec.where is not None:
        if spec.late == "side":
            raise OptionError(
                f"where={spec.where!r}: only Spark can evaluate this ({why}), after the join; with late='side' write "
                "what docs/reference/where.md lists, or filter the result"
            )
        whole = tuple(
            OutputColumn(f"{'lr'[side]}{number}", side, source)
            for side, stream in enumerate(streams)
            for number, source in enumerate(stream.schema.names)
        )
        wide = replace(join, columns=whole, where_text=spec.where)
        residual = Residual(spec.where, why, mark_times(whole, streams, names.times, window, rules)[0])
        join = replace(join, where_text=spec.where)
        if not names.keys[0]:
            _log.warning(
                "where=%r: only Spark can evaluate it, so every pair within the window is emitted first", spec.where
            )
    plan = Plan(
        spec,
        streams,
        _with_budget(wide, spec, adapts=setting.adaptive),
        names.times,
        watermark_delays,
        columns,
        joined=join,
        scheme=spec.partition,
        keyed=bool(names.keys[0]),
        waits=spec.memory is not None,
        propagated_delay=handed_on(window, rules) if spec.memory is None else None,
        residual=residual,
    )
    return with_late(plan, spec.late)


def _as_kind(join: WindowJoin, spec: JoinSpec, streams: tuple[Stream, ...]) -> OuterJoin:
    """Return an outer, semi or anti join with the same keys, times and window."""
    kind, columns = spec.join_kind, join.columns
    assert kind != "inner"
    if kind in ("left_semi", "left_anti"):
        columns = tuple(OutputColumn(name, 0, name) for name in streams[0].schema.names)
    for a, b in zip(*join.keys, strict=True) if kind in ("right", "full") else ():
        kinds = [stream.schema.field(name).type for stream, name in zip(streams, (a, b), strict=True)]
        if kinds[0] != kinds[1]:
            raise OptionError(
                f"how={spec.how!r}: the result has one column for {a} and {b}, which are of types {kinds[0]} and "
                f"{kinds[1]}; cast one of them before"
            )
    values = {field.name: getattr(join, field.name) for field in fields(join)}
    return OuterJoin(**{**values, "columns": columns}, how=kind)


def _outer(
    spec: JoinSpec,
    streams: tuple[Stream, ...],
    names: Names,
    join: OuterJoin,
    predicate: Predicate | None,
    why: str,
) -> Plan:
    """Return the plan of a join that must know which rows match nothing."""
    if spec.where is not None and predicate is None:
        raise OptionError(
            f"where={spec.where!r}: how={spec.how!r} must itself find which rows match, but only Spark can evaluate "
            f"this ({why}); write what docs/reference/where.md lists, or filter the streams before"
        )
    if predicate is not None:
        join = replace(join, where=predicate, where_text=spec.where)
    alone = {1 - side for side in join.preserved}
    columns, watermark_delays = mark_times(
        join.columns, streams, names.times, join.window, join.lateness, waits=join.untimed, alone=alone
    )
    return Plan(
        spec,
        streams,
        join,
        names.times,
        watermark_delays,
        tuple(replace(column, nullable=column.stream in alone) for column in columns),
        joined=join,
        scheme=spec.partition if join.home is not None else "hash",
        fixed=None
        if join.home is not None
        else f"rows of both streams are returned without a match (how={spec.how!r})",
        waits=True,
        propagated_delay=handed_on(join.window, tuple(join.lateness)),
    )


def stream_rules(
    streams: tuple[Stream, ...], times: tuple[str, ...], rules: tuple[int | Lateness | None, ...]
) -> tuple[int | Lateness, ...]:
    """Return each stream's lateness: the given one, else that of its watermark, else learned."""
    return tuple(stream.marks_of(time).lateness(rule) for stream, time, rule in zip(streams, times, rules, strict=True))


def handed_on(window: Window | Span, rules: tuple[int | Lateness, ...]) -> PropagatedDelay | None:
    """Return the delay that results propagate while it is learned; None if every lateness is fixed."""
    return None if are_fixed(rules) else PropagatedDelay(window)


def mark_times(
    columns: tuple[OutputColumn, ...],
    streams: tuple[Stream, ...],
    times: tuple[str, ...],
    window: Window | Span,
    rules: Sequence[int | Lateness],
    *,
    waits: Collection[int] = (),
    alone: Collection[int] = (),
) -> tuple[tuple[InputColumn, ...], tuple[int, ...]]:
    """Return result columns with the marks of their times, and how long each input's watermark must wait.

    waits : the streams whose rows wait until it is known that they match nothing; rows without a time do not wait.
    alone : the streams without which rows come out.
    """
    # A source row is at most K behind its clock. A result of another join has a distance from its inputs'
    # clocks. If it has its own watermark, its K, the distance from its own largest time, counts.
    watermark_delays = tuple(
        max(stream.marks_of(time).watermark_delay, window.lateness[side]) + window.watermark_reach(side)
        for side, (stream, time) in enumerate(zip(streams, times, strict=True))
    )
    known = [stream.marks_of(time) for stream, time in zip(streams, times, strict=True)]
    after = [
        TimeMarks(
            window.result_delay(side),
            delay,
            watermark_after(known[side], delay),
            are_fixed(rules),
            origin_shift(known, side, window.apart(side)),
        )
        for side, delay in enumerate(watermark_delays)
    ]
    out = []
    for column in columns:
        side = column.side
        marks = streams[side].marks_after(column.source, times[side], after[side], waits=side in waits)
        if marks is not None and side in alone:
            marks = replace(marks, optional=True)
        out.append(InputColumn(column.name, side, column.source, marks))
    return tuple(out), watermark_delays


def origin_shift(times: Sequence[TimeMarks], side: int, apart: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return how far the origin of a stream's times is from that of the first stream's in the results of a join.

    times : the marks of the time of each stream.
    apart : how far this stream's time is from that of the first one; None for any distance.

    >>> origin_shift([TimeMarks(), TimeMarks(offsets=(0, 5))], 1, (-1, 10))
    (-6, 10)
    """
    if side == 0 or apart is None:
        return (0, 0) if side == 0 else None
    low, high = times[0].offsets or (0, 0)
    own = times[side].offsets or (0, 0)
    return low + apart[0] - own[1], high + apart[1] - own[0]


def window_join(
    names: Names,
    streams: tuple[Stream, ...],
    window: Window,
    suffixes: tuple[str, str],
    *,
    rules: tuple[int | Lateness, ...] = (0, 0),
    idle: int | None = None,
) -> WindowJoin:
    """Assemble the operator, without a predicate."""
    schemas = (streams[0].schema, streams[1].schema)
    kinds = tuple(
        common_key_type(schemas[0].field(a).type, schemas[1].field(b).type, (a, b))
        for a, b in zip(*names.keys, strict=True)
    )
    return WindowJoin(
        inputs=schemas,
        keys=(names.keys[0], names.keys[1]),
        times=(names.times[0], names.times[1]),
        window=window,
        hasher=KeyHasher(kinds),
        columns=result_columns(names, streams, suffixes),
        learned=how_learned(rules),
        idle=idle,
    )


def with_predicate(join: WindowJoin, predicate: Predicate, text: str | None) -> WindowJoin:
    """Return the join with a compiled predicate."""
    theta = None
    if not join.keys[0]:
        from braided.operators.join.theta.search import ThetaPredicate

        theta = ThetaPredicate.of(predicate)
    return replace(join, where=predicate, where_text=text, theta=theta)


def _with_budget(join: WindowJoin, spec: JoinSpec, *, adapts: bool) -> Operator:
    if spec.memory is None and spec.shed is None:
        return join
    from braided.operators.bounded.budget import limit

    return limit(join, spec.memory, spec.evict, spec.share, spec.shed, adapts=adapts)


def compile_predicate(
    where: str | None, streams: tuple[Stream, ...], setting: EngineFeatures
) -> tuple[Predicate | None, str]:
    """Return the predicate as kernels; or None, and the reason why only the runtime can evaluate it."""
    if where is None:
        return None, ""
    if not setting.ansi:
        return None, _left(where, "ANSI mode is off")
    try:
        predicate = compile_where(where, streams[0].schema, streams[1].schema)
    except Uncompilable as reason:
        if not setting.filters:
            raise
        return None, _left(where, str(reason))
    used = zip(streams, (predicate.left, predicate.right), strict=True)
    if any(stream.collated.intersection(names) for stream, names in used):
        return None, _left(where, "a column is collated")
    return predicate, ""


def _left(where: str, why: str) -> str:
    _log.info("where=%r: evaluated by Spark after the join: %s", where, why)
    return why
