"""A join's budget: the user's options become a number of rows and a policy, or an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from braided.errors import OptionError
from braided.eviction.buffer import MOST_ROWS
from braided.eviction.policies.policy import Policy
from braided.eviction.policies.registry import POLICIES
from braided.eviction.recall.key_recall import sample_bytes
from braided.eviction.recall.pair_recall import GHOST_BYTES, most_ghosts
from braided.eviction.shed import check_shed
from braided.operators.bounded.combinations import BoundedMultiJoin
from braided.operators.bounded.pairs import BoundedJoin
from braided.operators.join.shedding import SheddingJoin
from braided.operators.join.sizes import ASSUMED, least_row_bytes
from braided.operators.join.window_join import WindowJoin
from braided.operators.multijoin.multijoin import MultiJoin

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_ROW_BYTES = 12  # the marks of a kept row's routing


def buffer_bytes(policy: Policy, streams: int = 2) -> int:
    """Return the bytes that a buffer of this number of streams needs per row of its capacity."""
    return policy.row_bytes + (streams - 2) * policy.stream_bytes


def _ghost_bytes(rows: int) -> int:
    return GHOST_BYTES * most_ghosts(rows)


class Room(NamedTuple):
    """What a worker may store: a number of rows and, if rows differ in size and the budget is in bytes, their bytes."""

    rows: int
    bytes: int | None = None


def resolve_memory(
    memory: Any,
    policy: Policy,
    schemas: Sequence[pa.Schema],
    *,
    row_bytes: int | None = None,
    beside: Callable[[int], int] = _ghost_bytes,
) -> Room:
    """Return what a worker may store.

    row_bytes : the bytes that a buffer needs for a kept row; default: that of a join of two. beside : the bytes of all
        else for a buffer of this many rows, such as the sample that recall is estimated from.

    If rows differ in size, there is room for credits and indexes of as many rows as fit when strings and lists have 32
    bytes. If they are longer, the bytes are the limit; if they are shorter, the number of rows is.

    >>> row, fifo = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us"))]), resolve_evict("fifo")
    >>> resolve_memory(20_000, fifo, (row, row)), resolve_memory("1 MB", fifo, (row, row))
    (Room(rows=20000, bytes=None), Room(rows=4059, bytes=None))
    """
    if isinstance(memory, int) and not isinstance(memory, bool):
        if memory < 1:
            raise OptionError(f"memory={memory!r}: no row fits; write a number of rows of 1 or more, or '256 MB'")
        return Room(_countable(memory, memory))
    match = _SIZE.fullmatch(memory) if isinstance(memory, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise OptionError(f"memory={memory!r}: write a number of rows, or a size with its unit, such as '256 MB'")
    least = [least_row_bytes(schema) for schema in schemas]
    overhead = _ROW_BYTES + (buffer_bytes(policy) if row_bytes is None else row_bytes)
    size = int(float(match[1]) * _UNITS[match[2].lower()])
    row = max(fixed + ASSUMED * varying for fixed, varying in least) + overhead
    rows = _rows_in(size, row, beside)
    if rows < 1:
        least_bytes = row + beside(1)
        raise OptionError(
            f"memory={memory!r}: less than one row, which takes {least_bytes} bytes with its credit and indexes; "
            "write more"
        )
    _countable(rows, memory)
    if not any(varying for _, varying in least):
        return Room(rows)
    return Room(rows, size - rows * overhead - beside(rows))


def _countable(rows: int, memory: Any) -> int:
    """Return the number of rows, if a buffer can count them."""
    if rows > MOST_ROWS:
        raise OptionError(
            f"memory={memory!r}: {rows} rows; a worker keeps at most {MOST_ROWS}; write less, or leave memory= out"
        )
    return rows


def check_shares(share: str, memory: Any, room: Room, streams: int) -> None:
    """Refuse a budget that leaves no row for some stream."""
    if share == "proportional" and room.rows < streams:
        raise OptionError(
            f"memory={memory!r}: too small to share among {streams} streams; write more, or share='unified'"
        )


def _rows_in(size: int, row: int, beside: Callable[[int], int]) -> int:
    """Return how many rows of `row` bytes fit, with what is stored beside them."""
    least, most = 0, size // row
    while least < most:
        rows = (least + most + 1) // 2
        if rows * row + beside(rows) > size:
            most = rows - 1
        else:
            least = rows
    return least


def limit(
    join: WindowJoin, memory: Any, evict: Any, share: str, shed: Any, *, adapts: bool = False
) -> BoundedJoin | SheddingJoin:
    """Return the join with a budget, with rows shed, or both; at least one of `memory` and `shed` is given.

    If it `adapts`, its routing may change while it runs.
    """
    dropped = check_shed(shed, bounded=memory is not None)
    if memory is None:
        assert isinstance(dropped, float)
        return SheddingJoin(join, dropped)
    policy = resolve_evict(evict)
    room = resolve_memory(memory, policy, join.inputs)
    check_shares(share, memory, room, 2)
    return BoundedJoin(join, room.rows, policy, share, dropped, room.bytes, adapts)  # type: ignore[arg-type]


def limit_multijoin(join: MultiJoin, memory: Any, evict: Any, share: str, shed: Any) -> BoundedMultiJoin | SheddingJoin:
    """Return the join of many streams with a budget, with rows shed, or both."""
    dropped = check_shed(shed, bounded=memory is not None)
    if memory is None:
        assert isinstance(dropped, float)
        return SheddingJoin(join, dropped)
    policy, count = resolve_evict(evict), len(join.inputs)
    room = resolve_memory(
        memory,
        policy,
        join.inputs,
        row_bytes=buffer_bytes(policy, count),
        beside=lambda rows: sample_bytes(rows, count),
    )
    check_shares(share, memory, room, count)
    return BoundedMultiJoin(join, room.rows, policy, share, dropped, room.bytes)  # type: ignore[arg-type]


def resolve_evict(evict: Any) -> Policy:
    """Return the policy with this name, or the given policy."""
    if isinstance(evict, Policy):
        return evict
    if not isinstance(evict, str) or evict not in POLICIES:
        raise OptionError(f"evict={evict!r}: write one of {', '.join(map(repr, POLICIES))}, or a policy")
    return POLICIES[evict]()
