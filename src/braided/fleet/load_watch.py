"""The watch of a responsible peer: finds hot spots among the hosts of its operators, and decides on moves.

Synergy, section 3.1, with the classes that judge the workers inside a query (`balance/`): criterion 1 (overload),
criterion 2 (imbalance), persistence, one migration per peer at a time, no return without cause.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from braided.balance.hot_spots import HotSpot, HotSpotRule
from braided.balance.migrations import Migrations
from braided.fleet.contact_buckets import key_of
from braided.fleet.discovery import Discovery
from braided.fleet.messages import Contact, Done, Message
from braided.fleet.operator_names import covers
from braided.fleet.peer_loads import PERIOD, SILENCE, LoadUpdate, ReportedLoads
from braided.fleet.thresholds import Thresholds

MAX_COMPONENTS = 4096
_SPARE_NUMBERS = 100
GAIN = 0.1
"""The part of the hot peer's load by which a move must reduce the load of the busier of the two."""


@dataclass(frozen=True)
class Move:
    """A component that should move from one peer to another, and the reason."""

    component: str
    source: Contact
    target: Contact
    reason: str


class Watch:
    """Part of every peer; acts for the operators to whose keys no other peer is nearer.

    carry_out : moves a component; returns at the end whether it moved.
    """

    def __init__(
        self,
        discovery: Discovery,
        carry_out: Callable[[Move], Awaitable[bool]],
        *,
        period: float = PERIOD,
        thresholds: Thresholds | None = None,
    ) -> None:
        self.loads = ReportedLoads()
        self.note: Callable[[str, str], None] = lambda component, what: None
        """Called with decisions, and with peers that no longer report."""
        self._discovery = discovery
        self._carry_out = carry_out
        self._period = period
        self._rule = (thresholds or Thresholds()).rule
        self._rules: dict[str, HotSpotRule] = {}
        self._hosts: dict[str, int] = {}
        self._components: dict[str, int] = {}
        self._migrations = Migrations(MAX_COMPONENTS)
        self._version = 0
        discovery.agent.on(LoadUpdate, self._update)

    async def keep(self) -> None:
        """Judge once per period, for ever."""
        while True:
            await self._discovery.agent.machine.sleep(self._period)
            self.step()

    def moved(self, component: str, source: str, target: str) -> None:
        """Record a move that others decided: `source` and `target` are ids of peers."""
        number = self._number(component)
        if number is not None:
            self._version += 1
            self._migrations.begin(self._version, [(number, self._host(source), self._host(target))])
            self._migrations.end(self._version)

    def step(self) -> list[Move]:
        """Judge the hosts of every operator that this peer acts for; start the decided moves, and return them."""
        for contact in self.loads.period():
            self._discovery.index.remove(contact.node)
            self._discovery.agent.machine.spawn(self._note_silence(contact))
        reports = self.loads.reports()
        self._renumber(len(reports))
        for node in reports:
            self._host(node)
        patterns = sorted({pattern for _, report in reports.values() for pattern in report.hosts})
        self._rules = {pattern: rule for pattern, rule in self._rules.items() if pattern in patterns}
        decided = []
        for pattern in patterns:
            if self._discovery.is_nearest(key_of(pattern)):
                move = self._judge(pattern, [node for node, (_, report) in reports.items() if pattern in report.hosts])
                if move is not None:
                    decided.append(move)
        return decided

    async def _note_silence(self, contact: Contact) -> None:
        """Report a peer that no longer reports, unless it has just found nearer peers to report to."""
        if not await self._discovery.answers(contact):
            self.note("", f"peer {contact.name} has not reported for {SILENCE} periods and does not answer")

    def _judge(self, pattern: str, nodes: list[str]) -> Move | None:
        rule = self._rules.setdefault(pattern, self._rule())
        names = {number: node for node, number in self._hosts.items()}
        averages = self.loads.of(list(self._hosts))
        reports = self.loads.reports()
        in_use = [self._hosts[node] for node in nodes]
        hot = rule.judge(averages, in_use, lambda number: f"peer {reports[names[number]][0].name}")
        if hot is None or hot.worker in self._migrations.busy:
            return None
        chosen = self._choose(pattern, hot, in_use, names)
        if chosen is None:
            return None
        component, target = chosen
        move = Move(component, reports[names[hot.worker]][0], reports[names[target]][0], hot.reason)
        self.note(component, f"decided to move it from {move.source.name} to {move.target.name}: {move.reason}")
        self._version += 1
        self._migrations.begin(self._version, [(self._components[component], hot.worker, target)])
        # Loads measured before the move takes effect must not cause further moves.
        self._rules = {}
        self._discovery.agent.machine.spawn(self._move(self._version, move))
        return move

    def _choose(self, pattern: str, hot: HotSpot, in_use: list[int], names: dict[int, str]) -> tuple[str, int] | None:
        """Return which component of the hot peer moves to which peer, so that the busier of the two is least busy then.

        The paper moves from the most to the least loaded. Components cannot be divided: one that would only make the
        target as hot as the source is now does not move. Of those that relieve about equally, the lightest moves: it
        moves quickly and has little to catch up with, while the heaviest would fall behind by all rows of the meantime.
        """
        averages = self.loads.of(list(self._hosts))
        current, average = averages.over(1), averages.over(5)
        choices = []
        for component in self.loads.reports()[names[hot.worker]][1].components:
            number = self._number(component.name)
            if number is None or not covers(pattern, component.operator):
                continue
            for target in in_use:
                after = max(current[hot.worker] - component.load, current[target] + component.load)
                gains = after <= (1 - GAIN) * current[hot.worker]
                if gains and self._migrations.allowed(number, hot.worker, target, current, average)[0]:
                    choices.append((float(after), component.load, component.name, target))
        enough = min(choices, default=(0.0,))[0] + GAIN * current[hot.worker]
        near = [(load, after, name, target) for after, load, name, target in choices if after <= enough]
        return min(near)[2:] if near else None

    async def _move(self, version: int, move: Move) -> None:
        try:
            await self._carry_out(move)
        finally:
            self._migrations.end(version)

    def _update(self, sender: Contact, update: LoadUpdate) -> Message:
        self.loads.update(sender, update)
        return Done()

    def _renumber(self, hosts: int) -> None:
        """Restart the numbering when most numbers belong to lost peers and components."""
        full = len(self._components) >= MAX_COMPONENTS or len(self._hosts) > 2 * hosts + _SPARE_NUMBERS
        if full and not self._migrations.busy:
            self._hosts, self._components, self._rules = {}, {}, {}
            self._migrations = Migrations(MAX_COMPONENTS)

    def _host(self, node: str) -> int:
        return self._hosts.setdefault(node, len(self._hosts))

    def _number(self, component: str) -> int | None:
        """Return a component's number; None if too many are watched already."""
        if component not in self._components and len(self._components) >= MAX_COMPONENTS:
            return None
        return self._components.setdefault(component, len(self._components))
