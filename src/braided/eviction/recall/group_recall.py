"""Estimate the recall of several joins with one budget: each has a sample of rows, and the sums are added."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np

from braided.errors import BraidedError
from braided.eviction.buffer import Events
from braided.eviction.group_buffer import GroupEvents, GroupWindow
from braided.eviction.recall.pair_recall import GHOST_BYTES, Recall, most_ghosts
from braided.eviction.records import Bytes, Ints

__all__ = ["GroupRecall", "sample_bytes"]

_PREFIX = struct.Struct("<Q")
_APART = 1 << 48  # the distance of row numbers of two joins, so that their samples are independent


def sample_bytes(capacity: int, joins: int) -> int:
    """Return the bytes of the samples of all joins for a buffer of `capacity` rows."""
    return joins * GHOST_BYTES * most_ghosts(_share_of_each(capacity, joins))


def _share_of_each(capacity: int, joins: int) -> int:
    return max(1, capacity // joins)


class GroupRecall:
    """Estimates which share of all joins' results together was returned.

    capacity, joins : those of the buffer. Cost: that of a `Recall` for each join, for its share of the capacity.
    """

    def __init__(self, capacity: int, joins: Sequence[GroupWindow]) -> None:
        part = _share_of_each(capacity, len(joins))
        self._joins = joins
        self._samples = [
            Recall(part, window=(join.lo, join.hi), first=number * _APART) for number, join in enumerate(joins)
        ]
        self._serving: list[tuple[Ints, Events]] = []

    def begin(self, events: GroupEvents, rows: int, starts: Ints, probes: Bytes | None) -> None:
        """Start with the events of a batch; row ids are below `rows`, and those of a stream begin at its start.

        probes : not 0 for rows that only probe, which do not match each other.
        """
        self._serving = []
        for number, (join, sample) in enumerate(zip(self._joins, self._samples, strict=True)):
            at = np.flatnonzero(events.roles[:, number] >= 0)
            keys, roles = events.keys[at, number], events.roles[at, number]
            self._serving.append((at, Events(keys, events.times[at], roles, events.contents[at], events.rows[at])))
            sample.place(rows, starts=(int(starts[join.left]), int(starts[join.right])), probes=probes)

    def feed(self, start: int, end: int, pair_event: Ints, pair_join: Bytes, pair_row: Ints) -> None:
        """Take the events from `start` to before `end`, and the pairs of a step of the buffer; see `Recall.feed`."""
        for number, ((at, events), sample) in enumerate(zip(self._serving, self._samples, strict=True)):
            mine = pair_join == number
            first, last = np.searchsorted(at, (start, end)).tolist()
            sample.feed(events, first, last, np.searchsorted(at, pair_event[mine]), pair_row[mine])

    def moved(self, ids: Ints) -> None:
        for sample in self._samples:
            sample.moved(ids)

    def sums(self) -> list[list[float]]:
        """Return the sums for `recall_of`, in total and for recent rows."""
        together: list[list[float]] = np.sum([sample.sums() for sample in self._samples], axis=0).tolist()
        return together

    def to_bytes(self) -> bytes:
        parts = [sample.to_bytes() for sample in self._samples]
        text = json.dumps([len(part) for part in parts]).encode()
        return _PREFIX.pack(len(text)) + text + b"".join(parts)

    def restore(self, data: bytes) -> None:
        try:
            at = _PREFIX.size + _PREFIX.unpack_from(data)[0]
            lengths = json.loads(data[_PREFIX.size : at])
            for number, length in zip(range(len(self._samples)), lengths, strict=True):
                self._samples[number] = Recall.from_bytes(data[at : at + length])
                at += length
        except (struct.error, ValueError, TypeError) as error:
            raise BraidedError(f"recall: the saved bytes are damaged: {error}; restore them") from error
