"""Bounds on times that no condition sets: a hint or `cap=` sets the largest distance of two times.

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
"""The options of a hint that are for bounds, and not for the join."""


@dataclass
class Caps:
    """The caps and the time columns from hints, by the alias of an input."""

    lengths: dict[str, int] = field(default_factory=dict)
    times: dict[str, str] = field(default_factory=dict)
    of_all: int | None = None
    """The largest distance of times in joins without a hint: `cap=`."""


def parse_cap(cap: Any) -> int | None:
    """Return `cap=` in microseconds."""
    if cap is None:
        return None
    length = parse_duration(cap, "cap")
    if length < 0:
        raise OptionError(f"cap={cap!r}: negative; write '0 seconds' or more")
    return length


def take_caps(hints: dict[str, list[str]], is_time: Callable[[str, str], bool], cap: int | None = None) -> Caps:
    """Return the caps and times in hints, and remove them from the hints. `is_time` checks the column of an alias."""
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
                    raise OptionError(f"{place}: {alias} has no such time column; name one of its timestamps")
                caps.times[alias] = value.lower()
                continue
            try:
                caps.lengths[alias] = parse_duration(value, "cap")
            except OptionError as error:
                raise OptionError(f"{place}: {error}") from error
            if caps.lengths[alias] < 0:
                raise OptionError(f"{place}: negative; write '0 seconds' or more")
    return caps


def capped(
    bounds: Sequence[tuple[exp.Expression, Bound]], alias: str, caps: Caps, is_marked: Callable[[exp.Column], bool]
) -> list[tuple[exp.Expression, Bound]]:
    """Return the missing bound of two times that have a bound on one side only, if there is a cap for it.

    Hints or watermarks decide which two times these are: columns with a watermark are marked. There is no other way to
    distinguish the time of a stream from another time such as `expires`.
    """
    if not bounds or two_sided(bounds, alias, is_marked) is not None:
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
                f"sql: {position(part)}: the cap may be for {_shown(one)} or for {_shown(column)}; name the time of "
                f"{column.table} in a hint: BRAIDED('{column.table}', 'time={one.name}'), or set a watermark on it"
            )
    hinted = (caps.lengths.get(name) for name in (alias, first.plus.table, first.minus.table))
    length = next((known for known in hinted if known is not None), caps.of_all)
    op = exp.GTE if first.op in (exp.LT, exp.LTE) else exp.LTE
    sign = -1 if op is exp.GTE else 1
    cap = exp.Interval(this=exp.Literal.string(str(length)), unit=exp.var("MICROSECONDS"))
    return [(part, Bound(first.plus, first.minus, op, ((sign, cap),), False, part, assumed=True))]


def check_caps(caps: Caps, steps: Sequence[tuple[str, Sequence[Bound]]]) -> list[str]:
    """Raise if no join needs a cap, because the user expects an effect; return notes about the caps that are used.

    A step is a stream that is joined with the streams before it, and the bounds of this join.
    """
    used = [(alias, each) for alias, bounds in steps for each in bounds if each.assumed]
    needed = {name for alias, each in used for name in (alias, each.plus.table, each.minus.table)}
    for alias in (*caps.lengths, *caps.times):
        if alias not in needed:
            raise OptionError(
                f"sql: the hint BRAIDED({alias!r}, 'cap=...'): no join of {alias} has a bound on one side only; omit "
                "the hint"
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
