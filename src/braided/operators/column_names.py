"""Finding the columns that a spec names in each of its streams, and naming those of the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braided.errors import OptionError
from braided.operators.join.arrivals import OutputColumn
from braided.operators.stream import Stream


@dataclass(frozen=True)
class Names:
    """The key columns and the time column of each stream."""

    keys: tuple[tuple[str, ...], ...]
    times: tuple[str, ...]


def find_names(streams: Sequence[Stream], on: object, time: object) -> Names:
    """Find the key and time columns of each stream; no keys where `on` is None.

    >>> import pyarrow as pa
    >>> a, b = (pa.schema([(key, pa.int64()), ("t", pa.timestamp("us"))]) for key in "ab")
    >>> find_names([Stream("left", a), Stream("right", b)], [("a", "b")], "T").keys
    (('a',), ('b',))
    """
    count = len(streams)
    for stream in streams:
        named: dict[str, str] = {}
        for name in stream.schema.names:
            folded = name if stream.case_sensitive else name.lower()
            if folded in named:
                if named[folded] == name:
                    raise OptionError(f"{stream.label}: more than one column is named {name!r}; rename one")
                raise OptionError(
                    f"{stream.label}: the columns {named[folded]!r} and {name!r} differ only in case; rename one"
                )
            named[folded] = name
    wanted = [] if on is None else [on] if isinstance(on, str) else on
    if not isinstance(wanted, list | tuple) or (not wanted and on is not None):
        tuples = "(left, right) pairs" if count == 2 else f"tuples of {count} names"
        raise OptionError(f"on={on!r}: write a column name, a list of names, or a list of {tuples}")
    each = [_each(key, "on", count) for key in wanted]
    keys = tuple(tuple(stream.key_column(key[at], "on") for key in each) for at, stream in enumerate(streams))
    if any(len(set(columns)) < len(columns) for columns in keys):
        raise OptionError(f"on={on!r}: names a column twice; name each once")
    times = tuple(stream.time_column(name) for stream, name in zip(streams, _each(time, "time", count), strict=True))
    check_zones(streams, times)
    return Names(keys, times)


def check_zones(streams: Sequence[Stream], times: Sequence[str]) -> None:
    """Refuse time columns of which some have a time zone and others none."""
    first = streams[0].schema.field(times[0]).type
    for stream, time in zip(streams, times, strict=True):
        if (stream.schema.field(time).type.tz is None) != (first.tz is None):
            raise OptionError(
                f"time={(times[0], time)!r}: one has a time zone and the other has none (TIMESTAMP and TIMESTAMP_NTZ); "
                "cast one side"
            )


def _each(value: object, option: str, count: int) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) * count
    if isinstance(value, list | tuple) and len(value) == count and all(isinstance(part, str) for part in value):
        return tuple(value)
    tuples = "a pair of names (left, right)" if count == 2 else f"one for each of {count} streams"
    raise OptionError(f"{option}={value!r}: write a column name or {tuples}")


def result_columns(names: Names, streams: Sequence[Stream], suffixes: object) -> tuple[OutputColumn, ...]:
    """Name the result's columns: keys once, the others stream by stream; clashes get their stream's suffix."""
    count = len(streams)
    if (
        not isinstance(suffixes, list | tuple)
        or len(suffixes) != count
        or not all(isinstance(suffix, str) for suffix in suffixes)
    ):
        wanted = "a pair of strings, ('', '_right')" if count == 2 else f"one string for each of {count} streams"
        raise OptionError(f"suffixes={suffixes!r}: write {wanted}")
    sensitive = any(stream.case_sensitive for stream in streams)

    def folded(name: str) -> str:
        return name if sensitive else name.lower()

    others = [
        [name for name in stream.schema.names if name not in keys]
        for stream, keys in zip(streams, names.keys, strict=True)
    ]
    owned = [{folded(name) for name in stream} for stream in others]
    owned[0] |= {folded(name) for name in names.keys[0]}
    out = [OutputColumn(name, 0, name) for name in names.keys[0]]
    for side, stream_names in enumerate(others):
        for name in stream_names:
            clashes = any(folded(name) in owned[other] for other in range(count) if other != side)
            out.append(OutputColumn(name + suffixes[side] if clashes else name, side, name))
    final = [folded(column.name) for column in out]
    for column in out:
        if final.count(folded(column.name)) > 1:
            raise OptionError(
                f"suffixes={tuple(suffixes)!r}: the result would have two columns named {column.name!r}; "
                "choose other suffixes"
            )
    return tuple(out)
