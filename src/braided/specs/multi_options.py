"""Reading the options of a join of many streams: what the user wrote becomes a `MultiJoin`, or an error that helps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from braided.durations import Duration, parse_duration
from braided.errors import BraidedError
from braided.joins.arrivals import OutputColumn
from braided.joins.many.multijoin import MultiJoin
from braided.operator.contract import Operator
from braided.routing.keys import KeyHasher, common_key_type
from braided.specs.join_options import check_time_types, find_column
from braided.time.clocks import Span
from braided.time.lateness import Lateness

MOST_STREAMS = 8
MultiOn = str | Sequence[str | tuple[str, ...]]


@dataclass(frozen=True)
class MultiNames:
    """The columns that a join of many streams names, resolved against each."""

    keys: tuple[tuple[str, ...], ...]
    times: tuple[str, ...]


def check_streams(streams: Any) -> None:
    """Refuse what is not a list of 2 to 8 streams."""
    if not isinstance(streams, (list, tuple)):
        raise BraidedError(f"streams: give a list of streams, not a {type(streams).__name__}")
    if not 2 <= len(streams) <= MOST_STREAMS:
        raise BraidedError(f"streams: {len(streams)} given; give 2 to {MOST_STREAMS}")


def resolve_span(within: Duration) -> int:
    """Return the window in microseconds."""
    if not isinstance(within, Duration):
        raise BraidedError(f"within={within!r}: write one duration, such as '10 seconds'")
    span = parse_duration(within, "within")
    if span < 0:
        raise BraidedError(f"within={within!r}: negative; write '0 seconds' or more")
    return span


def resolve_multi_names(on: MultiOn, time: str | Sequence[str], columns: Sequence[Sequence[str]]) -> MultiNames:
    """Find the key and time columns of each stream.

    >>> resolve_multi_names([("a", "b", "b")], "t", [["a", "t"], ["b", "t"], ["b", "t"]]).keys
    (('a',), ('b',), ('b',))
    """
    count = len(columns)
    for number, names in enumerate(columns):
        repeated = sorted({name for name in names if list(names).count(name) > 1})
        if repeated:
            raise BraidedError(f"streams[{number}]: more than one column is named {repeated[0]!r}; rename one")
    wanted = [on] if isinstance(on, str) else on
    if not isinstance(wanted, (list, tuple)) or not wanted:
        raise BraidedError(f"on={on!r}: write a column name, a list of names, or a list of tuples of {count} names")
    keys = [_each(key, "on", count) for key in wanted]
    found = tuple(
        tuple(_find(key[number], names, "on", number) for key in keys) for number, names in enumerate(columns)
    )
    if any(len(set(names)) < len(names) for names in found):
        raise BraidedError(f"on={on!r}: names a column twice; name each once")
    times = tuple(
        _find(name, names, "time", number)
        for number, (name, names) in enumerate(zip(_each(time, "time", count), columns, strict=True))
    )
    return MultiNames(found, times)


def _each(value: object, option: str, count: int) -> tuple[str, ...]:
    """Return a name for each stream."""
    if isinstance(value, str):
        return (value,) * count
    if isinstance(value, (tuple, list)) and len(value) == count and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise BraidedError(f"{option}={value!r}: write a column name, or one for each of {count} streams")


def _find(name: str, columns: Sequence[str], option: str, number: int) -> str:
    return find_column(name, columns, f"{option}={name!r}: streams[{number}] has no such column")


def resolve_multi_columns(
    names: MultiNames, columns: Sequence[Sequence[str]], suffixes: Sequence[str] | None
) -> tuple[OutputColumn, ...]:
    """Name the result's columns: keys once, the others stream by stream; clashes get their stream's suffix."""
    count = len(columns)
    chosen = ("", *(f"_{number}" for number in range(2, count + 1))) if suffixes is None else suffixes
    if (
        not isinstance(chosen, (tuple, list))
        or len(chosen) != count
        or not all(isinstance(suffix, str) for suffix in chosen)
    ):
        raise BraidedError(f"suffixes={suffixes!r}: write one string for each of {count} streams")
    others = [[name for name in stream if name not in keys] for stream, keys in zip(columns, names.keys, strict=True)]
    owned = [{name.lower() for name in stream} for stream in others]
    owned[0] |= {name.lower() for name in names.keys[0]}
    out = [OutputColumn(name, 0, name) for name in names.keys[0]]
    for side, stream in enumerate(others):
        for name in stream:
            clashes = any(name.lower() in owned[other] for other in range(count) if other != side)
            out.append(OutputColumn(name + chosen[side] if clashes else name, side, name))
    final = [column.name.lower() for column in out]
    for column in out:
        if final.count(column.name.lower()) > 1:
            raise BraidedError(
                f"suffixes={tuple(chosen)!r}: the result would have two columns named {column.name!r}; "
                "choose other suffixes"
            )
    return tuple(out)


def key_types(names: MultiNames, schemas: Sequence[pa.Schema]) -> tuple[pa.DataType, ...]:
    """Return the type in which each key column is compared over all streams."""
    kinds = []
    for key in zip(*names.keys, strict=True):
        kind = schemas[0].field(key[0]).type
        for schema, name in zip(schemas[1:], key[1:], strict=True):
            kind = common_key_type(kind, schema.field(name).type, (key[0], name))
        kinds.append(kind)
    return tuple(kinds)


def bound_multijoin(join: MultiJoin, memory: Any, evict: Any, share: str, shed: Any = None) -> Operator:
    """Return the join with a budget, of a share of its rows, or as it is."""
    if memory is None and shed is None:
        return join
    from braided.buffers.recall.keys import sample_bytes
    from braided.buffers.shed import check_shed
    from braided.joins.bounded.combinations import BoundedMultiJoin
    from braided.joins.shedding import SheddingJoin
    from braided.specs.budget import buffer_bytes, resolve_evict, resolve_memory

    dropped = check_shed(shed, bounded=memory is not None)
    if memory is None:
        assert isinstance(dropped, float)
        return SheddingJoin(join, dropped)
    if share not in ("unified", "proportional"):
        raise BraidedError(f"share={share!r}: write 'unified' or 'proportional'")
    policy, count = resolve_evict(evict), len(join.inputs)
    room = resolve_memory(
        memory,
        policy,
        join.inputs,
        row_bytes=buffer_bytes(policy, count),
        beside=lambda rows: sample_bytes(rows, count),
    )
    if share == "proportional" and room.rows < count:
        raise BraidedError(f"memory={memory!r}: too small to share among {count} streams")
    return BoundedMultiJoin(join, room.rows, policy, share, dropped, room.bytes)  # type: ignore[arg-type]


def build_multijoin(
    names: MultiNames,
    schemas: Sequence[pa.Schema],
    window: Span,
    suffixes: Sequence[str] | None,
    learned: tuple[Lateness | None, ...] | None = None,
    *,
    adaptive: bool = False,
) -> MultiJoin:
    """Assemble the operator."""
    for schema, time in zip(schemas[1:], names.times[1:], strict=True):
        check_time_types((names.times[0], time), schemas[0], schema)
    return MultiJoin(
        inputs=tuple(schemas),
        keys=names.keys,
        times=names.times,
        window=window,
        hasher=KeyHasher(key_types(names, schemas)),
        columns=resolve_multi_columns(names, [schema.names for schema in schemas], suffixes),
        learned=learned or (None,) * len(schemas),
        adaptive=adaptive,
    )
