"""The interface of a tuner: it gets all events, and chooses the next policy at the end of each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.policy import Policy

__all__ = ["Tuner"]


class Tuner(Protocol):
    """Chooses among policies. Its decisions depend only on previous events."""

    @property
    def policies(self) -> Sequence[Policy]:
        """The policies to choose from."""

    @property
    def first(self) -> int:
        """The number of the policy to start with."""

    def policy_of(self, at: int) -> Policy:
        """Return the policy of the buffer that follows one of `policies`."""

    def feed(self, events: Events) -> None:
        """Take events that the buffer has finished."""

    def decide(self, at: int, main: Buffer) -> int:
        """End an epoch: return which policy to follow, given the one followed so far and the buffer itself."""

    def follow(self, at: int, main: Buffer, now: int) -> Buffer:
        """Return the buffer that follows another policy from now on, with the rows of `main`; or `main` itself."""

    def to_bytes(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the state: a part for a JSON header, and buffers."""

    def restore(self, facts: dict[str, Any], saved: list[bytes], at: int, main: Buffer) -> None:
        """Restore the saved state; the buffer follows policy number `at`."""
