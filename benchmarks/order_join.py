"""What learned lateness saves a join: the rows it keeps, and the results it loses, on two network logs.

Name look-ups (`zeek_dns`) meet the connections (`zeek_ssl`) of the same host up to 30 seconds after them. The logs have
no common order of arrival; a row is taken to arrive when its own log's clock, the largest time in it so far, says. Rows
leave by the join's rule, with K taken after every row: no Spark and no batches here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import pyarrow.parquet as pq

from braided.compiled import compiled
from braided.sim.slack import slack_rows
from braided.time.lateness import Lateness

LO, HI = 0, 30_000_000
HAND_SET = 600_000_000
MIN_TIME = -(1 << 63)


def measure(data: Path) -> list[dict[str, Any]]:
    """Compare learned K with 10 minutes: rows kept on average, and the share of the results that is found."""
    times, hosts, clocks = [], [], []
    for name in ("zeek_dns", "zeek_ssl"):
        rows = pq.read_table(data / f"{name}.parquet").sort_by("seq")
        times.append(rows["time"].cast("int64").to_numpy())
        hosts.append(rows["id_orig_h"].to_numpy(zero_copy_only=False).astype(str))
        clocks.append(np.maximum.accumulate(times[-1]))
    side = np.repeat([0, 1], [len(part) for part in times])
    order = np.lexsort((side, np.concatenate(clocks)))
    keys = np.unique(np.concatenate(hosts), return_inverse=True)[1][order]
    at, side = np.concatenate(times)[order], side[order]
    whole, most = follow(at, side, keys, [np.full(len(part), 1 << 60) for part in times])
    fixed, kept = follow(at, side, keys, [np.full(len(part), HAND_SET) for part in times])
    lines = []
    for name, spec in {
        "recall 0.999": Lateness(recall=0.999, floor="0 seconds"),
        "recall 0.999, floor 10 s": Lateness(recall=0.999),
        "largest delay": Lateness(),
    }.items():
        lateness = [slack_rows(part, spec, reach=HI - LO).lateness for part in times]
        found, rows = follow(at, side, keys, lateness)
        lines.append(
            {
                "benchmark": "order_join",
                "rule": name,
                "results": whole,
                "found": round(found / whole, 5),
                "found_10_minutes": round(fixed / whole, 5),
                "rows_kept": round(rows),
                "rows_kept_10_minutes": round(kept),
                "rows_kept_for_ever": round(most),
                "ratio": round(rows / kept, 3),
                "mean_k_s": [round(float(part.mean()) / 1e6, 1) for part in lateness],
            }
        )
    return lines


def follow(at: Any, side: Any, keys: Any, lateness: list[Any]) -> tuple[int, float]:
    """Return the results found and the rows kept on average, for K after each row of each side."""
    k = np.empty(len(at), np.int64)
    for which in (0, 1):
        k[side == which] = lateness[which]
    # The horizon of each side, after every arrival of the other.
    horizons = np.full((2, len(at)), MIN_TIME)
    for which, retention in ((0, HI), (1, -LO)):
        other = side != which
        horizons[which, other] = np.maximum.accumulate(at[other]) - k[other] - retention
        horizons[which] = np.maximum.accumulate(horizons[which])
    left_at = np.where(
        side == 0, np.searchsorted(horizons[0], at, side="right"), np.searchsorted(horizons[1], at, side="right")
    )
    arrived = np.arange(len(at))
    kept = np.maximum(0, left_at - arrived).sum() / len(at)
    rows = np.lexsort((at, side, keys))
    return int(_count(at[rows], side[rows], keys[rows], arrived[rows], left_at[rows])), float(kept)


@compiled
def _count(at: Any, side: Any, keys: Any, arrived: Any, left_at: Any) -> int:
    """Count the pairs of a host within the bounds whose earlier row is kept until the later arrives."""
    found = start = 0
    for row in range(len(at)):
        if keys[row] != keys[start]:
            start = row
        if side[row] == 0:
            continue
        other = start
        while side[other] == 0 and at[other] < at[row] - HI:
            other += 1
        while side[other] == 0 and at[other] <= at[row] - LO:
            first, last = (other, row) if arrived[other] < arrived[row] else (row, other)
            found += left_at[first] > arrived[last] - 1
            other += 1
    return found
