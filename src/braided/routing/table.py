"""The routing table: which workers store a row of a key group and which it only probes; one immutable version.

A *key group* is one of BUCKETS hash buckets, or a single hot key. A group lists its live assignments, the newest first.
A row is stored under the newest and probes all of them: the older ones with copies that are not stored. An assignment
is a number: below GRIDS it is the number of a single worker (a 1 x 1 grid that all its buckets share), from GRIDS on it
is the number of a grid.

```
 group        live assignments, newest first
 bucket 17    [3]                  stored on worker 3
 bucket 18    [5, 3]               moved from 3 to 5: stored on 5, still probes 3
 key 9f3a..   [GRIDS+2, 3]         a hot key, promoted out of bucket 17: stored in grid 2, still probes 3
```

This is the rule of inner joins. In a join that must know that a row has no match, a row has one *home*, and the newest
assignment may be an *opening*, which is not yet the home (`braided.routing.home_routes`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError
from braided.routing.grid import Grid

BUCKETS = 4096  # a power of two, with many buckets per worker, so that shares are even
GRIDS = 1 << 20
MAX_LIVE = 4  # live assignments per key group; no further change until one is dead
_FORMAT = 1
_MAX_KEYS = 1024

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Assignments = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class RoutingTable:
    """All assignments. Groups are numbered: the buckets, then the keys in order of their hash.

    `live[group]` lists assignments, newest first, padded with -1; `since[group]` has the version that replaced each.
    The one that was not replaced (0) is the home. If the home is second, the first is an opening, and its version is
    the one that opened it.

    >>> RoutingTable.hashed(2).live[:3, 0].tolist()
    [0, 1, 0]
    """

    version: int
    workers: int
    in_use: tuple[int, ...]
    grids: Mapping[int, Grid]
    live: Assignments
    since: Numbers
    key_hashes: Hashes
    key_demoted: npt.NDArray[np.bool_]
    next_grid: int = GRIDS
    scheme: str = "hash"

    @classmethod
    def hashed(cls, workers: int) -> RoutingTable:
        """Return a table with every bucket on one worker: hash partitioning."""
        return _hashed(workers)

    @classmethod
    def gridded(cls, workers: int, grid: Grid, scheme: str) -> RoutingTable:
        """Return a table with all rows in one grid: SSP, or a join without keys."""
        plain = cls.hashed(workers)
        live = plain.live.copy()
        live[:, 0] = GRIDS
        return cls(
            1, workers, plain.in_use, {GRIDS: grid}, live, plain.since, plain.key_hashes, plain.key_demoted,
            GRIDS + 1, scheme,
        )  # fmt: skip

    @cached_property
    def most_copies(self) -> tuple[int, int]:
        """The largest number of copies of a left row and of a right row."""
        if self.plain:
            return 1, 1
        of_grid = {
            number: (len(grid.columns), max(len(column) for column in grid.columns))
            for number, grid in self.grids.items()
        }
        lists = np.unique(self.live, axis=0).tolist()
        left, right = (
            max(sum(of_grid.get(a, (1, 1))[side] for a in row if a >= 0) for row in lists) for side in (0, 1)
        )
        return left, right

    @cached_property
    def digest(self) -> str:
        """A digest of the table's content."""
        return hashlib.sha256(self.to_bytes()).hexdigest()[:32]

    @cached_property
    def plain(self) -> bool:
        """Whether every group has a single worker and no older assignment, so that each row has one copy."""
        return bool(not len(self.key_hashes) and (self.live[:, 1] < 0).all() and (self.live[:, 0] < GRIDS).all())

    @cached_property
    def owner(self) -> Assignments:
        """The newest assignment of each bucket."""
        return np.ascontiguousarray(self.live[:BUCKETS, 0])

    @cached_property
    def home_place(self) -> Numbers:
        """The position of the home in each group's list: first, or second after an opening."""
        return (self.since[:, 0] > 0).astype(np.int64)

    @cached_property
    def home(self) -> Assignments:
        """The home of each group."""
        return np.ascontiguousarray(self.live[np.arange(len(self.live)), self.home_place])

    def groups_of(self, hashes: Hashes) -> Numbers:
        """Return the key group of each key hash.

        Buckets use the low bits, so that the top bits are uniform within a worker, as probing requires.
        """
        groups = (hashes & np.uint64(BUCKETS - 1)).astype(np.int64)
        if len(self.key_hashes):
            at = np.searchsorted(self.key_hashes, hashes)
            at[at == len(self.key_hashes)] = 0
            groups = np.where(self.key_hashes[at] == hashes, BUCKETS + at, groups)
        return groups

    def to_bytes(self) -> bytes:
        """Return the table as JSON. Many groups share a list of assignments, so each list is written only once."""
        both = np.ascontiguousarray(np.hstack([self.live, self.since]))
        rows = both.view(f"V{both.itemsize * both.shape[1]}").reshape(-1).tolist()
        known: dict[bytes, int] = {}
        numbers = [known.setdefault(bytes(row), len(known)) for row in rows]
        lists = [np.frombuffer(row, np.int64).tolist() for row in known]
        value = {
            "format": _FORMAT,
            "version": self.version,
            "scheme": self.scheme,
            "workers": self.workers,
            "in_use": list(self.in_use),
            "next_grid": self.next_grid,
            "grids": {str(number): grid.to_json() for number, grid in sorted(self.grids.items())},
            "lists": [_entries(row) for row in lists],
            "buckets": numbers[:BUCKETS],
            "keys": [
                [f"{key:016x}", demoted, number]
                for key, demoted, number in zip(
                    self.key_hashes.tolist(), self.key_demoted.tolist(), numbers[BUCKETS:], strict=True
                )
            ],
        }
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> RoutingTable:
        """Read and check the result of `to_bytes`: it may come from a damaged or forged file."""
        try:
            table = _read(json.loads(content))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise BraidedError(f"not a routing table ({type(error).__name__}: {error}); restore the file") from error
        if table.to_bytes() != content:
            raise BraidedError("not a routing table as it was written; restore the file")
        return table


