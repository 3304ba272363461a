"""D, how much earlier than its trigger a detector may date an event: declared, or learned from what it publishes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from braided.runtime.contract import Json
from braided.time.lateness import Lateness
from braided.time.learning.learner import Learner

LEARNED = Lateness(floor="0 seconds", measure="next")
"""How the delay of a detector is learned by default: half a standard deviation above the largest, from 0 on."""

# The number of changes that are kept for the report.
_HISTORY = 16


class DetectionDelay:
    """D of one detector, from batch to batch.

    It starts with 0, or the floor: an event that is dated earlier than anything before it may come too late for the
    detectors above (EBS, footnote 1 and section 4.1).

    >>> delay = DetectionDelay(Lateness(margin=0, floor="0 seconds"), None)
    >>> delay.take(np.array([3, 20, 7]), 100)
    >>> delay.now
    20
    """

    def __init__(self, rule: int | Lateness, state: Json | None) -> None:
        self._fixed = rule if isinstance(rule, int) else None
        self._learner = None
        self.history: list[list[int]] = [] if state is None else state["history"]
        if isinstance(rule, Lateness):
            # Events are rare, so the measure of the paper starts at once and does not wait for a number of rows.
            rule = replace(rule, measure="next")
            self._learner = Learner(rule) if state is None else Learner.from_json(state["learner"], rule)

    @property
    def now(self) -> int:
        """D in microseconds."""
        if self._fixed is not None:
            return self._fixed
        assert self._learner is not None
        return self._learner.lateness

    def take(self, delays: npt.NDArray[np.int64], clock: int) -> None:
        """Learn from how much earlier than their triggers events were dated, up to the time `clock`."""
        if self._learner is None or not len(delays):
            return
        known = self.now
        self._learner.learn(np.maximum(delays, 0), clock)
        if self.now != known:
            self.history = [*self.history, [clock, self.now]][-_HISTORY:]

    def to_json(self) -> Json:
        return {"history": self.history, "learner": None if self._learner is None else self._learner.to_json()}
