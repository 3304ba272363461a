"""Estimate a bounded join's recall while it runs, with its standard error.

A sample of all rows, stored or not, is kept for the whole window as *ghosts*: key, time and number, without payload.
Every event is matched with the ghosts of the other stream, which counts the results of the ghost's row in the exact
join (`matches`). The pairs show how many of them were returned (`found`)::

    rows   o o x o o x o x o o   x: one of 2**level, by a hash of its number
           | | |             |
    event  +-+-+-------------+-> matches of the ghosts x, each for 2**level rows

The number F of all returned pairs is known exactly. The results of the exact join are estimated by regression::

    E = sum(w m) + b (F - sum(w f)),   b = cov(m, f) / var(f),   recall = F / E

On nine streams and four policies, its measured standard error is at most that of sum(w m) alone, of the ratio
sum(w f) / sum(w m) and of F / (F + sum(w (m - f))), and as low as an 8th of it. Preconditions: those of `Buffer`; two
streams; the worker reports the row ids of the stored rows (`place`, `moved`).
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from braided.compiled import compiled
from braided.errors import BraidedError
from braided.eviction.buffer import Events
from braided.eviction.key_index import home
from braided.eviction.packed import pack, unpack
from braided.eviction.recall.estimate import RecallEstimate, recall_of
from braided.eviction.records import NONE, Bytes, Ints, Links, Records, UInt64s, power_of_two
from braided.routing.hash_kernels import mix

__all__ = ["GHOST_BYTES", "Recall", "most_ghosts"]

_SEED = np.uint64(0x6A09E667F3BCC909)
_SHARE = 16
_LEAST = 1024
_FADE = 0.5

_i8, _i4, _f8, _u8 = np.int64, np.int32, np.float64, np.uint64
GHOST = np.dtype(
    [
        ("key", _u8),
        ("time", _i8),
        ("number", _i8),
        ("matches", _i8),
        ("found", _i8),
        ("row", _i8),
        ("previous", _i4),
        ("level", np.int16),
        ("stream", np.int8),
        ("probe", np.int8),
    ]
)
# There is twice the room, so that ghosts are rarely moved, and the table.
GHOST_BYTES = 2 * GHOST.itemsize + 8 * 4
_HEAD = np.dtype([("oldest", _i8), ("end", _i8), ("level", _i8), ("events", _i8)])
# Weighted sums over ghosts: matches, found; the variances and the covariance of these two sums; and all pairs.
SUMS = np.dtype([("matches", _f8), ("found", _f8), ("mm", _f8), ("mf", _f8), ("ff", _f8), ("pairs", _f8)])
_SAVED = ("key", "time", "number", "matches", "found", "row", "level", "stream", "probe")
_PREFIX = struct.Struct("<Q")


def most_ghosts(capacity: int) -> int:
    """Return the largest sample: a 16th of the capacity, but at least 1,024, or 4 times a very small capacity.

    >>> most_ghosts(100), most_ghosts(10_000), most_ghosts(1_000_000)
    (400, 1024, 62500)
    """
    return max(capacity // _SHARE, min(_LEAST, 4 * capacity))


class Recall:
    """Estimates recall from a sample of at most `most_ghosts` rows.

    capacity, window : those of the buffer. first : the number of the first event; the sample is chosen by numbers.

    Cost: about 140 bytes per ghost, 22 when saved; per event a look-up and its matching ghosts, per pair a look-up. It
    takes a tenth to a half of the buffer's own time.
    """

    def __init__(self, capacity: int, *, window: tuple[int, int], first: int = 0) -> None:
        self.capacity, self.window = capacity, window
        self.ghosts_most = most_ghosts(capacity)
        self.epoch = max(1024, 4 * capacity)
        lo, hi = window
        self._soonest = np.array([lo, -hi], np.int64)
        self._retention = np.array([hi, -lo], np.int64)
        self._head = np.zeros(1, _HEAD)
        self._head["events"] = first
        self._sums = np.zeros(2, SUMS)  # in total, and recently
        self._ghosts = np.zeros(2 * self.ghosts_most, GHOST)
        self._table = np.full(power_of_two(4 * self.ghosts_most), NONE, np.int32)
        self._ghost_of = np.zeros(0, np.int32)
        self._probes = np.zeros(0, np.int8)

    def place(self, rows: int, *, starts: tuple[int, int] = (0, 0), probes: Bytes | None = None) -> None:
        """Start with row ids below `rows`; the ids of each stream since the last `moved` are increased by its start.

        probes : not 0 for rows that only probe, which do not match each other.
        """
        live = self._live()
        here = live["row"] >= 0
        live["row"][here] += np.array(starts, np.int64)[live["stream"][here]]
        self._ghost_of = np.full(rows, NONE, np.int32)
        self._ghost_of[live["row"][here]] = np.flatnonzero(here) + int(self._head["oldest"][0])
        self._probes = np.zeros(0, np.int8) if probes is None else probes

    def moved(self, ids: Ints) -> None:
        """Set the new id of each row of its stream; -1 if it is no longer stored."""
        live = self._live()
        here = live["row"] >= 0
        live["row"][here] = ids[live["row"][here]]

    def _live(self) -> Records:
        return self._ghosts[int(self._head["oldest"][0]) : int(self._head["end"][0])]

    def feed(self, events: Events, start: int, end: int, pair_event: Ints, pair_row: Ints) -> None:
        """Take the events from `start` to before `end`, and the pairs that a step of the buffer returned for them.

        Events that the buffer did not get have the row id -1. If the step stopped among the pairs of the event at
        `end`, these pairs are taken too.
        """
        _feed(
            self._head, self._sums, self._ghosts, self._table, self._ghost_of, self._probes,
            self._soonest, self._retention, self.epoch,
            events.keys, events.times, events.streams, events.rows, start, end, pair_event, pair_row,
        )  # fmt: skip

    @property
    def ghosts(self) -> int:
        return int(self._head["end"][0] - self._head["oldest"][0])

    def sums(self) -> list[list[float]]:
        """Return the sums of all ghosts, in total and for recent rows; the sums of several workers can be added."""
        live = self._live()
        weight = np.exp2(live["level"].astype(np.float64))
        spread = weight * (weight - 1)
        m, f = live["matches"].astype(np.float64), live["found"].astype(np.float64)
        more = [0.0, 0.0, (spread * m * m).sum(), (spread * m * f).sum(), (spread * f * f).sum(), 0.0]
        return [[float(a) + float(b) for a, b in zip(sums, more, strict=True)] for sums in self._sums.tolist()]

    def estimate(self) -> RecallEstimate:
        return recall_of(self.sums()[0])

    def recent(self) -> RecallEstimate:
        """Return the recall of recent rows: the weight of an event halves with every 4 capacities of later events."""
        return recall_of(self.sums()[1])

    def to_bytes(self) -> bytes:
        """Return the estimator as bytes: about 22 per ghost."""
        live = self._live()
        parts = [pack(np.ascontiguousarray(live[name])) for name in _SAVED]
        header = {
            "capacity": self.capacity,
            "window": self.window,
            "level": int(self._head["level"][0]),
            "events": int(self._head["events"][0]),
            "sums": self._sums.tolist(),
            "parts": [facts for facts, _ in parts],
        }
        text = json.dumps(header, sort_keys=True).encode()
        return _PREFIX.pack(len(text)) + text + b"".join(data for _, data in parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Recall:
        try:
            at = _PREFIX.size + _PREFIX.unpack_from(data)[0]
            header: dict[str, Any] = json.loads(data[_PREFIX.size : at])
            lo, hi = header["window"]
            recall = cls(header["capacity"], window=(lo, hi))
            recall._head["level"], recall._head["events"] = header["level"], header["events"]
            recall._sums[:] = [tuple(sums) for sums in header["sums"]]
            count = header["parts"][0][0]
            if count > recall.ghosts_most:
                raise BraidedError("recall: the saved bytes are damaged: too many rows")
            for name, facts in zip(_SAVED, header["parts"], strict=True):
                recall._ghosts[name][:count], at = unpack(facts, data, at, GHOST[name])
        except (struct.error, ValueError, KeyError, TypeError, OverflowError) as error:
            raise BraidedError(f"recall: the saved bytes are damaged: {error}") from error
        recall._head["end"] = count
        _index(recall._head, recall._ghosts, recall._table)
        return recall


@compiled
def _index(head: Records, ghosts: Records, table: Links) -> None:
    """Link the ghosts by the hashes of their keys, newest first."""
    table[:] = NONE
    for slot in range(head[0].oldest, head[0].end):
        _link(ghosts, table, slot)


@compiled
def _link(ghosts: Records, table: Links, slot: int) -> None:
    at = home(ghosts[slot].key, len(table))
    ghosts[slot].previous = table[at]
    table[at] = slot


@compiled
def _leave(sums: Records, ghosts: Records, ghost_of: Links, slot: int) -> None:
    """Add a ghost to the variances when no further row can match it."""
    if ghosts[slot].row >= 0:
        ghost_of[ghosts[slot].row] = NONE
    weight = float(np.int64(1) << np.int64(ghosts[slot].level))
    spread = weight * (weight - 1.0)
    m, f = float(ghosts[slot].matches), float(ghosts[slot].found)
    for at in range(len(sums)):
        sums[at].mm += spread * m * m
        sums[at].mf += spread * m * f
        sums[at].ff += spread * f * f


@compiled
def _sampled(number: int, level: int) -> bool:
    below = (np.uint64(1) << np.uint64(level)) - np.uint64(1)
    return bool(mix(np.uint64(number) ^ _SEED) & below == np.uint64(0))


@compiled
def _make_room(head: Records, ghosts: Records, table: Links, ghost_of: Links) -> None:
    """Move the ghosts to the front; if there are too many, halve the sample until they fill half the room."""
    most = len(ghosts) // 2
    live = head[0].end - head[0].oldest
    while live == most:
        head[0].level += 1
        at = head[0].oldest
        for slot in range(head[0].oldest, head[0].end):
            if _sampled(ghosts[slot].number, head[0].level):
                ghosts[at] = ghosts[slot]
                ghosts[at].level = max(np.int64(ghosts[at].level), head[0].level)
                at += 1
            elif ghosts[slot].row >= 0:
                ghost_of[ghosts[slot].row] = NONE
        head[0].end = at
        live = at - head[0].oldest
    for at in range(live):
        ghosts[at] = ghosts[head[0].oldest + at]
        if ghosts[at].row >= 0:
            ghost_of[ghosts[at].row] = at
    head[0].oldest, head[0].end = 0, live
    _index(head, ghosts, table)


@compiled
def _count_result(sums: Records, ghosts: Records, slot: int) -> None:
    """Count a returned result of a ghost's row."""
    ghosts[slot].found += 1
    weight = float(np.int64(1) << np.int64(ghosts[slot].level))
    for at in range(len(sums)):
        sums[at].found += weight


