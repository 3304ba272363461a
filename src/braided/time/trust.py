"""Which times may move a clock: those of the majority of rows. A single device that is years ahead cannot move it.

```
 behind                     near the clock                          ahead: doubted
 --[####]------- jump -------[##########################|clock]------- jump -------[#]-->
```

Times less than `jump` apart belong together. Rows near the clock move it. Rows ahead of it move it only when most rows
are there, for example after an outage. If the clock started with a wrong row, rows behind it move it back by the same
rule. The clock then *leaps* to the median of these rows: in a sparse stream, whose rows are hours apart, no single row
decides.

A sparse stream may be silent for longer than a jump: rows are near its clock if they are within its usual gaps
(`braided.time.gaps`).

A clock *counts* (is settled) when enough rows of all streams to decide a vote have been near it, or when another clock
that counts has reached it. Until then no row expires or leaves by it, because the first row of a stream may be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braided.time.clocks import clamp
from braided.time.quarantine import VOTERS, StreamProgress

Times = npt.NDArray[np.int64]

JUMP = 3_600_000_000
"""One hour: delays and gaps in a live stream are shorter, and wrong clocks usually differ by more."""
_MOST_CLUSTERS = 32
QUORUM = 8
"""Fewer rows than this do not decide."""

# A vote with less weight than this, after fading, is removed.
_FORGOTTEN = 1 / 64


class Cluster(NamedTuple):
    """Rows whose times are close together: the first and the last time, and the number of rows or weight of votes."""

    first: int
    last: int
    rows: float


def clusters_of(times: Times, jump: int) -> list[Cluster]:
    """Return the clusters of some rows' times, ascending, at most 32.

    Cost: two passes if all times are within a jump of each other, or else a sort.

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
    """Merge clusters that are closer than a jump.

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
    """Return the cluster with the most rows; among equal ones the earliest, which expires no rows."""
    return max(clusters, key=lambda cluster: (cluster.rows, -cluster.first))


def _middle(clusters: list[Cluster]) -> Cluster:
    half = _weight(clusters) / 2
    for cluster in clusters:
        half -= cluster.rows
        if half <= 0:
            break
    return cluster


def _weight(clusters: Iterable[Cluster]) -> float:
    return sum(cluster.rows for cluster in clusters)


@dataclass
class Trust:
    """A stream's clock, which only trusted times move. Equal inputs give equal clocks on every worker.

    It uses a batch as a whole, so the order of rows within a batch does not matter.

    >>> trust = Trust()
    >>> trust.update([Cluster(0, 5, 100), Cluster(10**15, 10**15, 2)], JUMP)
    >>> trust.clock, trust.settled, trust.limit(JUMP) < 10**15
    (5, True, True)
    """

    clock: int | None = None
    settled: bool = False
    """Whether the clock counts."""
    top: int | None = None
    """The largest time seen, trusted or not."""
    gone: StreamProgress = field(default_factory=StreamProgress)
    near: float = 0
    ahead: list[Cluster] = field(default_factory=list)
    behind: list[Cluster] = field(default_factory=list)
    """The votes of the last rows, as of their arrival."""

    def update(self, clusters: list[Cluster], jump: int, others: int | None = None, wide: int | None = None) -> None:
        """Move the clock by the clusters of a batch. `others` is the largest clock of the other streams that counts.

        A sparse stream may have gaps longer than a jump. If no row of the batch is near the clock, a time that the
        other streams have reached counts. `wide` is how far ahead a row may be to be near the clock, if that is more
        than a jump.
        """
        if clusters:
            self.top = clusters[-1].last if self.top is None else max(self.top, clusters[-1].last)
            if wide is not None and wide > jump:
                clusters = merge_clusters(clusters, wide)
                self._reach(wide)
            self._start(clusters, jump, others)
            self._move(clusters, jump if wide is None else max(jump, wide), jump, others)
        self.confirm(jump, others)

    def _reach(self, wide: int) -> None:
        """Move the clock to rows that were doubted before longer gaps became usual."""
        while self.clock is not None and self.ahead and self.ahead[0].first - self.clock <= wide:
            vote = self.ahead.pop(0)
            self.clock, self.near = max(self.clock, vote.last), self.near + vote.rows

    def confirm(self, jump: int, others: int | None) -> None:
        """Let the clock count when enough rows were near it, or when `others` has reached it."""
        if self.clock is not None and (self.near >= QUORUM or (others is not None and self.clock - others <= jump)):
            self.settled = True

    def _start(self, clusters: list[Cluster], jump: int, others: int | None) -> None:
        """Choose the first clock: a time that other streams have reached, or else the cluster with the most rows."""
        reached = [cluster for cluster in clusters if others is not None and cluster.first - others <= jump]
        alone = self.clock is not None and others is not None and self.clock - others > jump
        if self.clock is None or (reached and alone and not self.settled):
            self.clock = largest(reached or clusters).last
            self.near, self.ahead, self.behind = 0, [], []

    def _move(self, clusters: list[Cluster], jump: int, reached: int, others: int | None) -> None:
        """Let clusters vote; those at most `reached` after `others` are confirmed by it."""
        assert self.clock is not None
        clock, settled = self.clock, self.settled
        self._fade(jump)
        ahead = [cluster for cluster in clusters if cluster.first - clock > jump]
        behind = [cluster for cluster in clusters if clock - cluster.last > jump]
        near = [cluster for cluster in clusters if cluster not in ahead and cluster not in behind]
        vouched = []
        if others is not None and not near:
            vouched = [cluster for cluster in ahead if cluster.first - others <= reached]
            ahead = ahead[len(vouched) :]
        self.near += _weight([*near, *vouched])
        self.ahead = merge_clusters([*self.ahead, *ahead], jump)
        self.behind = merge_clusters([*self.behind, *behind], jump)
        for new, votes in ((ahead, self.ahead), (behind, self.behind)):
            weight = _weight(votes)
            if new and weight >= QUORUM and 2 * weight > self.near + _weight(self.ahead) + _weight(self.behind):
                self._leap(votes)
                return
        self.clock = max([clock, *(cluster.last for cluster in (*near, *vouched))])
        if vouched:
            self.gone = self.gone.leapt()
        elif settled:
            self.gone = self.gone.further(self.clock - clock, int(_weight(near)))

    def _fade(self, jump: int) -> None:
        """Reduce the weight of older votes; votes ahead that the clock has reached become votes for it."""
        assert self.clock is not None
        reached = self.clock + jump
        self.near += _weight(vote for vote in self.ahead if vote.first <= reached)
        self.ahead = [vote for vote in self.ahead if vote.first > reached]
        fade = min(1.0, VOTERS / max(1.0, self.near + _weight(self.ahead) + _weight(self.behind)))
        self.near *= fade
        for votes in (self.ahead, self.behind):
            faded = [Cluster(vote.first, vote.last, vote.rows * fade) for vote in votes]
            votes[:] = [vote for vote in faded if vote.rows >= _FORGOTTEN]

    def _leap(self, votes: list[Cluster]) -> None:
        self.clock = _middle(votes).last
        self.near = _weight(vote for vote in votes if vote.last <= self.clock)
        self.ahead, self.behind = [vote for vote in votes if vote.first > self.clock], []
        self.settled, self.gone = True, self.gone.leapt()

    def limit(self, jump: int) -> int:
        """Return the last time that is near the clock."""
        return clamp((0 if self.clock is None else self.clock) + jump)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Trust:
        votes = {name: [Cluster(*vote) for vote in state[name]] for name in ("ahead", "behind")}
        return cls(**{**state, **votes, "gone": StreamProgress(*state["gone"])})


def in_largest(times: Times, clusters: list[Cluster]) -> npt.NDArray[np.bool_] | slice:
    """Return which rows belong to the largest cluster, whose delays a task may measure."""
    if len(clusters) <= 1:
        return slice(None)
    main = largest(clusters)
    return (times >= main.first) & (times <= main.last)
