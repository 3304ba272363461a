"""Reading reports out of a streaming query's progress."""

from __future__ import annotations

import json
from typing import Any

from braided.errors import BraidedError
from braided.runtime.report import Report
from braided.runtime.spark import METRIC


def read_report(query: Any, name: str | None = None) -> Report:
    """See `braided.report`."""
    if not hasattr(query, "recentProgress"):
        raise BraidedError(f"query={type(query).__name__}: give the StreamingQuery that start() returned")
    names: set[str] = set()
    for progress in reversed(query.recentProgress):
        found = {
            metric[len(METRIC) : -len(":work")]: row["reports"]
            for metric, row in progress.observedMetrics.items()
            if metric.startswith(METRIC) and metric.endswith(":work") and row["reports"]
        }
        names |= set(found)
        chosen = name if name is not None else max(found, default=None)
        if chosen is not None and chosen in found:
            reports = [json.loads(text) for text in found[chosen]]
            result = Report.of_workers(chosen, progress.batchId, reports)
            result.query["id"] = str(query.id)
            return result
    if name is not None and names:
        raise BraidedError(f"name={name!r}: this query has no such join; it has {', '.join(sorted(names))}")
    raise BraidedError("query: no braided join has reported yet; wait for its first batch with data")
