"""What tunes a buffer while it runs: it sees all events, and at the end of an epoch says what to follow next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.policy import Policy

__all__ = ["Tuner"]


class Tuner(Protocol):
    """Chooses among policies. Decisions depend on the events before alone."""

    @property
    def policies(self) -> Sequence[Policy]:
        """What it chooses among."""

    @property
    def first(self) -> int:
        """The number of the policy to start with."""

    def policy_of(self, at: int) -> Policy:
        """Return the policy of the buffer that follows one of `policies`."""

    def feed(self, events: Events) -> None:
        """See events that the buffer has finished."""

    def decide(self, at: int, main: Buffer) -> int:
        """End an epoch: return which policy to follow, given the one followed so far and the buffer itself."""

    def follow(self, at: int, main: Buffer, now: int) -> Buffer:
        """Return the buffer that follows another policy from now on, with the rows of `main`; or `main` itself."""

    def to_bytes(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return what it remembers: a part for a JSON header, and buffers."""

    def restore(self, facts: dict[str, Any], saved: list[bytes], at: int, main: Buffer) -> None:
        """Go on from what was saved, while the buffer follows a policy."""
