"""A bounded buffer that tunes GDJ's initial credit (``initial="auto"``) or chooses the policy (AUTO) while it runs.

It has the interface of `Buffer`. It decides after fixed numbers of events, so calls do not matter (`shadows`,
`challenge`).
"""

from __future__ import annotations

from typing import Unpack

from braided.errors import BraidedError, StateError
from braided.eviction.buffer import Buffer, BufferOptions, Events, Outputs, Progress, Result, collect
from braided.eviction.policies.policy import Policy
from braided.eviction.sections import seal, unseal
from braided.eviction.tuning.tuner import Tuner

__all__ = ["AdaptiveBuffer", "buffer_from_bytes", "main_of", "make_buffer"]

_MAGIC = b"BRDA"


def make_buffer(capacity: int, policy: Policy, **options: Unpack[BufferOptions]) -> Buffer | AdaptiveBuffer:
    """Return the buffer that a policy needs: an adaptive one if the policy has a tuner.

    >>> from braided.eviction.policies.gdj import GDJ
    >>> type(make_buffer(100, GDJ(initial=0.9), window=(-5, 5))).__name__
    'Buffer'
    >>> type(make_buffer(100, GDJ(initial="auto"), window=(-5, 5))).__name__
    'AdaptiveBuffer'
    """
    kind = Buffer if policy.tuner() is None else AdaptiveBuffer
    return kind(capacity, policy, **options)


def buffer_from_bytes(data: bytes, policy: Policy) -> Buffer | AdaptiveBuffer:
    """Return a saved buffer of either kind."""
    return (Buffer if policy.tuner() is None else AdaptiveBuffer).from_bytes(data, policy)


def main_of(buffer: Buffer | AdaptiveBuffer) -> Buffer:
    """Return the buffer with the rows."""
    return buffer.main if isinstance(buffer, AdaptiveBuffer) else buffer


class AdaptiveBuffer:
    """A `Buffer` that follows the best of several policies or percentiles; parameters are those of `Buffer`.

    Cost: in addition to the buffer, shadows without payload. AUTO has 6 with about 1,000 rows each, or a quarter of the
    rows of a small buffer. GDJ has, at times, one with as many rows as the buffer.

    >>> from braided.eviction.policies.auto import AUTO
    >>> AdaptiveBuffer(100, AUTO(), window=(-5, 5)).following
    RECENT()
    """

    def __init__(self, capacity: int, policy: Policy, **options: Unpack[BufferOptions]) -> None:
        self._take_policy(policy)
        self.main = Buffer(capacity, self.tuner.policy_of(self._at), **options)

    def _take_policy(self, policy: Policy) -> None:
        tuner = policy.tuner()
        if tuner is None:
            raise BraidedError(f"policy={policy!r}: this policy has no tuner; use Buffer")
        self.policy = policy
        self.tuner: Tuner = tuner
        self._at = tuner.first

    @property
    def capacity(self) -> int:
        return self.main.capacity

    @property
    def rows(self) -> int:
        return self.main.rows

    @property
    def counts(self) -> dict[str, int]:
        return self.main.counts

    @property
    def following(self) -> Policy:
        return self.tuner.policies[self._at]

    def step(self, events: Events, start: int, **outputs: Unpack[Outputs]) -> Progress:
        """Process events from `start` like `Buffer.step`; it also stops at the end of an epoch."""
        epoch = max(512, self.capacity // 2)
        left = epoch - self.main.counts["events"] % epoch
        end = min(len(events.keys), start + left)
        progress = self.main.step(events.part(0, end), start, **outputs)
        done = progress.event - start
        if done:
            self.tuner.feed(events.part(start, progress.event))
        if done == left:
            at = self.tuner.decide(self._at, self.main)
            if at != self._at:
                self._at, self.main = at, self.tuner.follow(at, self.main, int(events.times[progress.event - 1]))
        return progress

    def count(self, events: Events) -> int:
        before, at = self.main.counts["pairs"], 0
        while at < len(events.keys):
            at = self.step(events, at).event
        return self.main.counts["pairs"] - before

    def run(self, events: Events, *, room: int = 1 << 16) -> Result:
        return collect(self, events, room)

    def to_bytes(self) -> bytes:
        facts, saved = self.tuner.to_bytes()
        saved = [self.main.to_bytes(), *saved]
        header = {"at": self._at, "tuner": facts, "lengths": [len(data) for data in saved]}
        return seal(_MAGIC, header, saved)

    @classmethod
    def from_bytes(cls, data: bytes, policy: Policy) -> AdaptiveBuffer:
        header, at = unseal(_MAGIC, data, "adaptive buffer")
        try:
            buffer = cls.__new__(cls)
            buffer._take_policy(policy)
            buffer._at = range(len(buffer.tuner.policies))[header["at"]]
            saved = []
            for size in header["lengths"]:
                saved.append(data[at : at + size])
                at += size
            buffer.main = Buffer.from_bytes(saved[0], buffer.tuner.policy_of(buffer._at))
            buffer.tuner.restore(header["tuner"], saved[1:], buffer._at, buffer.main)
        except BraidedError:
            raise
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise StateError(f"buffer: the saved header is damaged: {error}") from error
        return buffer
