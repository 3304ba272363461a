"""The policies that `evict=` knows by name: a line each."""

from __future__ import annotations

from typing import TypeVar

from braided.buffers.policies.age import AGE
from braided.buffers.policies.auto import AUTO
from braided.buffers.policies.fifo import FIFO
from braided.buffers.policies.gdj import GDJ
from braided.buffers.policies.policy import Policy
from braided.buffers.policies.prob import PROB
from braided.buffers.policies.random import RAND
from braided.buffers.policies.recent import RECENT

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
