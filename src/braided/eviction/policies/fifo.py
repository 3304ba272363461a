"""FIFO: the oldest row is evicted, so the buffer is a shorter window (sections 4.2 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

from braided.eviction.policies.hooks import GroupHooks
from braided.eviction.policies.policy import Policy


@dataclass(frozen=True, kw_only=True, repr=False)
class FIFO(Policy):
    """The row that was stored first is evicted; a newcomer is always stored.

    It has no parameters, and learns nothing. Cost: 180 bytes per row of capacity, and no credit when saved.

    >>> from braided.eviction.buffer import Buffer, Events
    >>> import numpy as np
    >>> buffer = Buffer(2, FIFO(), window=(-10, 10))
    >>> keys = np.array([7, 8, 9], np.uint64)
    >>> events = Events(keys, np.arange(3), np.zeros(3, np.int8), keys, np.array([100, 101, 102]))
    >>> buffer.run(events).dropped_row.tolist()
    [100]
    >>> FIFO()
    FIFO()
    """

    name = "fifo"
    in_groups = "'fifo'"

    @property
    def group_hooks(self) -> GroupHooks:
        return GroupHooks()
