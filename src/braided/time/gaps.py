"""The usual gaps between the rows of a stream: they distinguish a sparse stream from a wrong clock.

```
 [#]---2 h---[#]--1 h--[#]---2 h---[#]-----3 h-----[#]--------------- 1 year ---------------[#]
```

Most rows of a sparse stream are hours apart. So a row that is hours ahead may be right, but a row that is a year ahead
is probably wrong. A sparse stream may be silent for `SPARSE` times its usual gap, the median gap of its last rows.

*Why a few wrong clocks do not matter.* The weight of a gap between two groups of rows is the number of rows in the
smaller group; a gap within a group has weight 1. So n wrong rows far away add gaps with a weight of n at most. If all
gaps weigh at least 2 n, at least half of the weight is from the stream's own gaps, which are shorter. So the lower
median is one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from braided.time.trust import Cluster

SPARSE = 8
"""If rows come at random, one gap in 256 is longer than eight times the median gap."""

# How many last rows count, and the least weight of all gaps: two wrong rows must not make a difference.
_ROWS = 16
_LEAST = 4
# A group with fewer rows than this, after fading, is removed.
_FORGOTTEN = 0.25


class Group(NamedTuple):
    """Rows close together: the first and the last time, the number of rows, and the weight of the gaps between them."""

    first: int
    last: int
    rows: float
    inner: float


class Gaps:
    """The times of a stream's last rows, in groups.

    >>> hour = 3_600_000_000
    >>> gaps = Gaps()
    >>> gaps.take([Cluster(at * hour, at * hour, 1) for at in (0, 2, 3, 5, 8, 8760)], hour - 1)
    >>> gaps.usual() // hour
    2
    """

    def __init__(self, recent: Iterable[Sequence[float]] = ()) -> None:
        self.recent = [Group(int(first), int(last), rows, inner) for first, last, rows, inner in recent]

    def take(self, clusters: Sequence[Cluster], jump: int) -> None:
        """Add the clusters of a batch: rows that are less than a jump apart are one group."""
        groups: list[Group] = []
        for new in sorted([*self.recent, *(Group(*cluster, cluster.rows - 1) for cluster in clusters)]):
            if not groups or new.first - groups[-1].last > jump:
                groups.append(new)
                continue
            old = groups[-1]
            link = min(1.0, old.rows, new.rows)
            last = max(old.last, new.last)
            groups[-1] = Group(old.first, last, old.rows + new.rows, old.inner + new.inner + link)
        fade = min(1.0, _ROWS / max(1.0, sum(group.rows for group in groups)))
        self.recent = [_faded(group, fade) for group in groups if group.rows * fade >= _FORGOTTEN]

    def usual(self) -> int | None:
        """Return the lower median gap; None if there are too few gaps."""
        groups = self.recent
        gaps = [(int((g.last - g.first) / g.inner), g.inner) for g in groups if g.inner > 0]
        gaps += [(b.first - a.last, min(a.rows, b.rows)) for a, b in pairwise(groups)]
        gaps.sort()
        up_to = list(accumulate(weight for _, weight in gaps))
        if not gaps or up_to[-1] < _LEAST:
            return None
        return next(gap for (gap, _), weight in zip(gaps, up_to, strict=True) if 2 * weight >= up_to[-1])


def _faded(group: Group, fade: float) -> Group:
    """Return the last part of a group, with the same distances between rows."""
    first = group.last - int((group.last - group.first) * fade)
    return Group(first, group.last, group.rows * fade, group.inner * fade)
