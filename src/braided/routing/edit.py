"""Changes of a routing table: each change adds an assignment at the front of a group's list. No state is moved.

Rows that a group stored under older assignments stay there, and are probed there until the assignment is dead.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError
from braided.routing.grid import Grid
from braided.routing.table import BUCKETS, GRIDS, MAX_LIVE, Numbers, RoutingTable

Mask = npt.NDArray[np.bool_]


class Full(BraidedError):
    """A key group has the maximum of live assignments, or is changing; wait until one is dead."""


class TableEdit:
    """Collects changes to a table; `done` returns the next version.

    >>> edit = TableEdit(RoutingTable.hashed(2))
    >>> edit.assign(np.array([0]), 1)
    >>> edit.done().live[0, :2].tolist()
    [1, 0]
    """

    def __init__(self, table: RoutingTable) -> None:
        self._table = table
        self._version = table.version + 1
        self._live = table.live.copy()
        self._since = table.since.copy()
        self._keys = table.key_hashes.copy()
        self._demoted = table.key_demoted.copy()
        self._grids = dict(table.grids)
        self._next = table.next_grid
        self._changed = False
        self.in_use = table.in_use
        self.scheme = table.scheme

    def add_grid(self, grid: Grid) -> int:
        """Give a grid a new number, which is never used again."""
        number = self._next
        self._grids[number] = grid
        self._next += 1
        self._changed = True
        return number

    def set_weights(self, number: int, grid: Grid) -> None:
        """Change how often the parts of a grid are picked; its workers must stay the same."""
        if self._grids[number].columns != grid.columns:
            raise ValueError("the workers of a grid cannot be changed; add another grid")
        self._grids[number] = grid
        self._changed = True

    def has_room(self, groups: Numbers) -> Mask:
        """Return which groups can get a new assignment: a bucket only if the demoted keys that follow it can, too."""
        room: Mask = self._live[:, MAX_LIVE - 1] < 0
        room[self._buckets_of_keys[self._demoted & ~room[BUCKETS:]]] = False
        return np.asarray(room[groups], np.bool_)

    def assign(self, groups: Numbers, assignment: int) -> None:
        """Store new rows of these groups under an assignment. Demoted keys follow their bucket."""
        groups = np.unique(groups)
        buckets = groups[groups < BUCKETS]
        follow = BUCKETS + np.flatnonzero(self._demoted & np.isin(self._buckets_of_keys, buckets))
        groups = np.union1d(groups, follow)
        groups = groups[self._live[groups, 0] != assignment]
        if not len(groups):
            return
        if not self.has_room(groups).all():
            raise Full(f"{MAX_LIVE} assignments of a key group are alive; wait until one is dead")
        self._put_first(groups, assignment)

    def _put_first(self, groups: Numbers, assignment: int) -> None:
        live, since = self._live[groups], self._since[groups]
        since[:, 0] = self._version
        # If the new assignment is still alive in the list, it moves to the front.
        order = np.argsort((live == assignment) | (live < 0), axis=1, kind="stable")[:, : MAX_LIVE - 1]
        moved = np.take_along_axis(np.where(live == assignment, -1, live), order, 1)
        self._live[groups, 1:] = moved
        self._since[groups, 1:] = np.where(moved < 0, 0, np.take_along_axis(since, order, 1))
        self._live[groups, 0] = assignment
        self._since[groups, 0] = 0
        self._changed = True

    @property
    def _buckets_of_keys(self) -> Numbers:
        return (self._keys & np.uint64(BUCKETS - 1)).astype(np.int64)

    def is_draining(self, group: int) -> bool:
        """Whether a group still probes older assignments."""
        return bool(self._live[group, 1] >= 0)

    def group_of_key(self, key: int) -> int | None:
        """Return the group of a hot key; None if the key does not have its own group."""
        at = int(np.searchsorted(self._keys, np.uint64(key)))
        return BUCKETS + at if at < len(self._keys) and int(self._keys[at]) == key else None

    def promote(self, key: int, grid: Grid) -> None:
        """Give a key its own group on a grid; rows of the key that its bucket stored are still probed."""
        group = self.group_of_key(key)
        if group is None:
            at = int(np.searchsorted(self._keys, np.uint64(key)))
            bucket = key & (BUCKETS - 1)
            self._keys = np.insert(self._keys, at, np.uint64(key))
            self._demoted = np.insert(self._demoted, at, False)
            self._live = np.insert(self._live, BUCKETS + at, self._live[bucket], axis=0)
            self._since = np.insert(self._since, BUCKETS + at, self._since[bucket], axis=0)
            group = BUCKETS + at
        self._demoted[group - BUCKETS] = False
        self.assign(np.array([group]), self.add_grid(grid))

    def demote(self, key: int) -> None:
        """Assign a key to its bucket's assignment again; it keeps its group until its grid is dead."""
        group = self.group_of_key(key)
        if group is None:
            return
        self.assign(np.array([group]), int(self._live[key & (BUCKETS - 1), 0]))
        self._demoted[group - BUCKETS] = True
        self._changed = True

    def drop(self, dead: Mask) -> None:
        """Remove dead assignments, a mask over (group, place in its list), but never the newest or the home."""
        dead = dead & (self._live >= 0) & (self._since > 0)
        dead[:, 0] = False
        if not dead.any():
            return
        live = np.where(dead, -1, self._live)
        order = np.argsort(live < 0, axis=1, kind="stable")
        self._live = np.take_along_axis(live, order, 1)
        self._since = np.where(self._live < 0, 0, np.take_along_axis(self._since, order, 1))
        self._changed = True

    def done(self) -> RoutingTable:
        """Return the next version, or the table itself if nothing changed."""
        if not self._changed and self.in_use == self._table.in_use:
            return self._table
        self._drop_demoted()
        used = {int(number) for number in np.unique(self._live[self._live >= GRIDS])}
        return RoutingTable(
            self._version,
            self._table.workers,
            self.in_use,
            {number: grid for number, grid in self._grids.items() if number in used},
            self._live,
            self._since,
            self._keys,
            self._demoted,
            self._next,
            self.scheme,
        )

    def _drop_demoted(self) -> None:
        """Remove demoted keys whose bucket probes all assignments that they still need."""
        for at in range(len(self._keys) - 1, -1, -1):
            group, bucket = BUCKETS + at, int(self._keys[at]) & (BUCKETS - 1)
            mine, its = (set(self._live[g].tolist()) - {-1} for g in (group, bucket))
            changing = self._since[[group, bucket], 0].any()
            if self._demoted[at] and not changing and mine <= its and self._live[group, 0] == self._live[bucket, 0]:
                # If an assignment was replaced later for the key than for the bucket, the bucket keeps it as long.
                for place, assignment in enumerate(self._live[bucket].tolist()):
                    if assignment in mine and place:
                        since = self._since[group, self._live[group].tolist().index(assignment)]
                        self._since[bucket, place] = max(self._since[bucket, place], since)
                self._keys = np.delete(self._keys, at)
                self._demoted = np.delete(self._demoted, at)
                self._live = np.delete(self._live, group, axis=0)
                self._since = np.delete(self._since, group, axis=0)
