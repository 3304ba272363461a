"""The policies that `evict=` knows by name: a line each."""

from __future__ import annotations

from typing import TypeVar

from braided.eviction.policies.age import AGE
from braided.eviction.policies.auto import AUTO
from braided.eviction.policies.fifo import FIFO
from braided.eviction.policies.gdj import GDJ
from braided.eviction.policies.policy import Policy
from braided.eviction.policies.prob import PROB
from braided.eviction.policies.random import RAND
from braided.eviction.policies.recent import RECENT
from braided.eviction.policies.tail import TAIL

__all__ = ["POLICIES", "register"]

POLICIES: dict[str, type[Policy]] = {}
K = TypeVar("K", bound=type[Policy])


def register(kind: K) -> K:
    """Let `evict=` find a policy by its name, with parameters left at their defaults.

    >>> register(FIFO) is POLICIES["fifo"]
    True
    """
    POLICIES[kind.name] = kind
    return kind


register(AUTO)
register(GDJ)
register(RECENT)
register(PROB)
register(AGE)
register(FIFO)
register(RAND)
register(TAIL)
