"""A peer as a process: a Spark application, an agent that others reach over TLS, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from braided.errors import BraidedError, PeerError
from braided.fleet.agent import Agent
from braided.fleet.agent_machine import RealMachine
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.hosting.spark_host import SparkHost
from braided.fleet.hosting.warning_events import warnings_noted
from braided.fleet.identity import Identity, Token
from braided.fleet.messages import Contact
from braided.fleet.peer_names import PeerNames
from braided.fleet.requests import Storage, WhichStorage
from braided.fleet.transport import Transport
from braided.storage.files import STORAGE, files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 10.0
_PART = 0.9
"""The part of the time limit that a rehearsal or a start may take here, so that its error reaches the waiting peer."""


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """How a peer takes part in a fleet.

    storage : the fleet's directory, which all peers can reach; None asks the peer that it joins.
    join : addresses of running peers.
    modules, offers, is_local, watch : see `SparkHost`.
    log : returns the last lines that Spark has logged about a component.
    """

    name: str
    listen: str
    token: Token
    cores: int
    storage: str | None = None
    join: Sequence[str] = ()
    modules: Sequence[str] = ()
    offers: Sequence[str] = ("*",)
    beyond_loopback: bool = False
    is_local: bool = True
    log: Callable[[str], str] = lambda component: ""
    watch: Callable[[SparkSession], Callable[[], None]] = lambda session: lambda: None
    settings: Settings = field(default_factory=Settings)


async def check_peer(options: PeerOptions) -> None:
    """Check what would otherwise fail after Spark's start: the address, the token, the peers to join, and the name."""
    transport = _transport(options)
    machine = RealMachine(transport.send)
    try:
        agent = Agent(await transport.start(), machine)
        transport.receive = agent.receive
        others = [await transport.greet(address) for address in options.join]
        storage = options.storage or await _storage_of(agent, others)
        await PeerNames(agent, files_at(storage, STORAGE)).check()
    finally:
        await machine.close()
        await transport.close()


def _transport(options: PeerOptions) -> Transport:
    return Transport(Identity(options.name, options.token), options.listen, beyond_loopback=options.beyond_loopback)


async def run_peer(spark: SparkSession, options: PeerOptions, ready: Callable[[Contact, str], None]) -> str | None:
    """Run a peer until SIGINT or SIGTERM, or until Spark has failed; return the failure, None if it was stopped.

    `ready` is called with its address and the fleet's storage once it takes part. When it is stopped, it moves its
    components to other peers; those that no peer takes over are stopped between two batches.
    """
    transport = _transport(options)
    machine = RealMachine(transport.send)
    end: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    _end_on_signals(end)
    try:
        contact = await transport.start()
        others = [await transport.greet(address) for address in options.join]
        storage = options.storage
        if storage is None:
            agent = Agent(contact, machine)
            transport.receive = agent.receive
            storage = await _storage_of(agent, others)
        host = _host(spark, options)
        try:
            host.died = lambda why: _set(end, why)
            peer = Peer(contact, machine, host, storage, options.settings)
            transport.receive = peer.agent.receive
            peer.log = options.log
            await peer.start(others)
            ready(contact, storage)
            host.warm_up(storage)
            with warnings_noted(peer.holding.note):
                why = await end
            if why is None:
                await leave(peer)
            else:
                peer.holding.note("", f"peer {options.name}: {why}")
                await asyncio.sleep(1.0)  # for the releases of its leases
                await peer.events.flush()
            return why
        finally:
            host.close()
    finally:
        await machine.close()
        await transport.close()


async def leave(peer: Peer) -> None:
    """Move all components to other peers; stop and release those that stay."""
    for name in await peer.drain():
        with contextlib.suppress(BraidedError):
            await peer.holding.give(name)
    await peer.leave()


def _host(spark: SparkSession, options: PeerOptions) -> SparkHost:
    settings = options.settings
    return SparkHost(
        spark,
        cores=options.cores,
        is_local=options.is_local,
        modules=options.modules,
        offers=options.offers,
        period=settings.period,
        rehearsal=_PART * settings.rehearsal,
        starting=_PART * settings.start,
        silence=settings.span / 2,
        watch=options.watch,
    )


def _end_on_signals(end: asyncio.Future[str | None]) -> None:
    """Let the first signal request an orderly end; a second one ends the process at once."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        _set(end, None)
        for number in numbers:
            loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, on_signal)


def _set(end: asyncio.Future[str | None], why: str | None) -> None:
    if not end.done():
        end.set_result(why)


async def _storage_of(agent: Agent, others: Sequence[Contact]) -> str:
    for other in others:
        reply = await agent.ask(other, WhichStorage(), _PATIENCE)
        if isinstance(reply, Storage):
            return reply.location
    raise PeerError("storage: missing; give the fleet's directory, or the address of a running peer")
