r"""Tune GDJ's initial credit while running: one shadow of the whole buffer tries the percentile next to the buffer's.

The shadow starts as a copy of the buffer's rows and credits, without payload, and gets all events. In a trial, the two
buffers first run until their rows differ, then their results are counted::

    buffer   0.2  -------------------------------------------> 0.35 ----
                 \ copy                                      /  if it has 0.3% more results
    shadow        0.35  . . . run-up . . . | . . . counted . .

After a trial that is won, the next trial goes in the same direction; after a lost one it goes in the other direction.
When both neighbours have lost, there is no shadow for a while. Decisions are made after fixed numbers of events and
depend only on previous events. The shadow gets all keys: if keys come in bursts, a sample shows little, and with one
key of four the chosen percentile was up to 17% off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from braided.errors import StateError
from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.gdj import FIRST_GUESS, GDJ
from braided.eviction.policies.policy import Policy
from braided.eviction.stored_rows import fill_rows, row_keys, slots_by_age

__all__ = ["FIRST", "PERCENTILES", "Challenge"]

PERCENTILES = (0.1, FIRST_GUESS, 0.35, 0.5)
"""The best percentile was among these on every stream that we have."""
FIRST = PERCENTILES.index(FIRST_GUESS)
_RUN_UP, _COUNTED, _REST, _LONG_REST = 8, 8, 1, 32  # epochs
_LEAD = 1.003
_KNOWN_BY = np.uint64(0xFFFFFFFF)  # a shadow uses and saves only 32 bits of a key


class Challenge:
    """Compares one other percentile at a time with that of the buffer."""

    first = FIRST

    def __init__(self, policy: GDJ) -> None:
        self.policies: list[Policy] = [replace(policy, initial=p) for p in PERCENTILES]
        self._policy = policy
        self.shadow: Buffer | None = None
        self._before: list[int] = []  # results of buffer and shadow when counting began
        self._left = _REST  # epochs until something happens
        self._tried = FIRST
        self._way = 1
        self._lost = 0  # trials in a row

    def policy_of(self, at: int) -> Policy:
        """Return the policy of the user: the percentile is in the state of its buffer."""
        return self._policy

    def feed(self, events: Events) -> None:
        """Pass the events to the shadow, if there is one."""
        if self.shadow is not None:
            rows = np.zeros(len(events.keys), np.int64)
            self.shadow.count(events._replace(keys=events.keys & _KNOWN_BY, rows=rows))

    def decide(self, following: int, main: Buffer) -> int:
        """End an epoch: return the percentile to follow, given the one followed so far; `main` is the buffer itself."""
        if len(main.state.probes):  # the buffer leaves out results that a shadow would count
            self._end(_REST)
            return following
        if self.shadow is not None and len(main.state.sizes):
            self.shadow.state.settings["room"] = max(len(main.state.streams), main.rows)
        self._left -= 1
        if self._left > 0:
            return following
        if self.shadow is None:
            self._begin(following, main)
            return following
        results = [main.counts["results"], self.shadow.counts["results"]]
        if not self._before:
            self._before, self._left = results, _COUNTED
            return following
        mine, theirs = results[0] - self._before[0], results[1] - self._before[1]
        if theirs > _LEAD * mine:
            self._lost = 0
            self._end(_REST)
            return self._tried
        self._lost += 1
        self._way = -self._way
        self._end(_LONG_REST if self._lost >= 2 else _REST)
        return following

    def follow(self, at: int, main: Buffer, now: int) -> Buffer:
        """Set another percentile in the buffer, and return it."""
        main.learned = main.learned._replace(percentile=PERCENTILES[at])
        return main

    def _begin(self, following: int, main: Buffer) -> None:
        """Start a trial if the buffer has evicted as many rows as its capacity."""
        if main.counts["evicted"] < main.capacity:
            self._left = _REST
            return
        if not 0 <= following + self._way < len(PERCENTILES):
            self._way = -self._way
            self._lost += 1
        self._tried, self._left = following + self._way, _RUN_UP
        self.shadow = _copied(main, PERCENTILES[self._tried])

    def _end(self, rest: int) -> None:
        self.shadow, self._before, self._left = None, [], rest
        if rest == _LONG_REST:
            self._lost = 0

    def to_bytes(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the state: a part for a JSON header, and the shadow if there is one."""
        facts = {
            "before": self._before,
            "left": self._left,
            "tried": self._tried,
            "way": self._way,
            "lost": self._lost,
        }
        return facts, [] if self.shadow is None else [self.shadow.to_bytes()]

    def restore(self, facts: dict[str, Any], saved: list[bytes], at: int, main: Buffer) -> None:
        self._before = [int(results) for results in facts["before"]]
        self._left, self._way, self._lost = int(facts["left"]), int(facts["way"]), int(facts["lost"])
        self._tried = range(len(PERCENTILES))[facts["tried"]]
        if len(saved) > 1 or len(self._before) not in (0, 2) or self._way not in (-1, 1):
            raise StateError("buffer: the saved header is damaged")
        self.shadow = Buffer.from_bytes(saved[0], self._policy) if saved else None


def _copied(old: Buffer, percentile: float) -> Buffer:
    """Return a buffer that continues with the rows and credits of `old` and another percentile.

    Rows have no ids, and keys have only the bits that a shadow uses.
    """
    alike: dict[str, Any] = {"streams": len(old.state.streams), "share": old.share, "results": old.results}
    new = Buffer(old.capacity, old.policy, window=old.window, **alike)
    before, after = old.state, new.state
    after.totals["events"] = before.totals["events"]
    after.streams["arrived"] = before.streams["arrived"]
    for name in ("now", "pools", "snapshot"):
        getattr(new.learned, name)[:] = getattr(old.learned, name)
    new.learned = new.learned._replace(percentile=percentile)
    slots = slots_by_age(before)
    rows = before.rows[slots]
    credit = rows["credit"] + before.chains["gained"][rows["entry"], rows["stream"]]
    stream, ids = rows["stream"].astype(np.int8), np.zeros(len(rows), np.int64)
    fill_rows(after, row_keys(before, slots) & _KNOWN_BY, rows["time"].copy(), stream, ids, credit)
    new.last_time = old.last_time
    return new
