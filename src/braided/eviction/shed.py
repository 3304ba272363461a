"""Shedding: rows are dropped at random before they reach the buffer, so results are a fair sample (section 4.2).

A hash of the row's content, and of its ordinal among identical rows, decides whether a row is dropped. The share is
fixed, or it is the share with which the rest just fits::

    p = 1 - B / (rate x window)         by Little's law, B rows then wait for the whole window

This is an average: if by chance more rows come, the policy still evicts some. The budget is divided among the streams
in proportion to their rows in the window, so p is the same for all streams. The rate is that of the last window,
counted in 64 panes, or of the time since the start if this is shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.errors import OptionError
from braided.eviction.buffer import Events
from braided.eviction.records import Bytes, Ints, Reals, UInt64s
from braided.routing.content import with_ordinals

__all__ = ["Shed", "Shedding", "check_shed"]

Shed = float | Literal["unbiased"]

_PANES = 64
_FEW = 32  # the least number of rows for which a rate is computed
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_WHOLE = float(1 << 53)


def check_shed(shed: Any, *, bounded: bool) -> Shed | None:
    """Return the checked option.

    >>> check_shed(1.5, bounded=True)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: shed=1.5: write a share of the rows to drop, at least 0 and below 1, or 'unbiased'
    """
    if shed is None:
        return None
    if shed == "unbiased":
        if not bounded:
            raise OptionError("shed='unbiased': needs a budget; set memory=, or write a share of the rows to drop")
        return "unbiased"
    if isinstance(shed, bool) or not isinstance(shed, int | float) or not 0 <= shed < 1:
        raise OptionError(f"shed={shed!r}: write a share of the rows to drop, at least 0 and below 1, or 'unbiased'")
    return float(shed)


def draws(contents: UInt64s, streams: Bytes) -> Reals:
    """Return a number from 0 to 1 for each row; identical rows get different numbers."""
    salted = contents ^ ((streams.astype(np.uint64) + np.uint64(1)) * _SPREAD)
    return (with_ordinals(salted) >> np.uint64(11)).astype(np.float64) / _WHOLE


class Shedding:
    """Chooses the events to drop.

    shed : a share, or ``"unbiased"``. capacity : that of the buffer. retention : how long a row of each stream is
        stored at most; below 0 if it is not stored.

    Cost: a hash per row, and for ``"unbiased"`` 64 numbers per stream. Events come in the order of `Buffer`, and
    identical events in the same call.
    """

    def __init__(self, shed: Shed, *, capacity: int, retention: Sequence[int]) -> None:
        self._shed, self._capacity = shed, capacity
        self._retention = np.array(retention, np.int64)
        self._panes = np.zeros((len(retention), _PANES), np.int64)
        self._at = np.zeros(len(retention) + 1, np.int64)  # each stream's pane of the last event; the time of the first
        self._seen = False

    def restore(self, saved: Any) -> None:
        self._panes[:], self._at[:], self._seen = saved["panes"], saved["at"], bool(saved["seen"])

    def drop(self, events: Events) -> npt.NDArray[np.bool_]:
        """Return which of the next events are dropped."""
        drawn = draws(events.contents, events.streams)
        if self._shed != "unbiased":
            fixed: npt.NDArray[np.bool_] = drawn < self._shed
            return fixed
        if len(drawn) and not self._seen:
            self._at[-1], self._seen = events.times[0], True
        out = np.zeros(len(drawn), np.bool_)
        _drop(self._panes, self._at, self._retention, self._capacity, events.times, events.streams, drawn, out)
        return out

    def to_json(self) -> Any:
        return {"panes": self._panes.tolist(), "at": self._at.tolist(), "seen": self._seen}


@compiled
def _drop(
    panes: Ints,
    at: Ints,
    retention: Ints,
    capacity: int,
    times: Ints,
    streams: Bytes,
    drawn: Reals,
    out: npt.NDArray[np.bool_],
) -> None:
    for i in range(len(times)):
        time = times[i]
        for s in range(len(panes)):
            width = max(0, retention[s]) // _PANES + 1
            pane = time // width
            passed = min(pane - at[s], _PANES)
            for k in range(passed):
                panes[s, (pane - k) % _PANES] = 0
            at[s] = pane
            if s == streams[i]:
                panes[s, pane % _PANES] += 1
        expected = 0.0
        for s in range(len(panes)):
            if retention[s] < 0:
                continue
            width = retention[s] // _PANES + 1
            seen = 0
            for k in range(_PANES):
                seen += panes[s, k]
            covered = min(time - at[len(panes)] + 1, (_PANES - 1) * width + time % width + 1)
            rows = float(seen)
            if seen >= _FEW:
                rows = seen * (retention[s] + 1) / covered
            expected += rows
        out[i] = drawn[i] < 1.0 - capacity / expected if expected > capacity else False
