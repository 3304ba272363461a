"""Which times may move a clock: those of the crowd. A device years ahead is a crowd of few, whatever it sends.

```
 behind                     near the clock                          ahead: quarantined
 --[####]------- jump -------[##########################|clock]------- jump -------[#]-->
```

Times less than `jump` apart belong together. Rows near the clock move it. Rows ahead of it move it only once they
are the most of what arrives, as after an outage; and should the clock itself have started with a wrong one, rows
behind it take it back on the same condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braided.time.clocks import clamp

Times = npt.NDArray[np.int64]

JUMP = 3_600_000_000
"""An hour: delays and gaps within a live stream are shorter, and broken clocks are mostly off by more."""
_MOST_CLUSTERS = 32
# The vote counts about so many last rows, or those of the last batch if it has more; so few do not decide.
_VOTERS = 64
_QUORUM = 8


class Cluster(NamedTuple):
    """Rows whose times are close together: the first and the last time, and how many rows."""

    first: int
    last: int
    rows: int


def clusters_of(times: Times, jump: int) -> list[Cluster]:
    """Return the clusters of some rows' times, ascending, at most 32.

    Cost: two passes where all times are within a jump of each other, else a sort.

    >>> clusters_of(np.array([5, 1, 100, 3]), 10)
    [Cluster(first=1, last=5, rows=3), Cluster(first=100, last=100, rows=1)]
    """
    if not len(times):
        return []
    first, last = int(times.min()), int(times.max())
    if last - first <= jump:
        return [Cluster(first, last, len(times))]
    ordered = np.sort(times)
    # As unsigned numbers the differences cannot overflow.
    gaps = ordered.view(np.uint64)[1:] - ordered.view(np.uint64)[:-1]
    at = np.flatnonzero(gaps > jump)
    if len(at) >= _MOST_CLUSTERS:
        at = np.sort(at[np.argsort(gaps[at], kind="stable")[-(_MOST_CLUSTERS - 1) :]])
    starts, ends = [0, *(at + 1).tolist()], [*at.tolist(), len(times) - 1]
    return [Cluster(int(ordered[i]), int(ordered[j]), j + 1 - i) for i, j in zip(starts, ends, strict=True)]


def merge_clusters(clusters: Iterable[Cluster], jump: int) -> list[Cluster]:
    """Return the clusters that some rows make together: those closer than a jump become one.

    >>> merge_clusters([Cluster(0, 5, 3), Cluster(40, 50, 1), Cluster(9, 12, 2)], 10)
    [Cluster(first=0, last=12, rows=5), Cluster(first=40, last=50, rows=1)]
    """
    out: list[Cluster] = []
    for cluster in sorted(clusters):
        if out and cluster.first - out[-1].last <= jump:
            out[-1] = _joined(out[-1], cluster)
        else:
            out.append(cluster)
    while len(out) > _MOST_CLUSTERS:
        at = min(range(len(out) - 1), key=lambda i: out[i + 1].first - out[i].last)
        out[at : at + 2] = [_joined(out[at], out[at + 1])]
    return out


def _joined(a: Cluster, b: Cluster) -> Cluster:
    return Cluster(a.first, max(a.last, b.last), a.rows + b.rows)


def largest(clusters: Iterable[Cluster]) -> Cluster:
    """Return the cluster of most rows; of equal ones the earliest, which expires nothing."""
    return max(clusters, key=lambda cluster: (cluster.rows, -cluster.first))


def _middle(clusters: list[Cluster]) -> Cluster:
    """Return the cluster that holds the middle row."""
    half = sum(cluster.rows for cluster in clusters) / 2
    for cluster in clusters:
        half -= cluster.rows
        if half <= 0:
            break
    return cluster


@dataclass
class Trust:
    """A stream's clock, moved by trustworthy times only. Equal inputs give equal clocks, on every worker.

    It looks at a batch as a whole, so it is the same for every order of rows within a batch.

    >>> trust = Trust()
    >>> trust.update([Cluster(0, 5, 100), Cluster(10**15, 10**15, 2)], JUMP)
    >>> trust.clock, trust.limit(JUMP) < 10**15
    (5, True)
    """

    clock: int | None = None
    near: float = 0
    ahead: float = 0
    behind: float = 0

    def update(self, clusters: list[Cluster], jump: int, others: int | None = None) -> None:
        """Take the clusters of a batch and move the clock. `others` is the largest clock of the streams beside it.

        A sparse stream may have longer gaps than a jump: alone in a batch, a time that the others have reached counts.
        """
        if not clusters:
            return
        if self.clock is None:
            self.clock = largest(clusters).last
        clock = self.clock
        fade = min(1.0, _VOTERS / max(1.0, self.near + self.ahead + self.behind))
        groups: dict[str, list[Cluster]] = {"near": [], "ahead": [], "behind": []}
        for cluster in clusters:
            place = "ahead" if cluster.first - clock > jump else "behind" if clock - cluster.last > jump else "near"
            groups[place].append(cluster)
        if others is not None and not groups["near"]:
            groups["near"] = [cluster for cluster in groups["ahead"] if cluster.first - others <= jump]
            groups["ahead"] = groups["ahead"][len(groups["near"]) :]
        for place, found in groups.items():
            setattr(self, place, getattr(self, place) * fade + sum(cluster.rows for cluster in found))
        for place in ("ahead", "behind"):
            votes = getattr(self, place)
            if groups[place] and votes >= _QUORUM and 2 * votes > self.near + self.ahead + self.behind:
                self.clock = _middle(groups[place]).last
                self.near, self.ahead, self.behind = votes, 0, 0
                return
        self.clock = max([clock, *(cluster.last for cluster in groups["near"])])

    def limit(self, jump: int) -> int:
        """Return the last time that is not quarantined."""
        return clamp((0 if self.clock is None else self.clock) + jump)

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain JSON."""
        return asdict(self)


def in_largest(times: Times, clusters: list[Cluster]) -> npt.NDArray[np.bool_] | slice:
    """Return which rows belong to the largest cluster: those on which a task may measure delays."""
    if len(clusters) <= 1:
        return slice(None)
    main = largest(clusters)
    return (times >= main.first) & (times <= main.last)
