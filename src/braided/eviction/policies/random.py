"""RAND: a random row is evicted; the newcomer is as likely as any other row (sections 3 and 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from braided.compiled import compiled, in_place
from braided.eviction.policies.hooks import GroupHooks, Hooks
from braided.eviction.policies.policy import Adopted, Policy, Shape, check_seed
from braided.eviction.records import SPREAD, Bytes, Ints, Reals, State, UInt64s
from braided.routing.hash_kernels import mix


class Draw(NamedTuple):
    """The state of RAND: its seed."""

    seed: np.uint64


@in_place
def _newcomer(
    state: State, learned: Draw, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    drawn = float(mix(content ^ (learned.seed * SPREAD)) >> np.uint64(11))
    return drawn, drawn


@in_place
def _group_newcomer(state: Any, learned: Draw, keys: UInt64s, roles: Bytes, content: np.uint64) -> tuple[float, float]:
    drawn = float(mix(content ^ (learned.seed * SPREAD)) >> np.uint64(11))
    return drawn, drawn


@dataclass(frozen=True, kw_only=True, repr=False)
class RAND(Policy):
    """Every row gets a random number from its content and the seed; the row with the smallest number is evicted.

    The stored rows are always an even sample of the rows in the window, also for each stream. They do not depend on the
    order in which rows of the same time came.

    seed : the seed of the random numbers.

    Cost: 180 bytes per row of capacity; 8 bytes per stored row when saved.

    >>> RAND(seed=7)
    RAND(seed=7)
    >>> RAND(seed=-1)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: seed=-1: write an integer from 0 to 2**63 - 1
    """

    seed: int = 0

    name = "random"
    in_groups = "'random'"

    def __post_init__(self) -> None:
        check_seed(self.seed)

    @property
    def hooks(self) -> Hooks:
        """The hooks, which draw a number for each newcomer."""
        return Hooks(newcomer=_newcomer)

    @property
    def group_hooks(self) -> GroupHooks:
        return GroupHooks(newcomer=_group_newcomer)

    def learned(self, shape: Shape) -> Draw:
        """Return the seed for the kernel."""
        return Draw(np.uint64(self.seed))

    def adopt(self, learned: Draw, rows: Adopted) -> Reals:
        """Draw numbers from keys and times, because the contents of stored rows are not known."""
        return _random_credits(rows.stored.keys, rows.stored.times)


@compiled
def _random_credits(keys: UInt64s, times: Ints) -> Reals:
    out = np.empty(len(keys), np.float64)
    for i in range(len(keys)):
        out[i] = float(mix(keys[i] ^ mix(np.uint64(times[i]))) >> np.uint64(11))
    return out
