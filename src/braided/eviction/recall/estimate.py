"""Compute recall from the sums that workers report; plain Python, so that reading a report compiles nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["RecallEstimate", "recall_of"]


class RecallEstimate(NamedTuple):
    """The share of the exact join's results that were returned, and its standard error; None without any results."""

    recall: float | None
    error: float | None


def recall_of(sums: list[float]) -> RecallEstimate:
    """Return the estimate from the sums of one worker, or from the added sums of several workers.

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
