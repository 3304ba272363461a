"""A bounded buffer that tunes itself: GDJ's initial credit (``initial="auto"``), or the policy as such (`Auto`).

It has the interface of `Buffer`, and decides at every so many events, whatever the cuts (`braided.buffers.tuning`).
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

from braided.buffers.auto import Auto, Followed
from braided.buffers.buffer import Buffer, Events, Progress, Result, Results, Share, collect
from braided.buffers.gdj import Gdj
from braided.buffers.policy import Policy
from braided.buffers.state import Bytes, Ints
from braided.buffers.switch import switched
from braided.buffers.tuning import Shadows, candidates
from braided.errors import BraidedError

__all__ = ["AdaptiveBuffer", "buffer_from_bytes", "main_of", "make_buffer"]

_MAGIC = b"BRDA"
_PREFIX = struct.Struct("<4sIQ")
_SAMPLE = 1  # of GDJ's shadows: see tuning.py


def make_buffer(
    capacity: int,
    policy: Policy,
    *,
    window: tuple[int, int],
    streams: int = 2,
    share: Share = "unified",
    results: Results = "pairs",
) -> Buffer | AdaptiveBuffer:
    """Return the buffer that a policy needs: one that tunes itself if there is something to tune.

    >>> type(make_buffer(100, Gdj(initial=0.9), window=(-5, 5))).__name__
    'Buffer'
    >>> type(make_buffer(100, Gdj(initial="auto"), window=(-5, 5))).__name__
    'AdaptiveBuffer'
    """
    kind = AdaptiveBuffer if candidates(policy) else Buffer
    return kind(capacity, policy, window=window, streams=streams, share=share, results=results)


def buffer_from_bytes(data: bytes, policy: Policy) -> Buffer | AdaptiveBuffer:
    """Return the buffer that was saved by `to_bytes` of either kind."""
    return (AdaptiveBuffer if candidates(policy) else Buffer).from_bytes(data, policy)


def main_of(buffer: Buffer | AdaptiveBuffer) -> Buffer:
    """Return the buffer that has the rows."""
    return buffer.main if isinstance(buffer, AdaptiveBuffer) else buffer


class AdaptiveBuffer:
    """A `Buffer` that follows the best of several candidates; parameters are those of `Buffer`.

    Cost: beside the buffer, shadows without payload: for `Auto`, half as many places as it has for each of 6
    candidates, which see a quarter of the keys; for GDJ, as many as it has for each of 4. That takes 2 to 6 times
    the kernel's time; a larger `sample` costs less and errs more.

    >>> buffer = AdaptiveBuffer(100, Auto(), window=(-5, 5))
    >>> buffer.following
    Recent(memory='mixed', refresh=None, count_keys=None)
    """

    def __init__(
        self,
        capacity: int,
        policy: Policy,
        *,
        window: tuple[int, int],
        streams: int = 2,
        share: Share = "unified",
        results: Results = "pairs",
    ) -> None:
        self._candidates = candidates(policy)
        if not self._candidates:
            raise BraidedError(f"policy={policy!r}: has nothing to tune; use Buffer")
        self.policy = policy
        self._at = 0
        alike: dict[str, Any] = {"window": window, "streams": streams, "share": share, "results": results}
        self.main = Buffer(capacity, self._start(), **alike)
        sample = policy.sample if isinstance(policy, Auto) else _SAMPLE
        self.shadows = Shadows(self._candidates, capacity=capacity, sample=sample, **alike)
        self.epoch = max(512, capacity // 2)

    def _start(self) -> Policy:
        return Followed(self._candidates[0]) if isinstance(self.policy, Auto) else self.policy

    @property
    def capacity(self) -> int:
        """Rows stored at most."""
        return self.main.capacity

    @property
    def rows(self) -> int:
        """Rows stored now."""
        return self.main.rows

    @property
    def counts(self) -> dict[str, int]:
        """Totals since the start, as those of `Buffer`."""
        return self.main.counts

    @property
    def following(self) -> Policy:
        """The candidate that the buffer follows now."""
        return self._candidates[self._at]

    def step(
        self,
        events: Events,
        start: int,
        *,
        pair_event: Ints | None = None,
        pair_row: Ints | None = None,
        gone_row: Ints | None = None,
        gone_why: Bytes | None = None,
    ) -> Progress:
        """Process events from `start` as `Buffer.step` does; also stops, sooner than it must, at an epoch's end."""
        left = self.epoch - self.main.counts["events"] % self.epoch
        end = min(len(events.keys), start + left)
        progress = self.main.step(
            events.part(0, end), start, pair_event=pair_event, pair_row=pair_row, gone_row=gone_row, gone_why=gone_why
        )
        done = progress.event - start
        if done:
            self.shadows.feed(events.part(start, progress.event))
        if done == left:
            self._follow(self.shadows.decide(self._at), int(events.times[progress.event - 1]))
        return progress

    def count(self, events: Events) -> int:
        """Process all events and return the number of pairs."""
        before, at = self.main.counts["pairs"], 0
        while at < len(events.keys):
            at = self.step(events, at).event
        return self.main.counts["pairs"] - before

    def run(self, events: Events, *, room: int = 1 << 16) -> Result:
        """Process all events and return every pair and every row that went."""
        return collect(self, events, room)

    def _follow(self, at: int, now: int) -> None:
        before, after = self.following, self._candidates[at]
        self._at = at
        if isinstance(after, Gdj) and (isinstance(before, Gdj) or not isinstance(self.policy, Auto)):
            self.main.state.settings["percentile"] = after.initial
            if isinstance(self.policy, Auto):
                self.main.plan = Followed(after).plan()
        elif before != after:
            keep = self.shadows.buffers[at].state.streams["keep"]
            self.main = switched(self.main, Followed(after), keep=keep, now=now)

    def to_bytes(self) -> bytes:
        """Return the buffer and its shadows as bytes."""
        facts, saved = self.shadows.to_bytes()
        saved = [self.main.to_bytes(), *saved]
        header: dict[str, Any] = {"at": self._at, "shadows": facts}
        header["main"] = {"capacity": self.capacity, "window": self.main.window, "share": self.main.share}
        header["main"] |= {"streams": len(self.main.state.streams), "results": self.main.results}
        header["lengths"] = [len(data) for data in saved]
        text = json.dumps(header, sort_keys=True).encode()
        body = text + b"".join(saved)
        return _PREFIX.pack(_MAGIC, zlib.crc32(body), len(text)) + body

    @classmethod
    def from_bytes(cls, data: bytes, policy: Policy) -> AdaptiveBuffer:
        """Return the buffer that was saved, whose policy must be the same."""
        if len(data) < _PREFIX.size or data[:4] != _MAGIC:
            raise BraidedError("buffer: these bytes are not a saved adaptive buffer")
        _, crc, length = _PREFIX.unpack_from(data)
        if zlib.crc32(data[_PREFIX.size :]) != crc:
            raise BraidedError("buffer: the saved bytes are damaged (their checksum differs)")
        try:
            at = _PREFIX.size + length
            header = json.loads(data[_PREFIX.size : at])
            options = header["main"]
            window = tuple(options["window"])
            alike = {name: options[name] for name in ("streams", "share", "results")}
            buffer = cls(options["capacity"], policy, window=window, **alike)
            buffer._at = range(len(buffer._candidates))[header["at"]]
            saved = []
            for size in header["lengths"]:
                saved.append(data[at : at + size])
                at += size
            followed = Followed(buffer.following) if isinstance(policy, Auto) else policy
            buffer.main = Buffer.from_bytes(saved[0], followed)
            buffer.shadows.restore(header["shadows"], saved[1:])
        except BraidedError:
            raise
        except (KeyError, TypeError, IndexError, ValueError) as error:
            raise BraidedError(f"buffer: the saved header is damaged: {error}") from error
        return buffer
