"""Tuning while running: small shadow buffers try out settings on a sample of keys, and the buffer follows the best.

A shadow stores no payload and only counts its results. It sees the rows of one key in `sample`, picked by a
hash, and has the share of the capacity that those rows are of all rows::

    events ---------------------------------> the buffer        initial = 0.2
       \\__ keys of the sample __> shadow 0.1    results  7,102
                               |> shadow 0.2    results  9,350  <- best: the buffer follows
                               |> shadow 0.5    results  8,800

Decisions fall at fixed numbers of events and depend on the events before alone, so cuts and restarts change
nothing. A change needs a lead of 0.3%, over scores in which an epoch counts 99% of the next one; the first
candidate has a bonus. Measured on streams of ten windows and more: shorter memories follow bursts that are over.
Where keys come in bursts, a sample of them says little: with one key in four, GDJ's percentile was up to 17% off.
So GDJ's shadows see all keys, and few percentiles are tried: 0.1 to 0.5 held the best on every stream we have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from braided.buffers.age import Age
from braided.buffers.auto import Auto
from braided.buffers.buffer import Buffer, Events, Results, Share
from braided.buffers.fifo import Fifo
from braided.buffers.gdj import FIRST_GUESS, Gdj
from braided.buffers.policy import Policy
from braided.buffers.random import Random
from braided.buffers.recent import Recent
from braided.errors import BraidedError

__all__ = ["PERCENTILES", "Shadows", "candidates"]

PERCENTILES = (FIRST_GUESS, 0.1, 0.35, 0.5)
_FADE = 0.99
_LEAD = 1.003
_FIRST_BONUS = 1.01
_MIXED_BONUS = 1.03  # of RECENT's memories over its long one alone
_BONUS = 1.25  # RECENT, of either memory, is left for what beats it clearly: a sample of keys errs by up to 10%
_WARM = 4  # times its room that a shadow must have given up before its score says something
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0xD1B54A32D192ED03)


def candidates(policy: Policy) -> list[Policy]:
    """Return what shadows try out for a policy, the first guess first; none if it has nothing to tune."""
    if isinstance(policy, Auto):
        return [Recent(), Recent(memory="long"), Gdj(initial=0.35), Age(), Fifo(), Random(seed=policy.seed)]
    if isinstance(policy, Gdj) and policy.initial == "auto" and policy.constant is None:
        return [replace(policy, initial=p) for p in PERCENTILES]
    return []


class Shadows:
    """Small buffers, one per candidate, fed with the events of a sample of keys."""

    def __init__(
        self,
        policies: list[Policy],
        *,
        capacity: int,
        window: tuple[int, int],
        streams: int = 2,
        share: Share = "unified",
        results: Results = "pairs",
        sample: int = 4,
    ) -> None:
        if sample < 1:
            raise BraidedError(f"{sample=}: write a whole number above 0; one key in so many is tried out")
        self.policies, self.sample, self.capacity = policies, sample, capacity
        size = max(streams, capacity if sample == 1 else min(capacity, 2 * capacity // sample + 8))
        self.buffers = [Buffer(size, p, window=window, streams=streams, share=share, results=results) for p in policies]
        self.scores = np.zeros(len(policies))
        self.bonus = np.array([_BONUS if isinstance(p, Recent) else 1.0 for p in policies])
        self.bonus[0] *= _MIXED_BONUS if isinstance(policies[0], Recent) else _FIRST_BONUS
        self.before = np.zeros(len(policies), np.int64)
        self.seen = np.zeros(2)  # rows of the sample, all rows; both fade
        self._set_room(1.0 / sample)

    def feed(self, events: Events) -> None:
        """Let every shadow see the events of the sample."""
        mixed = (events.keys ^ _SEED) * _SPREAD
        mine = ((mixed >> np.uint64(33)) % np.uint64(self.sample)) == 0
        self.seen += mine.sum(), len(mine)
        if mine.any():
            part = events.pick(mine)
            for buffer in self.buffers:
                buffer.count(part)

    def decide(self, following: int) -> int:
        """End an epoch: return the candidate to follow, given the one followed so far."""
        results = np.array([b.counts["results"] for b in self.buffers])
        self.scores = _FADE * self.scores + (results - self.before)
        self.before = results
        if self.seen[1]:
            self._set_room(self.seen[0] / self.seen[1])
        self.seen *= _FADE
        if any(b.counts["evicted"] + b.counts["refused"] < _WARM * b.state.settings["room"][0] for b in self.buffers):
            self.scores[:] = 0.0
            return following
        scores = self.scores * self.bonus
        best = int(np.argmax(scores))
        if scores[best] > _LEAD * scores[following]:
            return best
        return following

    def to_bytes(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return what the shadows remember: a part for a JSON header, and their buffers."""
        facts = {"scores": self.scores.tolist(), "before": self.before.tolist(), "seen": self.seen.tolist()}
        return facts, [buffer.to_bytes() for buffer in self.buffers]

    def restore(self, facts: dict[str, Any], saved: list[bytes]) -> None:
        """Go on from what was saved."""
        self.buffers = [Buffer.from_bytes(data, p) for data, p in zip(saved, self.policies, strict=True)]
        self.scores = np.array(facts["scores"], np.float64)
        self.before = np.array(facts["before"], np.int64)
        self.seen = np.array(facts["seen"], np.float64)
        if not len(self.scores) == len(self.before) == len(self.buffers) or len(self.seen) != 2:
            raise BraidedError("buffer: the saved header is damaged")

    def _set_room(self, share: float) -> None:
        for buffer in self.buffers:
            least = len(buffer.state.streams)
            buffer.state.settings["room"] = min(buffer.capacity, max(least, round(self.capacity * share)))