@compiled
def _feed(
    head: Records,
    sums: Records,
    ghosts: Records,
    table: Links,
    ghost_of: Links,
    probes: Bytes,
    soonest: Ints,
    retention: Ints,
    epoch: int,
    keys: UInt64s,
    times: Ints,
    streams: Bytes,
    ids: Ints,
    start: int,
    end: int,
    pair_event: Ints,
    pair_row: Ints,
) -> None:
    longest = retention.max()
    most = len(ghosts) // 2
    pair = 0
    for i in range(start, end):
        key, time, s = keys[i], times[i], int(streams[i])
        while head[0].oldest < head[0].end and time - ghosts[head[0].oldest].time > longest:
            _leave(sums, ghosts, ghost_of, head[0].oldest)
            head[0].oldest += 1
        weight = 0.0
        probing = len(probes) > 0 and ids[i] >= 0 and probes[ids[i]] != 0
        slot = int(table[home(key, len(table))])
        while slot >= head[0].oldest:  # lower slots have left
            q = int(ghosts[slot].stream)
            age = time - ghosts[slot].time
            apart = q == s or (probing and ghosts[slot].probe != 0)
            if not apart and ghosts[slot].key == key and soonest[q] <= age <= retention[q]:
                ghosts[slot].matches += 1
                weight += float(np.int64(1) << np.int64(ghosts[slot].level))
            slot = int(ghosts[slot].previous)
        first = pair
        while pair < len(pair_row) and pair_event[pair] == i:
            if ghost_of[pair_row[pair]] >= 0:
                _count_result(sums, ghosts, ghost_of[pair_row[pair]])
            pair += 1
        for at in range(len(sums)):
            sums[at].matches += weight
            sums[at].pairs += pair - first
        number = head[0].events
        if retention[s] >= 0 and _sampled(number, head[0].level):
            if head[0].end == len(ghosts) or head[0].end - head[0].oldest == most:
                _make_room(head, ghosts, table, ghost_of)
            if _sampled(number, head[0].level):
                slot = head[0].end
                ghost = ghosts[slot]
                ghost.key, ghost.time, ghost.number, ghost.row = key, time, number, ids[i]
                ghost.matches = ghost.found = 0
                ghost.level, ghost.stream, ghost.probe = head[0].level, s, 1 if probing else 0
                head[0].end += 1
                if ids[i] >= 0:
                    ghost_of[ids[i]] = slot
                _link(ghosts, table, slot)
        head[0].events += 1
        if head[0].events % epoch == 0:
            sums[1].matches *= _FADE
            sums[1].found *= _FADE
            sums[1].pairs *= _FADE
            # Half of a sum has a quarter of its variance.
            sums[1].mm *= _FADE * _FADE
            sums[1].mf *= _FADE * _FADE
            sums[1].ff *= _FADE * _FADE
            if head[0].level > 0 and head[0].end - head[0].oldest < most // 4:
                head[0].level -= 1
    for at in range(len(sums)):
        sums[at].pairs += len(pair_row) - pair
    while pair < len(pair_row):  # the step stopped among the pairs of the event at `end`
        if ghost_of[pair_row[pair]] >= 0:
            _count_result(sums, ghosts, ghost_of[pair_row[pair]])
        pair += 1
