"""A bounded buffer for several joins over several attributes of the same streams (sections 4 and 5.3.4).

The credit of a row is the sum over all its joins, and a row of one stream or join can evict a row of another.

Preconditions: rows come sorted by (time, stream, content hash), in calls of any size; keys are 64-bit hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from braided.errors import OptionError, StateError
from braided.eviction.group_kernel import allocate, fill, kernel_of
from braided.eviction.policies.policy import Policy, Shape
from braided.eviction.policies.registry import POLICIES
from braided.eviction.records import NONE, Bytes, Ints, UInt64s
from braided.eviction.sections import Reader, Writer, require, seal, unseal

_MAGIC = b"BRDG"
_TOTALS = ("events", "pairs", "expired", "evicted", "refused", "too_large")


def buffer_bytes(policy: Policy, joins: int, capacity: int) -> int:
    """Return the bytes of a buffer for this number of joins, without the rows themselves."""
    return capacity * (110 + 110 * joins) + policy.group_bytes(capacity, joins)


class GroupEvents(NamedTuple):
    """Rows in order: for each row and join its key, and its role in the join: 0 left, 1 right, -1 none."""

    keys: UInt64s
    roles: Bytes
    times: Ints
    streams: Bytes
    contents: UInt64s
    rows: Ints


@dataclass(frozen=True)
class GroupWindow:
    """One join: lo <= right time - left time <= hi, and its two streams."""

    left: int
    right: int
    lo: int
    hi: int

    @property
    def ages(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The ages (soonest, latest) at which a stored row of the left, and of the right, matches."""
        return (self.lo, self.hi), (-self.hi, -self.lo)


def retention_of(joins: Sequence[GroupWindow], streams: int) -> list[int]:
    """Return how long a row of each stream can match later rows in some join; NONE if it is in no join.

    >>> retention_of([GroupWindow(0, 1, -5, 3)], 2)
    [3, 5]
    """
    retention = [NONE] * streams
    for join in joins:
        for role, stream in enumerate((join.left, join.right)):
            retention[stream] = max(retention[stream], join.ages[role][1])
    return retention


class GroupBuffer:
    """Stores at most `capacity` rows of all streams for all joins.

    policy : a policy that supports several joins (`Policy.group_hooks`). AGE has no meaning for several joins (section
        5.3.4). Nothing is tuned.

    Cost: per row of capacity 110 bytes and 110 for each join; it does not grow with the stream. When saved, 17 bytes
    and 9 for each join. One step per pair.
    """

    def __init__(self, capacity: int, policy: Policy, *, streams: int, joins: Sequence[GroupWindow]) -> None:
        hooks = policy.group_hooks
        if hooks is None:
            *others, last = (kind.in_groups for kind in POLICIES.values() if kind.in_groups)
            raise OptionError(f"evict={policy!r}: not supported for several joins; use {', '.join(others)} or {last}")
        self.capacity, self.policy = capacity, policy
        self.state = allocate(capacity, streams, len(joins))
        self._step = kernel_of(hooks)
        retention = retention_of(joins, streams)
        self.state.streams["retention"] = retention
        for number, join in enumerate(joins):
            self.state.joins["soonest"][number], self.state.joins["latest"][number] = np.array(join.ages).T
        self.learned = policy.learned(Shape(capacity, streams, 1, tuple(retention), len(joins)))

    @property
    def rows(self) -> int:
        return int(self.state.totals["rows"][0])

    @property
    def counts(self) -> dict[str, int]:
        """Totals since the start: events, pairs, and expired, evicted, refused and too large rows."""
        return {name: int(self.state.totals[name][0]) for name in _TOTALS}

    @property
    def ids(self) -> Ints:
        """The ids of the stored rows, oldest first."""
        ids: Ints = self.state.rows["row"][self._slots()]
        return ids

    def step(
        self, events: GroupEvents, start: int, *, pair_event: Ints, pair_join: Bytes, pair_row: Ints
    ) -> tuple[int, int]:
        """Process rows from `start`; return the first unfinished row and the number of written pairs.

        If the outputs are full, it stops early; call it again from there.
        """
        return self._step(self.state, self.learned, *events, start, pair_event, pair_join, pair_row)

    def set_facts(self, sizes: Ints, most_bytes: int) -> None:
        """Set the bytes of each row by its id, of the stored rows and of the next ones.

        Stored rows have at most `most_bytes` together; a larger row is counted, but not stored.
        """
        self.state = self.state._replace(sizes=sizes)
        self.state.settings["room_bytes"] = most_bytes
        self.state.totals["bytes"] = sizes[self.ids].sum()

    def _slots(self) -> Ints:
        slots = np.flatnonzero(self.state.rows["entry"] >= 0)
        ordered: Ints = slots[np.argsort(self.state.rows["seq"][slots])]
        return ordered

    def to_bytes(self) -> bytes:
        """Return the buffer as bytes; the last call must have finished its rows."""
        slots = self._slots()
        rows = self.state.rows[slots]
        write = Writer()
        write.streams(rows["stream"], len(self.state.streams))
        write.rising(rows["time"])
        for join in range(len(self.state.joins)):
            write.ints(self.state.keys[slots, join])
            write.ints(self.state.roles[slots, join].astype(np.int64))
        write.reals(rows["credit"].copy())
        header = {
            "policy": self.policy.options,
            "learned": self.policy.save(self.learned, write),
            "totals": self.counts,
            "rows": len(slots),
            "sections": write.facts,
        }
        return seal(_MAGIC, header, write.parts)

    def restore(self, data: bytes, ids: Callable[[Bytes], Ints]) -> None:
        """Fill an empty buffer from the bytes of one with the same options.

        ids : a function that returns the ids of the stored rows, oldest first, from the stream of each.
        """
        header, at = unseal(_MAGIC, data, "buffer of several joins")
        if header["policy"] != self.policy.options:
            raise StateError(f"policy: the buffer was saved with {header['policy']}; use the same policy")
        n = header["rows"]
        read = Reader(header["sections"], data, at)
        streams, times = read.streams(n, len(self.state.streams)), read.rising(np.int64)
        keys, roles = np.empty((n, len(self.state.joins)), np.uint64), np.empty((n, len(self.state.joins)), np.int8)
        for join in range(len(self.state.joins)):
            keys[:, join], roles[:, join] = read.ints(np.uint64), read.ints(np.int64)
        credits = read.reals()
        self.learned = self.policy.load(self.learned, header["learned"], read)
        read.end()
        require(n == len(times) == len(credits) <= self.capacity, "its rows")
        for name in _TOTALS:
            self.state.totals[name] = header["totals"][name]
        fill(self.state, keys, roles, times, streams, ids(streams), credits)
