"""A bounded buffer that serves several joins over several attributes of the same streams (sections 4 and 5.3.4).

The credit of a row sums over all joins it serves, and a row of one stream or join can displace one of another.

Preconditions: rows come sorted by (time, stream, content hash), in calls of any size; keys are 64-bit hashes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np

from braided.buffers import group_kernel as kernel
from braided.buffers.packed import pack, unpack
from braided.buffers.policies.policy import Policy
from braided.buffers.records import (
    AGE,
    CLAIRVOYANT,
    DECAY_NONE,
    GAIN_NONE,
    GAIN_ONE,
    GDJ,
    NONE,
    PROB,
    SKETCH_ROWS,
    Bytes,
    Ints,
    Words,
)
from braided.errors import BraidedError

_MAGIC = b"BRDG"
_PREFIX = struct.Struct("<4sIQ")
_WIDTH = 1024
_TOTALS = ("events", "pairs", "expired", "evicted", "refused", "too_large")


def buffer_bytes(policy: Policy, joins: int, capacity: int) -> int:
    """Return the bytes of a buffer of so many joins, but for the rows themselves; PROB also counts keys."""
    counts = 2 * SKETCH_ROWS * 8 * _width(capacity) if policy.plan().code == PROB else 0
    return capacity * (110 + 110 * joins) + counts * joins


def _width(capacity: int) -> int:
    return max(_WIDTH, 4 * capacity)


class GroupEvents(NamedTuple):
    """Rows in sequence: per row and join its key and its role there, 0 left, 1 right, -1 none."""

    keys: Words
    roles: Bytes
    times: Ints
    streams: Bytes
    contents: Words
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


class GroupBuffer:
    """Keep at most `capacity` rows of all streams for all joins.

    policy : `Gdj` with gain one or none and no decay, `Prob`, `Fifo` or `Random`. PROB counts by a sketch and is
        worth a row the occurrences of its keys in the other stream of each join; AGE has no meaning for several joins
        (section 5.3.4), and nothing is tuned while running.

    Cost: per row of capacity 110 bytes and 110 for each join, none of it growing with the stream; 17 bytes and 9 for
    each join when saved. One step per pair.
    """

    def __init__(self, capacity: int, policy: Policy, *, streams: int, joins: Sequence[GroupWindow]) -> None:
        plan = policy.plan()
        if plan.code in (AGE, CLAIRVOYANT) or plan.gain not in (GAIN_ONE, GAIN_NONE) or plan.decay != DECAY_NONE:
            raise BraidedError(
                f"evict={policy!r}: several joins take 'gdj' (gain 'one', decay 'none'), 'prob', 'fifo' or 'random'"
            )
        self.capacity, self.policy, self.plan = capacity, policy, plan
        width = _width(capacity) if plan.code == PROB else 0
        self.state = kernel.allocate(capacity, streams, len(joins), sketch_width=width)
        settings = self.state.settings
        settings["policy"], settings["seed"] = plan.code, plan.seed
        settings["rewards"] = plan.code == GDJ and plan.gain == GAIN_ONE
        settings["by_percentile"] = plan.percentile is not None
        settings["percentile"], settings["initial"] = plan.percentile or 0.0, plan.constant
        settings["refresh"] = plan.refresh or max(1, capacity // 8)
        self.state.streams["retention"] = NONE
        for number, join in enumerate(joins):
            for role, stream in enumerate((join.left, join.right)):
                soonest, latest = join.ages[role]
                self.state.joins["soonest"][number, role] = soonest
                self.state.joins["latest"][number, role] = latest
                kept = self.state.streams["retention"]
                kept[stream] = max(int(kept[stream]), latest)

    @property
    def rows(self) -> int:
        """Rows stored now."""
        return int(self.state.totals["rows"][0])

    @property
    def counts(self) -> dict[str, int]:
        """Totals since the start: events, pairs, and rows expired, evicted, refused and too large."""
        return {name: int(self.state.totals[name][0]) for name in _TOTALS}

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
        return kernel.step(self.state, *events, start, pair_event, pair_join, pair_row)

    def describe(self, sizes: Ints, most_bytes: int) -> None:
        """Tell the bytes of each row by its id, of the stored rows and of those to come.

        Stored rows have at most `most_bytes` together; a larger row is not stored, and counted.
        """
        self.state = self.state._replace(sizes=sizes)
        self.state.settings["room_bytes"] = most_bytes
        self.state.totals["bytes"] = sizes[self.ids].sum()

    def _slots(self) -> Ints:
        slots = self.state.heap["slot"][0, : self.rows]
        ordered: Ints = slots[np.argsort(self.state.rows["seq"][slots])]
        return ordered

    def to_bytes(self) -> bytes:
        """Return the buffer as bytes, between two calls that finished their rows."""
        slots = self._slots()
        rows = self.state.rows[slots]
        sections = [rows["time"], rows["stream"].astype(np.int8), rows["credit"], self.state.keys[slots]]
        facts, counts = pack(self.state.sketch.ravel())
        sections += [self.state.roles[slots], np.frombuffer(counts, np.uint8)]
        header = {
            "plan": asdict(self.plan),
            "initial": float(self.state.settings["initial"][0]),
            "totals": self.counts,
            "rows": len(slots),
            "counts": facts,
        }
        text = json.dumps(header, sort_keys=True).encode()
        body = text + b"".join(np.ascontiguousarray(section).tobytes() for section in sections)
        return _PREFIX.pack(_MAGIC, zlib.crc32(body), len(text)) + body

    def restore(self, data: bytes, ids: Callable[[Bytes], Ints]) -> None:
        """Fill an empty buffer with what was saved by one with the same options.

        ids : gives the stored rows, oldest first, their ids again, from the stream of each.
        """
        if (
            len(data) < _PREFIX.size
            or data[:4] != _MAGIC
            or zlib.crc32(data[_PREFIX.size :]) != _PREFIX.unpack_from(data)[1]
        ):
            raise BraidedError("buffer: the saved bytes are damaged")
        at = _PREFIX.size + _PREFIX.unpack_from(data)[2]
        header = json.loads(data[_PREFIX.size : at])
        if header["plan"] != json.loads(json.dumps(asdict(self.plan))):
            raise BraidedError(f"policy: the buffer was saved with another one, {header['plan']}")
        n, joins = header["rows"], len(self.state.joins)
        kinds = [
            (np.int64, n),
            (np.int8, n),
            (np.float64, n),
            (np.uint64, n * joins),
            (np.int8, n * joins),
        ]
        arrays = []
        for kind, size in kinds:
            arrays.append(np.frombuffer(data, kind, size, at).copy())
            at += arrays[-1].nbytes
        times, streams, credits, keys, roles = arrays
        sketch, at = unpack(header["counts"], data, at, np.int64)
        for name in _TOTALS:
            self.state.totals[name] = header["totals"][name]
        self.state.settings["initial"] = header["initial"]
        self.state.sketch[:] = sketch.reshape(self.state.sketch.shape)
        keys, roles = keys.reshape(n, joins), roles.reshape(n, joins)
        kernel.fill(self.state, keys, roles, times, streams, ids(streams), credits)
