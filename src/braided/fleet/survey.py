"""A survey: the reports of peers about themselves: load, cores, components, latencies to others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.component_host import Host
from braided.fleet.discovery import Discovery
from braided.fleet.lease_holder import LeaseHolder
from braided.fleet.messages import Contact, Message, expect
from braided.fleet.operator_names import check_pattern, patterns_of
from braided.fleet.peer_loads import ComponentLoad, largest

MAX_LATENCIES = 300  # in one answer


class Describe(Message):
    """Request a description of the receiver."""


class Description(Message):
    """The sender's load over its cores, what it can host, what it runs, and its latencies to other peers in seconds."""

    load: float
    cores: float
    offers: tuple[str, ...]
    components: tuple[ComponentLoad, ...]
    latency: dict[str, float]
    drains: bool = False

    def __post_init__(self) -> None:
        if self.load < 0 or self.cores <= 0 or any(seconds < 0 for seconds in self.latency.values()):
            raise PeerError(
                f"load={self.load}, cores={self.cores}: write a load and latencies of 0 or more, and cores above 0"
            )
        for pattern in self.offers:
            check_pattern(pattern)


class Survey:
    """Part of every peer: answers for itself, and asks others."""

    def __init__(self, agent: Agent, discovery: Discovery, host: Host, holding: LeaseHolder) -> None:
        self._agent = agent
        self._holding = holding
        self._discovery = discovery
        self._host = host
        agent.on(Describe, lambda sender, asked: self._describe())

    async def hosts_of(self, operators: Iterable[str]) -> list[Contact]:
        """Return all peers that can host one of some operators, under its name or an alias, by their ids."""
        patterns = sorted({pattern for operator in operators for pattern in patterns_of(operator)})
        hosts_by_pattern = await asyncio.gather(*(self._discovery.hosts(pattern) for pattern in patterns))
        known = {contact.node: contact for hosts in hosts_by_pattern for contact in hosts}
        return [known[node] for node in sorted(known)]

    async def describe(self, peers: Iterable[Contact]) -> dict[str, tuple[Contact, Description]]:
        """Return the descriptions of answering peers, by their ids."""
        contacts = list(peers)
        replies = await asyncio.gather(*(self._agent.ask(contact, Describe()) for contact in contacts))
        answers = ((contact, expect(reply, Description)) for contact, reply in zip(contacts, replies, strict=True))
        return {contact.node: (contact, answer) for contact, answer in answers if answer is not None}

    def _describe(self) -> Message:
        measured = self._host.measure()
        nearest = sorted(self._agent.latency.items(), key=lambda seen: seen[1])[:MAX_LATENCIES]
        components = largest(measured.components)
        return Description(
            measured.load, self._host.cores, self._host.offers(), components, dict(nearest), self._holding.is_closing
        )


def group_reasons(refusals: Mapping[str, Sequence[str]]) -> str:
    """Return why peers refused something: each reason once, with the names of its peers.

    >>> group_reasons({"no room": ["north", "south"], "does not answer": ["west"]})
    'peers north, south: no room; peer west: does not answer'
    """
    each = (f"peer{'s' * (len(peers) > 1)} {', '.join(peers)}: {reason}" for reason, peers in refusals.items())
    return "; ".join(each)
