"""Changes of a routing table in two phases, for joins whose rows have one home (`braided.routing.home_routes`)."""

from __future__ import annotations

import numpy as np

from braided.routing.edit import Mask, TableEdit
from braided.routing.table import BUCKETS, MAX_LIVE, Numbers


class HomeEdit(TableEdit):
    """Collects changes to a table. A new assignment is an opening first; `settle` makes openings homes.

    >>> from braided.routing.table import RoutingTable
    >>> edit = HomeEdit(RoutingTable.hashed(2))
    >>> edit.assign(np.array([0]), 1)
    >>> opened = edit.done()
    >>> opened.live[0, :2].tolist(), int(opened.home[0]), opened.since[0, :2].tolist()
    ([1, 0], 0, [1, 0])
    >>> edit = HomeEdit(opened)
    >>> edit.settle(np.ones(len(opened.live), bool))
    1
    >>> int(edit.done().home[0]), edit.done().since[0, :2].tolist()
    (1, [0, 2])
    """

    def has_room(self, groups: Numbers) -> Mask:
        """Return which groups can get a new assignment: those that are not changing and have room in their lists.

        A key has only one change at a time, including changes of its bucket. If an assignment is assigned again while
        it is still probed, it becomes an opening again, because rows of the other side that arrived in between are not
        stored there.
        """
        room: Mask = self._live[:, MAX_LIVE - 1] < 0
        changing = self._since[:, 0] > 0
        free = room & ~changing
        buckets = self._buckets_of_keys
        free[BUCKETS:] &= ~changing[buckets]
        free[buckets[changing[BUCKETS:] | (self._demoted & ~room[BUCKETS:])]] = False
        return np.asarray(free[groups], np.bool_)

    def _put_first(self, groups: Numbers, assignment: int) -> None:
        super()._put_first(groups, assignment)
        self._since[groups, 0], self._since[groups, 1] = self._version, 0  # the former first one is still the home

    def settle(self, ready: Mask) -> int:
        """Make the openings of these groups their homes; return the number of groups."""
        groups = np.flatnonzero(ready & (self._since[: len(ready), 0] > 0))
        if len(groups):
            self._since[groups, 0] = 0
            self._since[groups, 1] = self._version
            self._changed = True
        return len(groups)
