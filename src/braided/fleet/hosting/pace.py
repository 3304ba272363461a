"""Whether a query keeps up with its input, from samples of its batches."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise

_BATCHES = 3
"""The number of batches to compare: a single one that is slow, or leaves more rows than the last, means nothing."""
_HANGS = 30.0
"""Seconds by which a batch may take longer than the previous one."""


class Pace:
    """Takes samples of a query's last batch, and detects whether the query falls behind.

    It falls behind if the last batches all took longer than the trigger's interval; without an interval, if each left
    more rows waiting than the previous one; and if a batch takes far longer than the previous one took.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._batches: deque[tuple[int, float, int | None]] = deque(maxlen=_BATCHES)
        self._since = clock()

    def look(self, batch: int, seconds: float, interval: float | None, backlog: int | None, is_active: bool) -> bool:
        """Take the last ended batch, and whether another one is running; return whether the query falls behind."""
        if not self._batches or self._batches[-1][0] != batch:
            self._batches.append((batch, seconds, backlog))
            self._since = self._clock()
        elif not is_active:
            self._since = self._clock()
            if interval is None or seconds <= interval:
                self._batches.clear()  # it waits for input
        if is_active and self._clock() - self._since > seconds + (interval or 0.0) + _HANGS:
            return True
        if len(self._batches) < _BATCHES:
            return False
        if interval is not None:
            return all(took > interval for _, took, _ in self._batches)
        waiting = [rows for _, _, rows in self._batches if rows is not None]
        return len(waiting) == _BATCHES and all(one < other for one, other in pairwise(waiting))


def offsets_between(end: str | None, latest: str | None) -> int | None:
    """Return how many offsets of Kafka are after the end of a batch, in Spark's format; None if one is missing.

    >>> offsets_between('{"calls":{"0":7,"1":3}}', '{"calls":{"0":10,"1":3,"2":5}}')
    8
    >>> offsets_between(None, "{}") is None
    True
    """
    try:
        done, there = json.loads(end or "null"), json.loads(latest or "null")
        if done is None:
            return None
        return sum(
            max(0, int(newest) - int(done.get(topic, {}).get(partition, 0)))
            for topic, partitions in there.items()
            for partition, newest in partitions.items()
        )
    except (AttributeError, TypeError, ValueError):
        return None
