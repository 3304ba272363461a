"""Composition: an application, a graph of operator names with a latency bound, becomes components on peers.

Synergy, section 2, and its reference 9: hosts are chosen by load and latency, and a component that already computes the
same from the same topics is shared. An application that no composition can run is refused, with the reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from braided.errors import PeerError
from braided.fleet.messages import check_name
from braided.fleet.operator_names import check_operator, covers

BEAM = 2000
"""How many partial compositions are kept: if there are no more, the best one is found for certain."""
_BUSIEST = 0.95  # a larger load of a host does not increase estimated delays further


@dataclass(frozen=True)
class Step:
    """One operator of an application.

    inputs : names of other steps, and topics.
    definition : what it does, for the host; two steps compute the same only if their definitions are equal.
    seconds : how long a batch takes on an idle host. cores : how many it needs.
    """

    name: str
    operator: str
    inputs: tuple[str, ...]
    definition: str = ""
    seconds: float = 0.0
    cores: float = 0.0

    def __post_init__(self) -> None:
        check_name(self.name, "step")
        check_operator(self.operator)
        if not self.inputs:
            raise PeerError(f"step={self.name!r}: has no inputs; give it steps or topics")
        if not 0 <= self.seconds < float("inf") or not 0 <= self.cores < float("inf"):
            raise PeerError(f"step={self.name!r}: write seconds and cores of 0 or more")


@dataclass(frozen=True)
class Application:
    """Steps, and the seconds that an event may take on their longest path."""

    name: str
    steps: tuple[Step, ...]
    latency: float

    def __post_init__(self) -> None:
        check_name(self.name, "application")
        if not 0 < self.latency < float("inf"):
            raise PeerError(f"latency={self.latency}: write a number of seconds above 0")
        if len({step.name for step in self.steps}) != len(self.steps) or not self.steps:
            raise PeerError(f"application={self.name!r}: give it steps with different names")

    def in_order(self) -> list[Step]:
        """Return the steps, each after those that it reads from."""
        left = {step.name: step for step in self.steps}
        ordered: list[Step] = []
        while left:
            ready = [step for step in left.values() if not any(name in left for name in step.inputs)]
            if not ready:
                raise PeerError(
                    f"application={self.name!r}: {sorted(left)} read from each other in a cycle; remove one of these "
                    "inputs"
                )
            ordered += ready
            left = {name: step for name, step in left.items() if step not in ready}
        return ordered


@dataclass(frozen=True)
class Candidate:
    """A peer in a composition."""

    node: str
    name: str
    offers: tuple[str, ...]
    load: float
    cores: float
    latency: Mapping[str, float] = field(default_factory=dict)
    """Latencies to other peers in seconds, by id."""

    def free(self) -> float:
        """Return the cores that are idle."""
        return max(0.0, self.cores * (1 - self.load))

    def delay(self, step: Step) -> float:
        """Return the seconds that a step takes here: the busier the peer, the longer."""
        return step.seconds / (1 - min(_BUSIEST, self.load))


@dataclass(frozen=True)
class Running:
    """A running component: what it computes (`signature`), its peer, and the location of its results."""

    component: str
    signature: str
    node: str
    output: str


@dataclass(frozen=True)
class Placed:
    """A step with its peer. `shared` is a component that already runs; then nothing is started."""

    step: Step
    signature: str
    node: str
    arrives: float
    shared: Running | None = None


@dataclass(frozen=True)
class Composition:
    """All steps of an application with their peers, and the seconds that an event takes."""

    placed: tuple[Placed, ...]
    latency: float


def signature(step: Step, inputs: Sequence[str]) -> str:
    """Return what a step computes: its operator, its definition and its inputs, steps by their own signatures."""
    content = json.dumps([step.operator, step.definition, list(inputs)])
    return hashlib.sha256(content.encode()).hexdigest()


def signatures(application: Application) -> dict[str, str]:
    """Return what each step computes, by its name."""
    computes: dict[str, str] = {}
    for step in application.in_order():
        computes[step.name] = signature(step, [computes.get(name, name) for name in step.inputs])
    return computes


def compose(application: Application, peers: Sequence[Candidate], running: Sequence[Running] = ()) -> Composition:
    """Return the fastest composition; among equally fast ones, the one that shares most, on the least loaded peers.

    Topics that are not steps are read from storage that is equally near to all. `PeerError` if there is none, with the
    reason.
    """
    known = {peer.node: peer for peer in peers}
    computes = signatures(application)
    shared = {component.signature: component for component in running if component.node in known}
    beam: list[tuple[Placed, ...]] = [()]
    for step in application.in_order():
        there = shared.get(computes[step.name])
        hosts = [known[there.node]] if there else [peer for peer in peers if _offers(peer, step)]
        if not hosts:
            raise PeerError(f"operator={step.operator!r}: no peer can host it, so step {step.name!r} cannot run")
        longer = [
            (*placed, _place(step, computes[step.name], host, placed, known, there))
            for placed in beam
            for host in hosts
            if there or _has_room(step, host, placed)
        ]
        if not longer:
            most = max(host.free() for host in hosts)
            raise PeerError(
                f"step={step.name!r}: needs {step.cores:.3g} cores, but no peer that can host {step.operator} has more "
                f"than {most:.3g}, minus the cores of the other steps"
            )
        beam = sorted(longer, key=lambda placed: _rank(placed, known))[:BEAM]
    best = beam[0]
    composition = Composition(best, max(placed.arrives for placed in best))
    if composition.latency > application.latency:
        raise PeerError(_too_slow(application, composition, known))
    return composition


def _offers(peer: Candidate, step: Step) -> bool:
    return any(covers(pattern, step.operator) for pattern in peer.offers)


def _has_room(step: Step, host: Candidate, placed: Sequence[Placed]) -> bool:
    taken = sum(other.step.cores for other in placed if other.node == host.node and other.shared is None)
    return taken + step.cores <= host.free() + 1e-9


def _place(
    step: Step,
    computes: str,
    host: Candidate,
    placed: Sequence[Placed],
    known: Mapping[str, Candidate],
    there: Running | None,
) -> Placed:
    before = [other for other in placed if other.step.name in step.inputs]
    waits = max((other.arrives + _between(known[other.node], host) for other in before), default=0.0)
    return Placed(step, computes, host.node, waits + host.delay(step), there)


def _between(one: Candidate, other: Candidate) -> float:
    if one.node == other.node:
        return 0.0
    seen = [peer.latency[far.node] for peer, far in ((one, other), (other, one)) if far.node in peer.latency]
    return max(seen, default=0.0)


def _rank(placed: Sequence[Placed], known: Mapping[str, Candidate]) -> tuple[float, float, tuple[str, ...]]:
    load = sum(known[one.node].load + one.step.cores for one in placed if one.shared is None)
    return max(one.arrives for one in placed), load, tuple(one.node for one in placed)


def _too_slow(application: Application, composition: Composition, known: Mapping[str, Candidate]) -> str:
    slowest = max(composition.placed, key=lambda placed: known[placed.node].delay(placed.step))
    return (
        f"latency={application.latency:.3g}: the fastest composition takes {composition.latency:.3g} s; most of it "
        f"step {slowest.step.name!r}, {known[slowest.node].delay(slowest.step):.3g} s on peer "
        f"{known[slowest.node].name}, whose load is {known[slowest.node].load:.2f}"
    )
