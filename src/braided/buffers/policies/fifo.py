"""FIFO: the oldest row gives way; what is kept is a shorter window (sections 4.2 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

from braided.buffers.policies.policy import Plan
from braided.buffers.records import FIFO


@dataclass(frozen=True, kw_only=True)
class Fifo:
    """The row stored first gives way; a newcomer is always stored.

    >>> Fifo().plan().code == FIFO
    True
    """

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers."""
        return Plan(FIFO)
