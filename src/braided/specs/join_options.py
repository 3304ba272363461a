"""Reading a join's options: what the user wrote becomes a `WindowJoin`, or an error that says what to do.

No Spark here: both front ends, Spark and local, resolve their options through this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from braided.durations import Duration, format_duration, parse_duration
from braided.errors import BraidedError
from braided.joins.arrivals import OutputColumn
from braided.joins.window_join import WindowJoin
from braided.routing.keys import KeyHasher, common_key_type
from braided.time.clocks import Window
from braided.time.lateness import Lateness

if TYPE_CHECKING:
    from braided.joins.predicates.compile import Predicate

On = str | Sequence[str | tuple[str, str]] | None


@dataclass(frozen=True)
class JoinNames:
    """The columns a join names, resolved against both inputs."""

    keys: tuple[tuple[str, ...], tuple[str, ...]]
    times: tuple[str, str]


def resolve_bounds(
    within: Duration | tuple[Duration, Duration] | None, between: tuple[Duration, Duration] | None
) -> tuple[int, int]:
    """Return (lo, hi) in microseconds: lo <= r.t - l.t <= hi.

    >>> resolve_bounds("10 seconds", None)
    (-10000000, 10000000)
    >>> resolve_bounds(("5 seconds", "1 second"), None)
    (-1000000, 5000000)
    """
    if (within is None) == (between is None):
        raise BraidedError("give within= or between=, exactly one of them; for example within='10 seconds'")
    if within is not None:
        if isinstance(within, (tuple, list)):
            if len(within) != 2:
                raise BraidedError(f"within={within!r}: write one duration or a pair (left, right)")
            left, right = (parse_duration(part, "within") for part in within)
        else:
            left = right = parse_duration(within, "within")
        if left < 0 or right < 0:
            raise BraidedError(f"within={within!r}: negative; use between= for bounds on one side of zero")
        return -right, left
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise BraidedError(f"between={between!r}: write a pair, ('5 seconds', '10 seconds')")
    lo, hi = (parse_duration(part, "between") for part in between)
    if lo > hi:
        raise BraidedError(
            f"between={between!r}: the lower bound {format_duration(lo)} is above the upper bound "
            f"{format_duration(hi)}; swap them"
        )
    return lo, hi


def resolve_names(on: On, time: str | tuple[str, str], left: Sequence[str], right: Sequence[str]) -> JoinNames:
    """Find the key and time columns on both sides."""
    for side, columns in (("left", left), ("right", right)):
        repeated = sorted({name for name in columns if list(columns).count(name) > 1})
        if repeated:
            raise BraidedError(f"{side}: more than one column is named {repeated[0]!r}; rename one")
    pairs: list[tuple[str, str]]
    if on is None:
        pairs = []
    elif isinstance(on, str):
        pairs = [(on, on)]
    elif isinstance(on, Sequence) and on:
        pairs = [(key, key) if isinstance(key, str) else _pair(key, "on") for key in on]
    else:
        raise BraidedError(f"on={on!r}: write a column name, a list of names, or a list of (left, right) pairs")
    keys = (
        tuple(_column(a, left, "on", "left") for a, _ in pairs),
        tuple(_column(b, right, "on", "right") for _, b in pairs),
    )
    if len(set(keys[0])) < len(keys[0]) or len(set(keys[1])) < len(keys[1]):
        raise BraidedError(f"on={on!r}: names a column twice; name each once")
    both = (time, time) if isinstance(time, str) else _pair(time, "time")
    times = (_column(both[0], left, "time", "left"), _column(both[1], right, "time", "right"))
    return JoinNames(keys, times)


def _pair(value: object, option: str) -> tuple[str, str]:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return value[0], value[1]
    raise BraidedError(f"{option}={value!r}: write a column name or a pair of names (left, right)")


def _column(name: object, columns: Sequence[str], option: str, side: str) -> str:
    return find_column(name, columns, f"{option}={name!r}: the {side} input has no such column")


def find_column(name: object, columns: Sequence[str], missing: str) -> str:
    """Find a column as Spark does: exactly, or else without regard to case."""
    if name in columns:
        return str(name)
    folded = [column for column in columns if column.lower() == str(name).lower()]
    if len(folded) == 1:
        return folded[0]
    raise BraidedError(f"{missing}; it has {', '.join(columns)}")


def resolve_columns(
    names: JoinNames, left: Sequence[str], right: Sequence[str], suffixes: tuple[str, str]
) -> tuple[OutputColumn, ...]:
    """Name the result's columns: keys once, the other left ones, the other right ones; clashes get a suffix."""
    if (
        not isinstance(suffixes, (tuple, list))
        or len(suffixes) != 2
        or not all(isinstance(suffix, str) for suffix in suffixes)
    ):
        raise BraidedError(f"suffixes={suffixes!r}: write a pair of strings, ('', '_right')")
    lefts = [name for name in left if name not in names.keys[0]]
    rights = [name for name in right if name not in names.keys[1]]
    keys = [OutputColumn(name, 0, name) for name in names.keys[0]]
    taken_by_left = {name.lower() for name in (*names.keys[0], *lefts)}
    taken_by_right = {name.lower() for name in rights}
    out = keys
    out += [OutputColumn(name + (suffixes[0] if name.lower() in taken_by_right else ""), 0, name) for name in lefts]
    out += [OutputColumn(name + (suffixes[1] if name.lower() in taken_by_left else ""), 1, name) for name in rights]
    final = [column.name.lower() for column in out]
    for column in out:
        if final.count(column.name.lower()) > 1:
            raise BraidedError(
                f"suffixes={tuple(suffixes)!r}: the result would have two columns named {column.name!r}; "
                "choose other suffixes"
            )
    return tuple(out)


