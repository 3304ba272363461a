"""Building a join with the last rows of each key: names and types found, the lateness resolved."""

from __future__ import annotations

from dataclasses import fields

from braided.errors import OptionError
from braided.expressions.compile import Predicate
from braided.operators.column_names import find_names
from braided.operators.join.build import origin_shift, window_join
from braided.operators.join.spec import JoinSpec
from braided.operators.physical import InputColumn, Plan, watermark_after
from braided.operators.rows_join.rows_join import RowsJoin
from braided.operators.stream import Stream, TimeMarks
from braided.time.clocks import Window
from braided.time.resolve import are_fixed, least, resolve_idle, resolve_rules


def build_rows_join(spec: JoinSpec, streams: tuple[Stream, ...], predicate: Predicate | None, why: str) -> Plan:
    """Return the plan of a join with ``rows=``. `why`: the reason if only the runtime can evaluate the predicate."""
    if spec.where is not None and predicate is None:
        raise OptionError(
            f"where={spec.where!r}: with rows= the join must evaluate it, but only Spark can evaluate this ({why}); "
            "filter the result instead, which gives the same rows"
        )
    names = find_names(streams, spec.on, spec.time)
    known = [stream.marks_of(time) for stream, time in zip(streams, names.times, strict=True)]
    # Every row waits for the lateness of both streams: if it is learned it has no floor, as in `order`.
    resolved = resolve_rules(spec.lateness, 2, floor=0)
    rules = tuple(marks.waiting_lateness(rule) for marks, rule in zip(known, resolved, strict=True))
    window = Window(*spec.bounds, tuple(map(least, rules)))
    join = window_join(names, streams, window, spec.suffixes, rules=rules, idle=resolve_idle(spec.idle))
    values = {field.name: getattr(join, field.name) for field in fields(join)}
    last = spec.last_rows
    assert last is not None
    operator = RowsJoin(
        **{**values, "where": predicate, "where_text": spec.where},
        last=last,
        any_time=spec.any_time,
        forget=spec.forget_us,
    )
    # Rows are returned in order: the later row of a result is never before one that was returned.
    ages = (0, 0) if spec.any_time else (max(0, window.hi), max(0, -window.lo))
    watermark_delays = tuple(
        max(marks.watermark_delay, least(rule)) + max(ages) for marks, rule in zip(known, rules, strict=True)
    )
    columns = []
    for column in operator.columns:
        side, marks = column.side, None
        # Without a window of time the earlier row may have any age, so its times have no marks.
        if not spec.any_time:
            watermark = watermark_after(known[side], watermark_delays[side])
            shift = origin_shift(known, side, window.apart(side))
            after = TimeMarks(ages[side], watermark_delays[side], watermark, are_fixed(rules), shift)
            marks = streams[side].marks_after(column.source, names.times[side], after)
        columns.append(InputColumn(column.name, side, column.source, marks))
    return Plan(
        spec,
        streams,
        operator,
        names.times,
        watermark_delays,
        tuple(columns),
        fixed="the last rows of a key must be on one worker (rows=)",
        waits=True,
        description=operator.describe(),
    )
