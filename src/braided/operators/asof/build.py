"""Building an as-of join: names and types found, the lateness resolved."""

from __future__ import annotations

from dataclasses import replace

from braided.durations import format_duration
from braided.operators.asof.asof_join import AsofJoin
from braided.operators.asof.closest import Search
from braided.operators.asof.spec import AsofSpec
from braided.operators.column_names import find_names, result_columns
from braided.operators.join.build import origin_shift, stream_rules
from braided.operators.late_rows import with_late
from braided.operators.physical import EngineFeatures, InputColumn, Plan, watermark_after
from braided.operators.stream import Stream, TimeMarks
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.time.clocks import AsofSpan
from braided.time.propagated_delay import PropagatedDelay
from braided.time.resolve import are_fixed, least, resolve_idle, resolve_rule, resolve_rules


def build_asof(spec: AsofSpec, streams: tuple[Stream, ...], setting: EngineFeatures) -> Plan:
    """Return the plan of an as-of join of two streams."""
    names = find_names(streams, spec.on, spec.time)
    # Every left row waits for the lateness of the right stream: where that is learned it has no floor, as in `order`.
    # The lateness of the left stream costs state alone, as in a window join.
    waits = resolve_rules(spec.lateness, 2)[0], resolve_rules(spec.lateness, 2, floor=0)[1]
    if waits[1] is None and streams[1].marks_of(names.times[1]).known is None:
        waits = waits[0], resolve_rule("auto", 0)
    rules = stream_rules(streams, names.times, waits)
    schemas = streams[0].schema, streams[1].schema
    kinds = tuple(
        common_key_type(schemas[0].field(a).type, schemas[1].field(b).type, (a, b))
        for a, b in zip(*names.keys, strict=True)
    )
    search = Search(spec.direction, spec.tolerance_us, spec.allow_exact_matches)
    outer = spec.how == "left"
    operator = AsofJoin(
        inputs=schemas,
        keys=names.keys,
        times=names.times,
        lateness=rules,
        hasher=KeyHasher(kinds),
        columns=result_columns(names, streams, spec.suffixes),
        search=search,
        outer=outer,
        idle=resolve_idle(spec.idle),
    )
    span = AsofSpan(search.reach, spec.tolerance_us, spec.direction != "forward", tuple(map(least, rules)))
    known = [stream.marks_of(time) for stream, time in zip(streams, names.times, strict=True)]
    watermark_delays = tuple(
        max(marks.watermark_delay, late) + span.watermark_reach(side)
        for side, (marks, late) in enumerate(zip(known, span.lateness, strict=True))
    )
    exact = are_fixed(rules)
    columns = []
    for column in operator.columns:
        side, marks = column.side, None
        # Without a tolerance the right row of a result may have any age, so its times have no marks.
        if side == 0 or spec.tolerance is not None:
            after = TimeMarks(
                span.result_delay(side),
                watermark_delays[side],
                watermark_after(known[side], watermark_delays[side]),
                exact,
                origin_shift(known, side, span.apart(side)),
            )
            marks = streams[side].marks_after(column.source, names.times[side], after, waits=outer)
            if marks is not None and outer and side == 1:
                marks = replace(marks, optional=True)
        columns.append(InputColumn(column.name, side, column.source, marks, nullable=outer and side == 1))
    plan = Plan(
        spec,
        streams,
        operator,
        names.times,
        watermark_delays,
        tuple(columns),
        fixed="a left row needs the right rows of its key on one worker",
        waits=True,
        description=_described(spec, names.keys),
        propagated_delay=None if exact else PropagatedDelay(span),
    )
    return with_late(plan, spec.late)


def _described(spec: AsofSpec, keys: tuple[tuple[str, ...], ...]) -> str:
    on = ", ".join(a if a == b else f"{a} = {b}" for a, b in zip(*keys, strict=True))
    tolerance = "" if spec.tolerance_us is None else f", at most {format_duration(spec.tolerance_us)} away"
    side = {"backward": "last row before", "forward": "first row after", "nearest": "row nearest to"}[spec.direction]
    return f"finds the {side} each left row{f' on {on}' if on else ''}{tolerance}"
