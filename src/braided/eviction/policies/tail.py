"""TAIL: a full buffer refuses the newcomer, like a full queue in the SSP paper (its section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from braided.compiled import in_place
from braided.eviction.policies.hooks import GroupHooks, Hooks
from braided.eviction.policies.policy import Policy
from braided.eviction.records import Bytes, State, UInt64s

# Below the credit of every stored row, which is 0.
NOBODY = -1.0


@in_place
def _newcomer(
    state: State, learned: Any, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    return 0.0, NOBODY


@in_place
def _group_newcomer(state: Any, learned: Any, keys: UInt64s, roles: Bytes, content: np.uint64) -> tuple[float, float]:
    return 0.0, NOBODY


@dataclass(frozen=True, kw_only=True, repr=False)
class TAIL(Policy):
    """A newcomer is refused while the buffer is full: rows leave only with the window (tail drop).

    Every row is joined with the stored rows before it is stored or refused, so a refused row loses only later pairs.
    It has no parameters, and learns nothing. Cost: 180 bytes per row of capacity.

    >>> from braided.eviction.buffer import Buffer, Events
    >>> import numpy as np
    >>> buffer = Buffer(2, TAIL(), window=(-10, 10))
    >>> keys = np.array([7, 8, 9], np.uint64)
    >>> events = Events(keys, np.arange(3), np.zeros(3, np.int8), keys, np.array([100, 101, 102]))
    >>> buffer.run(events).dropped_row.tolist()
    [102]
    >>> TAIL()
    TAIL()
    """

    name = "tail"
    in_groups = "'tail'"

    @property
    def hooks(self) -> Hooks:
        """The hooks, which refuse each newcomer."""
        return Hooks(newcomer=_newcomer)

    @property
    def group_hooks(self) -> GroupHooks:
        return GroupHooks(newcomer=_group_newcomer)
