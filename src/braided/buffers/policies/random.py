"""RAND: a random row gives way, the newcomer as likely as any other (sections 3 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

from braided.buffers.policies.policy import Plan, check_seed
from braided.buffers.records import RANDOM


@dataclass(frozen=True, kw_only=True)
class Random:
    """Every row draws a number, from its content and the seed; the smallest one gives way.

    What is stored is at any moment an even sample of the rows in the window, by stream too, and the same
    whatever the order in which rows of one time came.

    seed : another seed, another sample.

    >>> Random(seed=7).plan().seed
    7
    """

    seed: int = 0

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers."""
        return Plan(RANDOM, seed=check_seed(self.seed))
