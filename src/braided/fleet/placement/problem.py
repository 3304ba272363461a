"""The fitness of a placement: the paper's individuum and fitness, with CPU limits (EBS, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from braided.errors import PeerError

Allocation = npt.NDArray[np.int64]
"""The individuum: the host of every component."""
Floats = npt.NDArray[np.float64]
_SLACK = 1e-9  # for rounding errors in sums of CPU shares


@dataclass(frozen=True, eq=False)
class Problem:
    """n components on m hosts.

    traffic : n x n, events per second from one component to another.
    latency : m x m, seconds between hosts.
    cpu : the CPU that each component takes. limits : the CPU of each host.
    allowed : n x m, whether a host can run a component; by default all can.
    per_event, per_second : the weights c_t of traffic and c_l of latency. An event counts 1; a dependency with a second
        of latency counts as 100 events per second, so that 10 ms weigh as much as one event.

    >>> traffic, latency = np.array([[0.0, 5.0], [0.0, 0.0]]), np.array([[0.0, 0.1], [0.1, 0.0]])
    >>> problem = Problem(traffic, latency, np.ones(2), np.full(2, 2.0))
    >>> problem.fitness(np.array([[0, 0], [0, 1]])).tolist()
    [5.0, -15.0]
    """

    traffic: Floats
    latency: Floats
    cpu: Floats
    limits: Floats
    allowed: npt.NDArray[np.bool_] | None = None
    per_event: float = 1.0
    per_second: float = 100.0

    def __post_init__(self) -> None:
        n, m = len(self.cpu), len(self.limits)
        shapes = (("traffic", self.traffic, (n, n)), ("latency", self.latency, (m, m)))
        for name, values, shape in (*shapes, ("cpu", self.cpu, (n,)), ("limits", self.limits, (m,))):
            if values.shape != shape or not np.isfinite(values).all() or (values < 0).any():
                raise PeerError(f"{name}: give {' x '.join(map(str, shape))} finite numbers of 0 or more")
        if not n or not m:
            raise PeerError(f"{n} components, {m} hosts: give at least one of each")
        if self.allowed is not None and self.allowed.shape != (n, m):
            raise PeerError(f"allowed: give {n} x {m} truth values")
        if not self.hosts_of.any(axis=1).all():
            stuck = int(np.flatnonzero(~self.hosts_of.any(axis=1))[0])
            raise PeerError(f"component {stuck}: no host is allowed to run it, or has {self.cpu[stuck]:.3g} CPU")

    @property
    def components(self) -> int:
        """The number of components, n."""
        return len(self.cpu)

    @property
    def hosts(self) -> int:
        """The number of hosts, m."""
        return len(self.limits)

    @cached_property
    def hosts_of(self) -> npt.NDArray[np.bool_]:
        """Return n x m: whether a host can run a component, if it runs nothing else."""
        room: npt.NDArray[np.bool_] = self.cpu[:, None] <= self.limits[None, :] + _SLACK
        return room if self.allowed is None else room & self.allowed

    @cached_property
    def edges(self) -> tuple[Allocation, Allocation, Floats]:
        """The dependencies: from which component, to which, and the weighted traffic."""
        source, target = np.nonzero((self.traffic > 0) & ~np.eye(self.components, dtype=np.bool_))
        return source, target, self.per_event * self.traffic[source, target]

    def fitness(self, allocations: Allocation) -> Floats:
        """Return f(X) for each row: traffic within hosts, minus traffic and latency between hosts.

        The paper's sum of latencies runs over all pairs; here over those that have traffic, as its text says
        ("dependencies that cause network traffic"). An allocation that overloads a host has minus infinity.
        """
        source, target, weight = self.edges
        one, other = allocations[:, source], allocations[:, target]
        value = np.where(one == other, weight, -(weight + self.per_second * self.latency[one, other])).sum(axis=1)
        fits = self.fits(allocations)
        return np.where(fits, value, -np.inf)

    def loads(self, allocations: Allocation) -> Floats:
        """Return the used CPU of every host, one row per allocation."""
        return np.stack([(allocations == host) @ self.cpu for host in range(self.hosts)], axis=1)

    def fits(self, allocations: Allocation) -> npt.NDArray[np.bool_]:
        """Return for each row whether every component is on a host that can run it, and no host is overloaded."""
        room = (self.loads(allocations) <= self.limits + _SLACK).all(axis=1)
        allowed = np.asarray(self.hosts_of[np.arange(self.components), allocations].all(axis=1))
        return room & allowed

    def check(self, allocation: Allocation) -> None:
        """Refuse anything but an allocation of this problem."""
        if allocation.shape != (self.components,) or (allocation < 0).any() or (allocation >= self.hosts).any():
            raise PeerError(f"allocation: give {self.components} hosts of 0 to {self.hosts - 1}")
