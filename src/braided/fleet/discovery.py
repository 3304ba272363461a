"""Discovery: the SHA-1 of an operator's name leads, in O(log n) hops, to the peers responsible for it (Synergy, 2).

A small Kademlia. It stores {host: expiry} under the key of an operator. Hosts refresh their entry after a third of its
time to live, at the peers that are nearest by then. So peers may join, leave and fail without a hand-over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.contact_buckets import SIZE, Buckets, key_of
from braided.fleet.host_index import MAX_TTL, FindHosts, FindNodes, HostIndex, Hosts, Nodes, Register, read_key
from braided.fleet.messages import Contact, Done, Message, Ping, expect


@dataclass(frozen=True)
class Lookup:
    """The nodes nearest to a key that have answered, nearest first, and the cost of the search.

    hops : the length of the chain of answers that led to the nearest node.
    asked : how many nodes were asked.
    """

    nearest: tuple[Contact, ...]
    hops: int
    asked: int


class Discovery:
    """A node of the DHT: part of every agent.

    replicas : how many peers are responsible for a key; 3, so that two may fail between two refreshes.
    parallel : how many are asked at a time.
    ttl : seconds after which a failed host is removed.
    """

    def __init__(
        self, agent: Agent, *, replicas: int = 3, parallel: int = 3, size: int = SIZE, ttl: float = 60.0
    ) -> None:
        if not 2 <= replicas <= size:
            raise PeerError(f"{replicas=}: write at least 2, so that one may fail, and at most {size=}")
        if not 0 < ttl <= MAX_TTL:
            raise PeerError(f"{ttl=}: write a number of seconds above 0, at most {MAX_TTL:.0f}")
        self.agent = agent
        self.replicas = replicas
        self.ttl = ttl
        self.buckets = Buckets(agent.contact.number, size)
        self.index = HostIndex()
        self._parallel = parallel
        self._size = size
        self._probing: set[str] = set()
        self._registered: dict[str, tuple[Contact, ...]] = {}
        agent.seen.append(self._heard)
        agent.missed.append(self.buckets.missed)
        agent.on(FindNodes, self._tell_nodes)
        agent.on(FindHosts, lambda sender, asked: self.index.find(read_key(asked.key), agent.machine.now()))
        agent.on(Register, self._register)

    async def join(self, others: Iterable[Contact]) -> None:
        """Join the nodes near this one, starting from some known nodes."""
        for contact in others:
            self._heard(contact)
        await self.lookup(self.agent.contact.number)

    async def lookup(self, key: int) -> Lookup:
        """Find the nodes nearest to a key; this node is included."""
        me = self.agent.contact
        depth = {me.node: 0} | {contact.node: 1 for contact in self.buckets.closest(key, self._size)}
        known = {contact.node: contact for contact in (me, *self.buckets.closest(key, self._size))}
        answered, silent = {me.node}, set[str]()
        while True:
            nearest = sorted((c for c in known.values() if c.node not in silent), key=lambda c: c.number ^ key)
            nearest = nearest[: self._size]
            pending = [contact for contact in nearest if contact.node not in answered][: self._parallel]
            if not pending:
                return Lookup(tuple(nearest), depth[nearest[0].node], len(answered) + len(silent) - 1)
            replies = await asyncio.gather(*(self.agent.ask(contact, FindNodes(f"{key:040x}")) for contact in pending))
            for contact, reply in zip(pending, replies, strict=True):
                nodes = expect(reply, Nodes)
                if nodes is None:
                    silent.add(contact.node)
                    continue
                answered.add(contact.node)
                for near in nodes.contacts[: self._size]:
                    known.setdefault(near.node, near)
                    depth[near.node] = min(depth.get(near.node, 1 << 30), depth[contact.node] + 1)

    async def responsible(self, name: str) -> tuple[Contact, ...]:
        """Return the peers responsible for an operator, nearest to its key first; this one may be among them."""
        return (await self.lookup(key_of(name))).nearest[: self.replicas]

    def is_nearest(self, key: int) -> bool:
        """Whether no other known node is nearer to a key: then this node acts for it."""
        nearest = self.buckets.closest(key, 1)
        return not nearest or self.agent.contact.number ^ key < nearest[0].number ^ key

    async def nearest_of(self, names: Iterable[str]) -> set[str]:
        """Return those of some operators to whose keys no other answering node is nearer: this node acts for them.

        Each peer responsible for a key pings the one before it, so that a failure is noticed at once.
        """
        answers: dict[str, bool] = {}
        return {name for name in sorted(names) if await self._is_first(key_of(name), answers)}

    async def _is_first(self, key: int, answers: dict[str, bool]) -> bool:
        """Whether all responsible nodes that are nearer to a key have failed; `answers` has the earlier results."""
        mine = self.agent.contact.number ^ key
        nearer = [contact for contact in self.buckets.closest(key, self.replicas) if contact.number ^ key < mine]
        if len(nearer) == self.replicas:
            return False
        for contact in reversed(nearer):
            if contact.node not in answers:
                answers[contact.node] = await self.answers(contact)
            if answers[contact.node]:
                return False
        return True

    async def hosts(self, name: str) -> list[Contact]:
        """Return the peers that can host an operator, by their ids, as known to all responsible peers together."""
        key = f"{key_of(name):040x}"
        holders = await self.responsible(name)
        replies = await asyncio.gather(*(self.agent.ask(holder, FindHosts(key)) for holder in holders))
        by_node = {host.node: host for reply in replies if isinstance(reply, Hosts) for host in reply.hosts}
        return [by_node[node] for node in sorted(by_node)]

    async def register(self, name: str) -> tuple[Contact, ...]:
        """Register this peer as a host of an operator with the responsible peers, and return these."""
        key = f"{key_of(name):040x}"
        holders = await self.responsible(name)
        replies = await asyncio.gather(*(self.agent.ask(holder, Register(key, self.ttl)) for holder in holders))
        held = tuple(holder for holder, reply in zip(holders, replies, strict=True) if reply == Done())
        self._registered[name] = held
        return held

    async def unregister(self, name: str) -> None:
        """Withdraw this peer as a host of an operator."""
        key = f"{key_of(name):040x}"
        for holder in self._registered.pop(name, ()):
            await self.agent.ask(holder, Register(key, 0.0))

    @property
    def registered(self) -> dict[str, tuple[Contact, ...]]:
        """The operators for which this peer is registered, and the peers that store this."""
        return dict(self._registered)

    async def keep(self) -> None:
        """Refresh this peer's registrations and its contacts, for ever."""
        while True:
            await self.agent.machine.sleep(self.ttl / 3)
            for name in sorted(self._registered):
                await self.register(name)
            await self.lookup(self.agent.machine.random.getrandbits(160))
            # The peers that act before this one: their failure must be noticed.
            keys = [key for key in self.index.keys(self.agent.machine.now()) if not self.is_nearest(key)]
            for contact in {near.node: near for key in keys for near in self.buckets.closest(key, 1)}.values():
                await self.agent.ask(contact, Ping())

    def _heard(self, contact: Contact) -> None:
        doubtful = self.buckets.heard(contact)
        if doubtful is not None and doubtful.node not in self._probing:
            self._probing.add(doubtful.node)
            self.agent.machine.spawn(self._probe(doubtful))

    async def _probe(self, contact: Contact) -> None:
        try:
            await self.answers(contact)
        finally:
            self._probing.discard(contact.node)

    async def answers(self, contact: Contact) -> bool:
        """Whether a node answers. It is pinged twice, since a message may be lost: `missed` counts the failures."""
        return await self.agent.ask(contact, Ping()) is not None or await self.agent.ask(contact, Ping()) is not None

    def _tell_nodes(self, sender: Contact, request: FindNodes) -> Message:
        near = self.buckets.closest(read_key(request.key), self._size + 1)
        return Nodes(tuple(contact for contact in near if contact.node != sender.node)[: self._size])

    def _register(self, sender: Contact, wanted: Register) -> Message:
        self.index.add(read_key(wanted.key), sender, wanted.ttl, self.agent.machine.now())
        return Done()
