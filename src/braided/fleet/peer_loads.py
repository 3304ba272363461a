"""Loads: a peer reports its load when this changes level, and otherwise as a heartbeat (Synergy, section 3.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from braided.balance.load_averages import HORIZONS, LoadAverages
from braided.errors import PeerError
from braided.fleet.discovery import Discovery
from braided.fleet.json_records import Record
from braided.fleet.messages import Contact, Done, Message
from braided.fleet.operator_names import check_pattern
from braided.fleet.thresholds import Thresholds

PERIOD = 5.0
"""Seconds between two measurements."""
MAX_TOLD = 100
"""The most components in one message: they fit even with the longest names."""
ALIVE = 12
"""Periods after which a peer reports even if nothing has changed: a minute."""
SILENCE = int(2.5 * ALIVE)
"""Periods after which a peer that does not report is removed."""


class ComponentLoad(Record):
    """One component of a peer.

    load : its CPU over the peer's cores.
    busy : the time of a batch divided by the trigger's interval; above 1 it falls behind.
    backlog : rows that wait; None if a source does not report this. rate : rows written per second; None if unknown.
    is_behind : whether it does not keep up with its input.
    """

    name: str
    operator: str
    load: float
    busy: float = 0.0
    backlog: int | None = None
    rate: float | None = None
    is_behind: bool = False


class LoadUpdate(Message):
    """The sender's load, averaged over 1, 5 and 15 periods, and its components' shares of it.

    hosts : the names or patterns of operators that it can host.
    """

    loads: tuple[float, ...]
    hosts: tuple[str, ...]
    components: tuple[ComponentLoad, ...] = ()

    def __post_init__(self) -> None:
        if len(self.loads) != len(HORIZONS) or min(self.loads) < 0:
            raise PeerError(f"loads={self.loads!r}: write {len(HORIZONS)} loads of 0 or more")
        for pattern in self.hosts:
            check_pattern(pattern)


@dataclass(frozen=True)
class Measured:
    """The measurements of a peer in one period: CPU of its process tree, divided by its cores."""

    load: float
    components: tuple[ComponentLoad, ...] = ()


def largest(components: tuple[ComponentLoad, ...]) -> tuple[ComponentLoad, ...]:
    """Return the components with the largest loads, as many as fit into a message."""
    return tuple(sorted(components, key=lambda part: (-part.load, part.name))[:MAX_TOLD])


class LoadReporter:
    """Measures a peer once a period and reports to the peers responsible for what it hosts.

    `measure` must be quick; a thread of the host does the slow work, so that a busy peer can report too.
    """

    def __init__(
        self,
        discovery: Discovery,
        measure: Callable[[], Measured],
        *,
        period: float = PERIOD,
        thresholds: Thresholds | None = None,
    ) -> None:
        if not 0 < period < float("inf"):
            raise PeerError(f"{period=}: write a number of seconds above 0")
        self.period = period
        self.sent = 0
        """The number of messages so far."""
        self._thresholds = thresholds or Thresholds()
        self._discovery = discovery
        self._measure = measure
        self._averages = LoadAverages(1)
        self._level: int | None = None
        self._quiet: dict[str, int] = {}
        self._components: dict[str, int | None] = {}

    async def keep(self) -> None:
        """Measure and report for ever."""
        while True:
            await self._discovery.agent.machine.sleep(self.period)
            await self.step()

    async def step(self) -> None:
        """Measure once, and report if there is news."""
        measured = self._measure()
        self._averages.add(np.array([measured.load]))
        levels = self._thresholds.levels
        level = levels.level(measured.load, self._level)
        # The best component to move from a busy peer may change even if the peer's load does not.
        is_busy = measured.load >= self._thresholds.busy
        components = {
            part.name: levels.level(part.load, self._components.get(part.name)) if is_busy else None
            for part in measured.components
        }
        if (level, components) != (self._level, self._components):
            self._level, self._components = level, components
            self._quiet = {}
        holders = {holder.node: holder for held in self._discovery.registered.values() for holder in held}
        # Peers that are newly responsible, or did not answer, do not know this level.
        self._quiet = {node: self._quiet[node] + 1 for node in self._quiet if node in holders}
        due = [node for node in sorted(holders) if self._quiet.get(node, ALIVE) >= ALIVE]
        if not due:
            return
        loads = tuple(float(self._averages.over(horizon)[0]) for horizon in HORIZONS)
        update = LoadUpdate(loads, tuple(sorted(self._discovery.registered)), largest(measured.components))
        ask = self._discovery.agent.ask
        self.sent += len(due)
        replies = await asyncio.gather(*(ask(holders[node], update) for node in due))
        for node, reply in zip(due, replies, strict=True):
            if reply == Done():
                self._quiet[node] = 0


class ReportedLoads:
    """The loads of other peers, at a responsible peer.

    As long as a peer does not report, its load is still within the last reported level. So every period adds the last
    load once more to its averages: a lasting overload is detected without messages.
    """

    def __init__(self) -> None:
        self._averages: dict[str, LoadAverages] = {}
        self._last: dict[str, tuple[Contact, LoadUpdate]] = {}
        self._quiet: dict[str, int] = {}

    def update(self, sender: Contact, update: LoadUpdate) -> None:
        """Take a peer's report."""
        if sender.node not in self._averages:
            self._averages[sender.node] = _history(update.loads)
        self._last[sender.node] = (sender, update)
        self._quiet[sender.node] = 0

    def period(self) -> list[Contact]:
        """Advance by one period; remove and return the peers that have been silent for too long."""
        silent = []
        for node in sorted(self._last):
            contact, update = self._last[node]
            self._quiet[node] += 1
            if self._quiet[node] > SILENCE:
                silent.append(contact)
                self.forget(node)
            else:
                self._averages[node].add(np.array([update.loads[0]]))
        return silent

    def forget(self, node: str) -> None:
        """Remove a peer."""
        self._averages.pop(node, None)
        self._last.pop(node, None)
        self._quiet.pop(node, None)

    def reports(self) -> dict[str, tuple[Contact, LoadUpdate]]:
        """Return the last report of every peer, by its id."""
        return {node: self._last[node] for node in sorted(self._last)}

    def of(self, nodes: list[str]) -> HostAverages:
        """Return the averages of peers by their places in the list; an unknown peer has no load."""
        return HostAverages([self._averages.get(node) or LoadAverages(1) for node in nodes])


class HostAverages:
    """Averages of numbered peers, in the form that the rule for hot spots takes."""

    def __init__(self, hosts: list[LoadAverages]) -> None:
        self._hosts = hosts
        self.workers = len(hosts)

    def over(self, batches: int) -> npt.NDArray[np.float64]:
        """Return each peer's average over 1, 5 or 15 periods."""
        return np.concatenate([host.over(batches) for host in self._hosts]) if self._hosts else np.zeros(0)


def _history(loads: tuple[float, ...]) -> LoadAverages:
    now, middle, long = loads
    averages = LoadAverages(1)
    earlier = max(0.0, (HORIZONS[2] * long - HORIZONS[1] * middle) / (HORIZONS[2] - HORIZONS[1]))
    before = max(0.0, (HORIZONS[1] * middle - now) / (HORIZONS[1] - 1))
    for load in (*[earlier] * (HORIZONS[2] - HORIZONS[1]), *[before] * (HORIZONS[1] - 1), now):
        averages.add(np.array([load]))
    return averages
