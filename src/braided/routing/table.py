"""The routing table: key groups (hash buckets) laid over workers, and the worker ids Spark spreads evenly."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

BUCKETS = 4096  # key groups of a join; a power of two, and many per worker, so that shares are even


@dataclass(frozen=True)
class RoutingTable:
    """One immutable version of the routing: bucket b of the key hash belongs to worker ``owner[b]``.

    >>> RoutingTable.hashed(2).owner[:4].tolist()
    [0, 1, 0, 1]
    """

    version: int
    workers: int
    owner: npt.NDArray[np.int32]

    @classmethod
    def hashed(cls, workers: int) -> RoutingTable:
        """Every bucket on one worker (1 x 1 grids): hash partitioning."""
        return cls(0, workers, (np.arange(BUCKETS) % workers).astype(np.int32))

    @property
    def digest(self) -> str:
        """A digest that tells two tables apart."""
        content = f"{self.version}/{self.workers}/".encode() + self.owner.astype("<i4").tobytes()
        return hashlib.blake2b(content, digest_size=8).hexdigest()

    def workers_of(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
        """Return the worker of each key hash.

        Buckets use the low bits; the top bits stay uniform within a worker, which probing relies on.
        """
        workers: npt.NDArray[np.int32] = self.owner[(hashes & np.uint64(BUCKETS - 1)).astype(np.int64)]
        return workers


@lru_cache(maxsize=16)
def worker_ids(workers: int) -> tuple[int, ...]:
    """Return the grouping value of each worker, chosen so that Spark puts worker i on shuffle partition i.

    Spark places a row by pmod(murmur3(value, seed 42), partitions).

    >>> worker_ids(2)
    (2, 0)
    """
    found: dict[int, int] = {}
    value = 0
    while len(found) < workers:
        found.setdefault(_murmur3_int(value) % workers, value)
        value += 1
    return tuple(found[partition] for partition in range(workers))


def _murmur3_int(value: int, seed: int = 42) -> int:
    """Spark's Murmur3 hash of an int column, as a signed 32-bit integer."""
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