def _entries(row: list[int]) -> list[list[int]]:
    """Return a list of live assignments as pairs (assignment, the version that replaced it)."""
    return [
        [assignment, version]
        for assignment, version in zip(row[:MAX_LIVE], row[MAX_LIVE:], strict=True)
        if assignment >= 0
    ]


def _read(value: Any) -> RoutingTable:
    if value["format"] != _FORMAT:
        raise BraidedError(
            f"routing table format {value['format']!r}: this version of braided reads {_FORMAT}; upgrade braided"
        )
    workers, version, next_grid = (_whole(value[name]) for name in ("workers", "version", "next_grid"))
    in_use = tuple(_whole(worker) for worker in value["in_use"])
    if not 0 < workers < GRIDS or not in_use or list(in_use) != sorted(set(in_use)) or in_use[-1] >= workers:
        raise ValueError("workers in use")
    grids = {int(number): Grid.from_json(grid, workers) for number, grid in value["grids"].items()}
    if any(not GRIDS <= number < next_grid for number in grids):
        raise ValueError("a grid's number")
    keys = value["keys"]
    lists = value["lists"]
    numbers = np.array([*map(_whole, value["buckets"]), *(_whole(number) for _, _, number in keys)], np.int64)
    if len(keys) > _MAX_KEYS or len(value["buckets"]) != BUCKETS or not 0 < len(lists) <= len(numbers):
        raise ValueError("number of key groups")
    if numbers.max() >= len(lists):
        raise ValueError("number of a list")
    live = np.full((len(lists), MAX_LIVE), -1, np.int32)
    since = np.zeros((len(lists), MAX_LIVE), np.int64)
    for number, entries in enumerate(lists):
        assignments = [_whole(assignment) for assignment, _ in entries]
        if not 1 <= len(entries) <= MAX_LIVE or len(set(assignments)) < len(entries):
            raise ValueError("live assignments of a key group")
        if any(a not in grids if a >= GRIDS else a >= workers for a in assignments):
            raise ValueError("an assignment")
        changes = [_whole(change) for _, change in entries]
        if changes.count(0) != 1 or changes.index(0) > 1 or max(changes) > version:
            raise ValueError("the home of a key group")
        live[number, : len(entries)] = assignments
        since[number, : len(entries)] = changes
    live, since = live[numbers], since[numbers]
    hashes = [int(key, 16) for key, _, _ in keys]
    if hashes != sorted(set(hashes)):
        raise ValueError("order of the keys")
    scheme = value["scheme"]
    if scheme not in ("auto", "hash", "ssp", "grid"):
        raise ValueError("scheme")
    return RoutingTable(
        version, workers, in_use, grids, live, since,
        np.array(hashes, np.uint64), np.array([bool(demoted) for _, demoted, _ in keys], np.bool_), next_grid, scheme,
    )  # fmt: skip


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is not an integer from 0 to 2**62 - 1")
    return value


@lru_cache(maxsize=4)
def _hashed(workers: int) -> RoutingTable:
    live = np.full((BUCKETS, MAX_LIVE), -1, np.int32)
    live[:, 0] = np.arange(BUCKETS) % workers
    return RoutingTable(
        0, workers, tuple(range(workers)), {}, live, np.zeros((BUCKETS, MAX_LIVE), np.int64),
        np.zeros(0, np.uint64), np.zeros(0, np.bool_),
    )  # fmt: skip


@lru_cache(maxsize=16)
def worker_ids(workers: int) -> tuple[int, ...]:
    """Return the grouping value of each worker, chosen so that Spark puts worker i on shuffle partition i.

    Spark places a row by pmod(murmur3(value, seed 42), partitions).

    >>> worker_ids(2)
    (2, 0)
    """
    ids: dict[int, int] = {}
    value = 0
    while len(ids) < workers:
        ids.setdefault(_murmur3_int(value) % workers, value)
        value += 1
    return tuple(ids[partition] for partition in range(workers))


def _murmur3_int(value: int, seed: int = 42) -> int:
    """Return Spark's Murmur3 hash of an int column, as a signed 32-bit integer."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    h = seed ^ (k * 0x1B873593 & mask)
    h = ((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64 & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