def check_time_types(times: tuple[str, str], left: pa.Schema, right: pa.Schema) -> None:
    """Refuse time columns that are no timestamps, or of which one has a time zone and the other none."""
    kinds = (left.field(times[0]).type, right.field(times[1]).type)
    for name, kind in zip(times, kinds, strict=True):
        if not pa.types.is_timestamp(kind) or kind.unit != "us":
            raise BraidedError(f"time={name!r}: has type {kind}, not a timestamp in microseconds; cast it")
    if (kinds[0].tz is None) != (kinds[1].tz is None):
        raise BraidedError(
            f"time={times!r}: one has a time zone and the other has none (TIMESTAMP and TIMESTAMP_NTZ); cast one side"
        )


def check_theta(on: On, where: str | None) -> None:
    """Refuse a join of everything with everything."""
    if on is None and where is None:
        raise BraidedError("on=None: a join without keys needs where=, such as where='l.price < r.price'")


def check_how(how: str) -> None:
    """Refuse joins other than inner."""
    if how != "inner":
        raise BraidedError(f"how={how!r}: only 'inner' is supported for now")


def build_join(
    names: JoinNames,
    schemas: tuple[pa.Schema, pa.Schema],
    window: Window,
    suffixes: tuple[str, str],
    where: Predicate | None,
    where_text: str | None,
    learned: tuple[Lateness | None, ...] = (None, None),
    idle: int | None = None,
) -> WindowJoin:
    """Assemble the operator."""
    check_time_types(names.times, *schemas)
    kinds = tuple(
        common_key_type(schemas[0].field(a).type, schemas[1].field(b).type, (a, b))
        for a, b in zip(*names.keys, strict=True)
    )
    theta = None
    if where is not None and not names.keys[0]:
        from braided.joins.theta.search import ThetaPredicate

        theta = ThetaPredicate.of(where)
    return WindowJoin(
        inputs=schemas,
        keys=names.keys,
        times=names.times,
        window=window,
        hasher=KeyHasher(kinds),
        columns=resolve_columns(names, schemas[0].names, schemas[1].names, suffixes),
        where=where,
        where_text=where_text,
        theta=theta,
        learned=learned,
        idle=idle,
    )
