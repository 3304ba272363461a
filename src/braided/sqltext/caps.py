"""Bounds on times that no condition sets: a hint, or `cap=`, says how far apart two times are at most.

```
 /*+ BRAIDED('b', 'cap=1 hour'), BRAIDED('a', 'time=ts') */ ... b.ts BETWEEN a.ts AND a.expires
   ->  0 <= b.ts - a.ts <= 1 hour, and b.ts <= a.expires of each pair
```
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from braided.durations import format_duration, parse_duration
from braided.errors import OptionError
from braided.sqltext.conditions import Bound, position, ties, two_sided

OF_TIMES = ("cap", "time")
"""Options of a hint that are for bounds, not for the join."""


@dataclass
class Caps:
    """What hints say of times, by the alias of an input: how far apart they are at most, and which column it is."""

    lengths: dict[str, int] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    of_all: int | None = None
    """How far apart the times of joins without a hint are at most: `cap=`."""


def parse_cap(cap: Any) -> int | None:
    """Return `cap=` in microseconds."""
    if cap is None:
        return None
    length = parse_duration(cap, "cap")
    if length < 0:
        raise OptionError(f"cap={cap!r}: write a duration of nothing or more")
    return length


def take_caps(hints: dict[str, list[str]], is_time: Callable[[str, str], bool], cap: int | None = None) -> Caps:
    """Return what hints say of times, and take it out of them. `is_time` knows the columns of an alias."""
    caps = Caps(of_all=cap)
    for alias, texts in hints.items():
        for text in list(texts):
            name, _, value = (part.strip() for part in text.partition("="))
            if name.lower() not in OF_TIMES:
                continue
            texts.remove(text)
            place = f"sql: the hint BRAIDED({alias!r}, {text!r})"
            if name.lower() == "time":
                if not is_time(alias, value.lower()):
                    raise OptionError(f"{place}: {alias} has no such time")
                caps.times[alias] = value.lower()
                continue
            try:
                caps.lengths[alias] = parse_duration(value, "cap")
            except OptionError as error:
                raise OptionError(f"{place}: {error}") from error
            if caps.lengths[alias] < 0:
                raise OptionError(f"{place}: write a duration of nothing or more")
    return caps


def capped(
    bounds: Sequence[tuple[exp.Expression, Bound]], alias: str, caps: Caps, is_marked: Callable[[exp.Column], bool]
) -> list[tuple[exp.Expression, Bound]]:
    """Return a bound on the other side of two times that have one on one side only, if a hint gives it.

    Which two times is said by a hint, or by watermarks: their columns are marked. Nothing else tells a time from a
    time like `expires`.
    """
    if not bounds or two_sided(bounds, alias) is not None:
        return []
    concerned = [both for both in bounds if {alias, both[1].plus.table, both[1].minus.table} & set(caps.lengths)]
    if not concerned and caps.of_all is not None:
        concerned = list(bounds)
    if not concerned:
        return []
    named = [both for both in concerned if all(caps.times.get(c.table) in (None, c.name) for c in _both(both[1]))]
    marked = [both for both in named if all(is_marked(column) for column in _both(both[1]))]
    concerned = marked or named or concerned
    part, first = concerned[0]
    for _, other in concerned[1:]:
        if ties(other) != ties(first):
            column = next(c for c in _both(other) if c.sql() not in ties(first))
            one = next(c for c in _both(first) if c.table == column.table)
            raise OptionError(
                f"sql: {position(part)}: the cap may be on {_shown(one)} or on {_shown(column)}; say which is the time "
                f"of {column.table} in a hint: BRAIDED('{column.table}', 'time={one.name}'), or by a watermark on it"
            )
    hinted = (caps.lengths.get(name) for name in (alias, first.plus.table, first.minus.table))
    length = next((known for known in hinted if known is not None), caps.of_all)
    op = exp.GTE if first.op in (exp.LT, exp.LTE) else exp.LTE
    sign = -1 if op is exp.GTE else 1
    cap = exp.Interval(this=exp.Literal.string(str(length)), unit=exp.var("MICROSECONDS"))
    return [(part, Bound(first.plus, first.minus, op, ((sign, cap),), False, part, assumed=True))]


def check_caps(caps: Caps, steps: Sequence[tuple[str, Sequence[Bound]]]) -> list[str]:
    """Refuse a cap that no join needs, since whoever wrote it expects it to do something; return what to say of others.

    A step is a stream that is joined with those before it, and the bounds of that.
    """
    used = [(alias, each) for alias, bounds in steps for each in bounds if each.assumed]
    needed = {name for alias, each in used for name in (alias, each.plus.table, each.minus.table)}
    for alias in (*caps.lengths, *caps.times):
        if alias not in needed:
            raise OptionError(
                f"sql: the hint BRAIDED({alias!r}, 'cap=...'): no join of {alias} has a bound on one side only; leave "
                "it out"
            )
    return [
        f"by its {'hint' if caps.lengths else 'cap='}, {_shown(each.plus)} and {_shown(each.minus)} are at most "
        f"{format_duration(int(each.constants[0][1].this.this))} apart"
        for _, each in used
    ]


def _both(bound_: Bound) -> tuple[exp.Column, exp.Column]:
    return bound_.plus, bound_.minus


def _shown(column: exp.Column) -> str:
    return f"{column.table}.{column.name}"
