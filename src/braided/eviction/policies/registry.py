"""The policies that `evict=` supports by name, with one line for each."""

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
    """Make a policy, with its default parameters, known to `evict=` by its name.

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
