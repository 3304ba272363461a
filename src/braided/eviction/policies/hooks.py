"""The hooks of a policy for the steps of an event: functions that are compiled into the kernel, one kernel per policy.

```
 begin -> left (each row outside of the window) -> by_chain, chain_matched or row_matched -> arrived
       -> newcomer -> left (each evicted row) -> stored, unless refused -> ended
```
Each hook gets the buffer's `state` (`braided.eviction.records`) and the policy's own state, `learned`, which is a named
tuple. The defaults are those of FIFO: a newcomer has a credit of 0 and evicts the oldest row.

A hook is a function under `@in_place`: it allocates nothing, and calls only kernels.
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
    """Begin an event, before all other steps."""


@in_place
def left(state: State, learned: Any, slot: int, time: int) -> None:
    """Get a row that is removed: it is outside of the window, or evicted."""


@in_place
def by_chain(learned: Any) -> bool:
    """Return whether a match with all rows of a key and stream is one `chain_matched`, not a `row_matched` per row."""
    return True


@in_place
def chain_matched(state: State, learned: Any, pool: int, entry: int, stream: int, shares: float) -> None:
    """Get a match of the event with every stored row of its key and of a stream, each in `shares` results."""


@in_place
def row_matched(state: State, learned: Any, pool: int, slot: int, age: int, shares: float) -> None:
    """Get a match of the event with a stored row of this age, in `shares` results."""


@in_place
def arrived(state: State, learned: Any, key: np.uint64, time: int, stream: int, entry: int) -> None:
    """Get the event after all its matches; `entry` is the entry of its key in the index, or NONE."""


@in_place
def newcomer(
    state: State, learned: Any, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    """Return the credit of the event's row, and the bar: stored rows with a credit of at most this can be evicted."""
    return 0.0, EVERYTHING


@in_place
def stored(state: State, learned: Any, slot: int, key: np.uint64) -> None:
    """Get the slot in which the event's row was stored."""


@in_place
def ended(state: State, learned: Any) -> None:
    """End an event."""


class Hooks(NamedTuple):
    """The hooks of a policy in a buffer of pairs or combinations."""

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
    """Get a row that was matched in one of the joins."""


@in_place
def group_arrived(state: Any, learned: Any, keys: UInt64s, roles: Bytes) -> None:
    """Get a row after all its matches, with its key and role in each join."""


@in_place
def group_newcomer(state: Any, learned: Any, keys: UInt64s, roles: Bytes, content: np.uint64) -> tuple[float, float]:
    """Return a row's credit, and the bar."""
    return 0.0, EVERYTHING


class GroupHooks(NamedTuple):
    """The hooks of a policy in a buffer of several joins, where a row has a key for each join."""

    matched: Callable[..., None] = group_matched
    arrived: Callable[..., None] = group_arrived
    newcomer: Callable[..., tuple[float, float]] = group_newcomer
