"""Recall from the sums that workers report: plain numbers, so that reading a report compiles nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["RecallEstimate", "recall_of"]


class RecallEstimate(NamedTuple):
    """The share of the exact join's results that came out, and the standard error; None before there are any."""

    recall: float | None
    error: float | None


def recall_of(sums: list[float]) -> RecallEstimate:
    """Return the estimate from sums, of one worker or added up over several.

    >>> recall_of([100.0, 50.0, 400.0, 200.0, 100.0, 60.0])
    RecallEstimate(recall=0.5, error=0.0)
    """
    matches, results, mm, mf, ff, pairs = sums
    slope = mf / ff if ff > 0 else 0.0
    exact = max(pairs, matches + slope * (pairs - results))
    if exact <= 0:
        return RecallEstimate(None, None)
    variance = max(0.0, mm - 2 * slope * mf + slope * slope * ff)
    recall = pairs / exact
    return RecallEstimate(recall, recall * math.sqrt(variance) / exact)
