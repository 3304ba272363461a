"""The moments of an event at which a policy acts: functions that are compiled into the kernel, one kernel a policy.

```
 begin -> left (each row out of the window) -> by_chain, chain_matched or row_matched -> arrived
       -> newcomer -> left (each row that gives way) -> stored, unless refused -> ended
```

Each takes the buffer's `state` (`braided.eviction.records`) and what its policy has `learned`, a named tuple of the
policy's own. What a policy does not say is as in FIFO: a newcomer is worth nothing and displaces the oldest row.

A hook is a function under `@in_place`: it allocates nothing, and calls nothing but kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from braided.compiled import in_place
from braided.eviction.records import EVERYTHING, Bytes, State, UInt64s

__all__ = ["GroupHooks", "Hooks"]


@in_place
def begin(state: State, learned: Any, time: int) -> None:
    """Start with an event, before anything else has happened at its time."""


@in_place
def left(state: State, learned: Any, slot: int, time: int) -> None:
    """See a row that goes: out of the window, or for a newcomer."""


@in_place
def by_chain(learned: Any) -> bool:
    """Return whether a match with all rows of a key and stream is one `chain_matched`, not a `row_matched` each."""
    return True


@in_place
def chain_matched(state: State, learned: Any, pool: int, entry: int, stream: int, shares: float) -> None:
    """See an event that matched every stored row of its key and of a stream, each in so many results."""


@in_place
def row_matched(state: State, learned: Any, pool: int, slot: int, age: int, shares: float) -> None:
    """See an event that matched a stored row, of an age, in so many results."""


@in_place
def arrived(state: State, learned: Any, key: np.uint64, time: int, stream: int, entry: int) -> None:
    """See an event that has met all that is stored; `entry` is that of its key in the index, NONE if it has none."""


@in_place
def newcomer(
    state: State, learned: Any, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    """Return the credit of an event's row, and the bar: a stored row gives way if its credit is at most that."""
    return 0.0, EVERYTHING


@in_place
def stored(state: State, learned: Any, slot: int, key: np.uint64) -> None:
    """See the row that was stored."""


@in_place
def ended(state: State, learned: Any) -> None:
    """End an event."""


class Hooks(NamedTuple):
    """What a policy does in a buffer of pairs or combinations."""

    begin: Callable[..., None] = begin
    left: Callable[..., None] = left
    by_chain: Callable[..., bool] = by_chain
    chain_matched: Callable[..., None] = chain_matched
    row_matched: Callable[..., None] = row_matched
    arrived: Callable[..., None] = arrived
    newcomer: Callable[..., tuple[float, float]] = newcomer
    stored: Callable[..., None] = stored
    ended: Callable[..., None] = ended


@in_place
def group_matched(state: Any, learned: Any, slot: int) -> None:
    """See a row that was matched in one of the joins."""


@in_place
def group_arrived(state: Any, learned: Any, keys: UInt64s, roles: Bytes) -> None:
    """See a row that has met all that is stored, with its key and role in each join."""


@in_place
def group_newcomer(state: Any, learned: Any, keys: UInt64s, roles: Bytes, content: np.uint64) -> tuple[float, float]:
    """Return a row's credit, and the bar."""
    return 0.0, EVERYTHING


class GroupHooks(NamedTuple):
    """What a policy does in a buffer of several joins, where a row has a key for each."""

    matched: Callable[..., None] = group_matched
    arrived: Callable[..., None] = group_arrived
    newcomer: Callable[..., tuple[float, float]] = group_newcomer
