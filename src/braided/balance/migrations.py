"""Which migrations may begin: one per worker at a time, and no bucket moves back and forth between two workers.

Moving a bucket copies no state, but its old assignment stays alive and is probed until no row stored under it can
match. Until then the loads partly show the old routing, so another decision would move too much.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError


class Migrations:
    """The current migrations, and each bucket's previous worker (Synergy, sections 3.1 and 3.2).

    A migration is all moves of one decision, and is identified by the version of the routing table with these moves.
    Its workers do not take part in another migration until ``end``. A bucket returns to its previous worker only if
    both the current and the average load there are now below those of its present worker.

    State: one number per bucket, and the workers of the current migrations.

    >>> migrations, loads = Migrations(4), np.array([0.9, 0.1, 0.3])
    >>> migrations.begin(7, [(3, 0, 1)])
    >>> migrations.allowed([3], 1, 2, loads, loads).tolist()  # worker 1 is busy
    [False]
    >>> migrations.end(7)
    >>> migrations.allowed([2, 3], 1, 0, loads, loads).tolist()  # 3 would return to a worker with more load
    [True, False]
    """

    def __init__(self, buckets: int) -> None:
        if buckets < 1:
            raise BraidedError(f"{buckets=}: pass the number of buckets of the routing table, at least 1")
        self._homes = np.full(buckets, -1, dtype=np.int32)
        self._under_way: dict[int, frozenset[int]] = {}

    @property
    def busy(self) -> frozenset[int]:
        """The workers of the current migrations."""
        return frozenset().union(*self._under_way.values())

    @property
    def under_way(self) -> tuple[int, ...]:
        """The versions of the tables whose migrations have not ended."""
        return tuple(sorted(self._under_way))

    def allowed(
        self,
        buckets: int | npt.ArrayLike,
        source: int,
        target: int,
        current: npt.NDArray[np.float64],
        average: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.bool_]:
        """Return for each bucket whether it may move from source to target, given all workers' loads."""
        homes = self._homes[np.atleast_1d(np.asarray(buckets, dtype=np.int64))]
        if source == target or self.busy & {source, target}:
            return np.zeros(len(homes), dtype=np.bool_)
        turned = bool(current[target] < current[source] and average[target] < average[source])
        allowed: npt.NDArray[np.bool_] = (homes != target) | turned
        return allowed

    def barred(
        self,
        owner: npt.NDArray[np.int32],
        current: npt.NDArray[np.float64],
        average: npt.NDArray[np.float64],
    ) -> npt.NDArray[np.int32]:
        """Return for each bucket the worker to which it may not move now, -1 for none; the same rule as `allowed`."""
        turned = (current[self._homes] < current[owner]) & (average[self._homes] < average[owner])
        barred: npt.NDArray[np.int32] = np.where(turned, np.int32(-1), self._homes)
        return barred

    def begin(self, version: int, moves: Iterable[tuple[int, int, int]]) -> None:
        """Record the moves (bucket, source, target) of table ``version``, without checking whether they are allowed.

        A scale-in moves buckets away from workers even during other migrations.
        """
        moves = list(moves)
        if version in self._under_way:
            raise BraidedError(f"{version=}: a migration of this table version has begun already; pass a new version")
        for bucket, source, target in moves:
            if not 0 <= bucket < len(self._homes) or source < 0 or target < 0 or source == target:
                raise BraidedError(f"move {(bucket, source, target)}: pass a bucket and two different workers")
        for bucket, source, _ in moves:
            self._homes[bucket] = source
        if moves:
            self._under_way[version] = frozenset(worker for move in moves for worker in move[1:])

    def end(self, version: int) -> None:
        """Record that every assignment that table ``version`` replaced is dead; an unknown version is ignored.

        After a restart, a controller may report this twice.
        """
        self._under_way.pop(version, None)
