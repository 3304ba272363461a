"""Reading the options of a group of joins: what the user wrote becomes a `JoinGroup`, or an error that helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import pyarrow as pa

from braided.buffers.group_buffer import GroupBuffer, buffer_bytes
from braided.buffers.recall.joins import sample_bytes
from braided.buffers.shed import check_shed
from braided.durations import Duration
from braided.errors import BraidedError
from braided.joins.bounded.join_group import JOIN, JoinGroup, Member
from braided.specs.budget import resolve_evict, resolve_memory
from braided.specs.join_options import On, build_join, find_column, resolve_bounds, resolve_names
from braided.time.clocks import Window
from braided.time.lateness import Lateness
from braided.time.resolve import least, resolve_rules

MOST_STREAMS = 8
MOST_JOINS = 16
T = TypeVar("T")


@dataclass(frozen=True)
class Join:
    """One join of a `braided.join_group`: its name, two streams by name, and what they are joined on.

    on, within, between, suffixes : as in `braided.join`; a key is needed.

    >>> Join("by_phone", left="calls", right="cells", on="phone", within="10 seconds").between is None
    True
    """

    name: str
    _: KW_ONLY
    left: str
    right: str
    on: On
    within: Duration | tuple[Duration, Duration] | None = None
    between: tuple[Duration, Duration] | None = None
    suffixes: tuple[str, str] = ("", "_right")


@dataclass(frozen=True)
class GroupNames:
    """The streams of a group in order, with the time column of each."""

    streams: tuple[str, ...]
    times: tuple[str, ...]


def check_group(joins: Any, streams: Any) -> None:
    """Refuse what is not a group of joins over named streams, all of which are used."""
    if not isinstance(streams, Mapping) or not all(isinstance(name, str) for name in streams):
        raise BraidedError("streams: give a dict from a name to its stream, {'calls': ..., 'cells': ...}")
    if not isinstance(joins, (list, tuple)) or not all(isinstance(join, Join) for join in joins):
        raise BraidedError("joins: give a list of braided.Join, [braided.Join('by_phone', left='calls', ...)]")
    if not 1 <= len(joins) <= MOST_JOINS or not 2 <= len(streams) <= MOST_STREAMS:
        raise BraidedError(
            f"{len(joins)} joins over {len(streams)} streams given; give 1 to {MOST_JOINS} over 2 to {MOST_STREAMS}"
        )
    folded = [str(join.name).lower() for join in joins]
    if JOIN in folded or "" in folded or len(set(folded)) < len(folded):
        raise BraidedError(f"joins: the names {', '.join(folded)} must differ, and none may be empty or {JOIN!r}")
    for join in joins:
        for side, stream in (("left", join.left), ("right", join.right)):
            if stream not in streams:
                raise BraidedError(
                    f"Join({join.name!r}): {side}={stream!r} is no stream; there are {', '.join(streams)}"
                )
        if join.left == join.right:
            raise BraidedError(f"Join({join.name!r}): a stream with itself; give it under two names")
        if join.on is None:
            raise BraidedError(f"Join({join.name!r}): on=None: a join without keys cannot have a budget")
    unused = set(streams) - {stream for join in joins for stream in (join.left, join.right)}
    if unused:
        raise BraidedError(f"streams: no join uses {min(unused)!r}; leave it out")


def centre_first(joins: Sequence[Join], streams: Mapping[str, T]) -> dict[str, T]:
    """Return the streams with one that is in every join, if there is one, before the others."""
    centres = [name for name in streams if all(name in (join.left, join.right) for join in joins)][:1]
    return {name: streams[name] for name in (*centres, *(name for name in streams if name not in centres))}


def resolve_group_names(time: str | Mapping[str, str], columns: Mapping[str, Sequence[str]]) -> GroupNames:
    """Find the time column of each stream."""
    given = each_stream(time, "time", columns)
    times = tuple(
        find_column(given[name], names, f"time={given[name]!r}: streams[{name!r}] has no such column")
        for name, names in columns.items()
    )
    return GroupNames(tuple(columns), times)


def resolve_group_lateness(lateness: Any, streams: Sequence[str]) -> tuple[int | Lateness | None, ...]:
    """Return each stream's lateness in microseconds or how it is learned, None where the user left it open."""
    if lateness is None or isinstance(lateness, Lateness):
        return resolve_rules(lateness, len(streams))
    given = each_stream(lateness, "lateness", streams)
    return resolve_rules([given[name] for name in streams], len(streams))


def each_stream(value: Any, option: str, streams: Any) -> Mapping[str, Any]:
    """Return a value for each stream."""
    if isinstance(value, Duration):
        return dict.fromkeys(streams, value)
    if isinstance(value, Mapping) and set(value) == set(streams):
        return value
    raise BraidedError(f"{option}={value!r}: write one, or a dict with one for each of {', '.join(streams)}")


def build_group(
    joins: Sequence[Join],
    names: GroupNames,
    schemas: Sequence[pa.Schema],
    lateness: Sequence[int | Lateness],
    memory: Any,
    evict: Any,
    *,
    shed: Any = None,
    adaptive: bool = False,
) -> JoinGroup:
    """Assemble the operator."""
    members = []
    for wanted in joins:
        at = names.streams.index(wanted.left), names.streams.index(wanted.right)
        pair = schemas[at[0]], schemas[at[1]]
        found = resolve_names(wanted.on, (names.times[at[0]], names.times[at[1]]), pair[0].names, pair[1].names)
        window = Window(
            *resolve_bounds(wanted.within, wanted.between), (least(lateness[at[0]]), least(lateness[at[1]]))
        )
        members.append(Member(wanted.name, at, build_join(found, pair, window, wanted.suffixes, None, None)))
    if memory is None:
        raise BraidedError(
            "memory=None: write a number of rows, or '256 MB'; joins without a budget are as well written one by one"
        )
    if evict == "auto":
        raise BraidedError("evict='auto': tunes single joins; write 'gdj', 'prob', 'fifo' or 'random'")
    policy = resolve_evict(evict)
    GroupBuffer(1, policy, streams=len(schemas), joins=[])  # a policy that does not fit is told before anything runs
    room = resolve_memory(
        memory,
        policy,
        schemas,
        row_bytes=0,
        beside=lambda rows: buffer_bytes(policy, len(joins), rows) + sample_bytes(rows, len(joins)),
    )
    group = JoinGroup(
        names.streams,
        tuple(schemas),
        names.times,
        tuple(lateness),
        tuple(members),
        room.rows,
        policy,
        check_shed(shed, bounded=True),
        room.bytes,
        adaptive,
    )
    if adaptive:
        _check_adaptive(group)
    return group


def _check_adaptive(group: JoinGroup) -> None:
    """Refuse groups of which rows cannot be laid over workers in different ways."""
    if not group.one_key:
        raise BraidedError(
            "control=: a stream has different keys in different joins, so one worker does all the work; leave it out"
        )
    if not all(0 in member.streams for member in group.members):
        raise BraidedError("control=: no stream is in every join, so a hot key cannot be split; leave it out")
