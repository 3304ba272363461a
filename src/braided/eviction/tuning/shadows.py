"""Find the best policy: small shadow buffers try policies on a sample of keys, and the buffer follows the best one.

A shadow stores no payload and only counts its results. It gets the rows of one key of `sample`, chosen by a hash, and
its share of the capacity is the share of these rows among all rows::

    events ---------------------------------> the buffer        RECENT
       \\__ keys of the sample __> shadow RECENT    results  7,102
                               |> shadow GDJ       results  9,350  <- best: the buffer follows
                               |> shadow FIFO      results  8,800

Decisions are made after fixed numbers of events and depend only on previous events, so batch cuts and restarts change
nothing. A change needs a lead of 0.3% in the scores, at the start of 25%. In a score, an epoch counts 99% of the next
one; the first candidates have a bonus. On measured streams of ten windows and more, scores with shorter memories
follow bursts that are already over.

A shadow has about 1,000 rows for any size of the buffer, so its share of the cost is smaller for larger buffers. If
there are few keys, it has more rows, so that its sample has 32 keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from braided.errors import StateError
from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.auto import AUTO
from braided.eviction.policies.counting_policy import KeyCounts
from braided.eviction.policies.policy import Policy
from braided.eviction.policies.recent import RECENT, note_all
from braided.eviction.sections import Reader, Writer
from braided.eviction.tuning.switch import switched

__all__ = ["Shadows"]

_ROWS = 1024  # the approximate rows of a shadow, unless there are few keys or the buffer is small
_KEYS = 32  # the approximate least number of keys in a sample of fewer than one key of four
_FADE = 0.99
_LEAD = 1.003
_YOUNG = 20  # epochs (two windows with a budget of 20%) after which scores are reliable
_YOUNG_LEAD = 1.25  # the lead that is needed before that
_WARM = 4  # how many times its room a shadow must have evicted or refused before its score counts
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(0xD1B54A32D192ED03)
_KNOWN_BY = np.uint64(0xFFFFFFFF)  # shadows use and save only 32 bits of a key


class Shadows:
    """Small buffers, one for each candidate of AUTO, which get the events of a sample of keys.

    RECENT counts how often keys occur. While the buffer follows another policy, this is counted here, so that rows get
    credits when the policy changes again.
    """

    first = 0

    def __init__(self, policy: AUTO) -> None:
        candidates = policy.candidates()
        self.policies: list[Policy] = [candidate for candidate, _ in candidates]
        self.bonus = np.array([bonus for _, bonus in candidates])
        self._counts: KeyCounts | None = None  # while the buffer follows a policy that does not count
        self._least_sample = policy.sample
        self.sample = 1
        self.buffers: list[Buffer] = []
        self.scores = np.zeros(len(self.policies))
        self.before = np.zeros(len(self.policies), np.int64)
        self.seen = np.zeros(2)  # rows of the sample, all rows; both fade
        self.scored = 0  # epochs

    def policy_of(self, at: int) -> Policy:
        return self.policies[at]

    def feed(self, events: Events) -> None:
        """Pass the events of the sample to every shadow."""
        if self._counts is not None:
            note_all(self._counts, events.keys, events.times, events.streams)
        if not self.buffers:
            return
        mixed = (events.keys ^ _SEED) * _SPREAD
        mine = ((mixed >> np.uint64(33)) % np.uint64(self.sample)) == 0
        self.seen += mine.sum(), len(mine)
        if mine.any():
            part = events.pick(mine)
            part = part._replace(keys=mixed[mine] & _KNOWN_BY, rows=np.zeros(len(part.keys), np.int64))
            for buffer in self.buffers:
                buffer.count(part)

    def decide(self, following: int, main: Buffer) -> int:
        """End an epoch: return the policy to follow, given the one followed so far; `main` is the buffer itself."""
        if not self.buffers:
            self._begin(main)
            return following
        results = np.array([b.counts["results"] for b in self.buffers])
        self.scores = _FADE * self.scores + (results - self.before)
        self.before = results
        if self.seen[1]:
            self._set_room(main.capacity, self.seen[0] / self.seen[1])
        self.seen *= _FADE
        if any(b.counts["evicted"] + b.counts["refused"] < _WARM * b.state.settings["room"][0] for b in self.buffers):
            self.scores[:] = 0.0
            return following
        self.scored += 1
        scores = self.scores * self.bonus
        best = int(np.argmax(scores))
        if scores[best] > (_YOUNG_LEAD if self.scored < _YOUNG else _LEAD) * scores[following]:
            return best
        return following

    def follow(self, at: int, main: Buffer, now: int) -> Buffer:
        """Return a buffer of another policy."""
        counts = main.learned if self._counts is None else self._counts
        self._counts = None if isinstance(self.policies[at], RECENT) else counts
        return switched(main, self.policies[at], counts=counts, shadow=self.buffers[at].learned, now=now)

    def _begin(self, main: Buffer) -> None:
        """Create the shadows after the first epoch, when the number of keys is known approximately."""
        keys = int(main.learned.head["keys"][0])  # the first policy is RECENT
        self.sample = max(self._least_sample, min(main.capacity // _ROWS, keys // _KEYS))
        streams = len(main.state.streams)
        size = max(streams, min(main.capacity, 2 * main.capacity // self.sample + 8))
        alike: dict[str, Any] = {"window": main.window, "share": main.share, "results": main.results}
        self.buffers = [Buffer(size, p, streams=streams, **alike) for p in self.policies]
        self._set_room(main.capacity, 1.0 / self.sample)

    def to_bytes(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the state: a part for a JSON header, and the buffers of the shadows."""
        facts = {"scores": self.scores.tolist(), "before": self.before.tolist(), "seen": self.seen.tolist()}
        saved = [buffer.to_bytes() for buffer in self.buffers]
        if self._counts is not None:
            write = Writer()
            facts["counts"] = {"learned": RECENT().save(self._counts, write), "sections": write.facts}
            saved.append(b"".join(write.parts))
        return {**facts, "sample": self.sample, "scored": self.scored}, saved

    def restore(self, facts: dict[str, Any], saved: list[bytes], at: int, main: Buffer) -> None:
        if "counts" in facts:
            *saved, data = saved
            read = Reader(facts["counts"]["sections"], data, 0)
            self._counts = RECENT().load(RECENT().learned(main.shape), facts["counts"]["learned"], read)
            read.end()
        if saved:
            self.buffers = [Buffer.from_bytes(data, p) for data, p in zip(saved, self.policies, strict=True)]
        self.sample, self.scored = int(facts["sample"]), int(facts["scored"])
        self.scores = np.array(facts["scores"], np.float64)
        self.before = np.array(facts["before"], np.int64)
        self.seen = np.array(facts["seen"], np.float64)
        if not len(self.scores) == len(self.before) == len(self.policies) or len(self.seen) != 2 or self.sample < 1:
            raise StateError("buffer: the saved header is damaged")

    def _set_room(self, capacity: int, share: float) -> None:
        for buffer in self.buffers:
            least = len(buffer.state.streams)
            buffer.state.settings["room"] = min(buffer.capacity, max(least, round(capacity * share)))
