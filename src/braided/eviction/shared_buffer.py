"""A bounded buffer that several joins share by their average credits (section 4.3): how it is made, saved and asked.

Preconditions: as of `braided.eviction.group_buffer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from braided.errors import OptionError, StateError
from braided.eviction.group_buffer import GroupEvents, GroupWindow
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.policy import Policy, Shape
from braided.eviction.records import NONE, Bytes, Ints
from braided.eviction.sections import Reader, Writer, require, seal, unseal
from braided.eviction.shared_kernel import allocate, fill, step

_MAGIC = b"BRDS"
_TOTALS = ("events", "pairs", "expired", "evicted", "refused", "too_large")


def shared_bytes(joins: int, capacity: int) -> int:
    """Return the bytes of a buffer that so many joins share, but for the rows themselves."""
    return capacity * (32 + 180 * joins)


def check_policy(policy: Policy) -> None:
    """Refuse a policy that has no credits to share by."""
    if not isinstance(policy, GDJ):
        raise OptionError(f"share='credits': evict={policy!r} has no credits; write evict='gdj' or share='unified'")
    if policy.group_hooks is None:
        raise OptionError(f"share='credits': evict={policy!r}; {GDJ.in_groups.removeprefix(repr(GDJ.name) + ' ')}")


class SharedBuffer:
    """Keep at most `capacity` rows for several joins, each of which has a share of them by its average credit.

    The interface is that of `GroupBuffer`. policy : GDJ, with the rules that it has in a group; an ``initial``
    percentile is one of the credits of the row's join.

    Cost: per row of capacity 32 bytes and 180 for each join; 17 bytes and 18 for each join when saved. One step per
    pair, and every `refresh` events (an 8th of the capacity) one per row and join.
    """

    def __init__(self, capacity: int, policy: Policy, *, streams: int, joins: Sequence[GroupWindow]) -> None:
        check_policy(policy)
        self.capacity, self.policy, self._streams = capacity, policy, streams
        self.state = allocate(capacity, len(joins))
        for number, join in enumerate(joins):
            self.state.joins["soonest"][number], self.state.joins["latest"][number] = np.array(join.ages).T
        self.learned = policy.learned(Shape(capacity, streams, len(joins), (), len(joins)))
        self._room = np.zeros(len(joins), np.int8), np.zeros(len(joins), np.float64)

    @property
    def rows(self) -> int:
        return int(self.state.totals["rows"][0])

    @property
    def counts(self) -> dict[str, int]:
        """Totals since the start: events, pairs, and rows expired, evicted, refused and too large."""
        return {name: int(self.state.totals[name][0]) for name in _TOTALS}

    @property
    def kept(self) -> list[int]:
        """How many rows each join keeps; a row that several keep counts in each."""
        counts: list[int] = self.state.join_totals["rows"][:, 0].tolist()
        return counts

    @property
    def shares(self) -> list[float]:
        """The share of the memory that each join has by its average credit, as last looked at."""
        shares: list[float] = self.state.shares.tolist()
        return shares

    @property
    def ids(self) -> Ints:
        """The ids of the stored rows, oldest first."""
        ids: Ints = self.state.rows["row"][self._slots()]
        return ids

    def step(
        self, events: GroupEvents, start: int, *, pair_event: Ints, pair_join: Bytes, pair_row: Ints
    ) -> tuple[int, int]:
        """Process rows from `start`; return the first row not finished and the pairs written.

        It stops early when the outputs are full, to be called again from there.
        """
        keys, roles, times, streams, _, rows = events
        outputs = pair_event, pair_join, pair_row
        return step(self.state, self.learned, keys, roles, times, streams, rows, start, *outputs, *self._room)

    def set_facts(self, sizes: Ints, most_bytes: int) -> None:
        """Set the bytes of each row by its id, as `GroupBuffer.set_facts` does."""
        self.state = self.state._replace(sizes=sizes)
        self.state.settings["room_bytes"] = most_bytes
        slots = self._slots()
        weights = sizes[self.state.rows["row"][slots]]
        self.state.totals["bytes"] = weights.sum()
        parts = weights * self.state.whole // self.state.rows["keepers"][slots]
        self.state.used[:] = ((self.state.roles[slots] >= 0) * parts[:, None]).sum(axis=0)

    def _slots(self) -> Ints:
        slots = np.flatnonzero(self.state.rows["keepers"] > 0)
        ordered: Ints = slots[np.argsort(self.state.rows["seq"][slots])]
        return ordered

    def to_bytes(self) -> bytes:
        """Return the buffer as bytes, between two calls that finished their rows."""
        state, slots = self.state, self._slots()
        write = Writer()
        write.streams(state.rows["stream"][slots], self._streams)
        write.rising(state.rows["time"][slots])
        for join in range(len(state.joins)):
            write.ints(state.roles[slots, join].astype(np.int64))
            mine = slots[state.roles[slots, join] >= 0]
            write.ints(state.keys[mine, join])
            write.reals(state.credits[mine, join])
            write.reals(state.started[mine, join])
        header = {
            "policy": self.policy.options,
            "learned": self.policy.save(self.learned, write),
            "shares": self.shares,
            "totals": self.counts,
            "rows": len(slots),
            "sections": write.facts,
        }
        return seal(_MAGIC, header, write.parts)

    def restore(self, data: bytes, ids: Callable[[Bytes], Ints]) -> None:
        """Fill an empty buffer with what was saved by one with the same options, as `GroupBuffer.restore` does."""
        header, at = unseal(_MAGIC, data, "buffer that joins share by credits")
        if header["policy"] != self.policy.options:
            raise StateError(f"policy: the buffer was saved with another one, {header['policy']}")
        n, joins = header["rows"], len(self.state.joins)
        read = Reader(header["sections"], data, at)
        streams, times = read.streams(n, self._streams), read.rising(np.int64)
        keys, roles = np.zeros((n, joins), np.uint64), np.full((n, joins), NONE, np.int8)
        credits, started = np.zeros((n, joins), np.float64), np.zeros((n, joins), np.float64)
        for join in range(joins):
            roles[:, join] = read.ints(np.int64)
            mine = roles[:, join] >= 0
            keys[mine, join] = read.ints(np.uint64)
            credits[mine, join], started[mine, join] = read.reals(), read.reals()
        self.learned = self.policy.load(self.learned, header["learned"], read)
        read.end()
        require(n == len(times) <= self.capacity and bool((roles >= 0).any(axis=1).all()), "its rows")
        require(len(header["shares"]) == joins, "its shares")
        self.state.shares[:] = header["shares"]
        for name in _TOTALS:
            self.state.totals[name] = header["totals"][name]
        fill(self.state, keys, roles, times, streams, ids(streams), credits, started)
