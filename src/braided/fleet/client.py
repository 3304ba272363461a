"""`braided.Fleet`: a user's way to a fleet of peers, from Python. The command line does the same."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from braided.errors import PeerError
from braided.fleet import requests
from braided.fleet.agent import Agent
from braided.fleet.agent_machine import RealMachine
from braided.fleet.applications import read_application
from braided.fleet.definition import component_of
from braided.fleet.event_log import MOST, Event
from braided.fleet.identity import Identity, Token
from braided.fleet.messages import Contact, Done, Message, Request
from braided.fleet.migration import REHEARSAL, START
from braided.fleet.peer_names import find_peer
from braided.fleet.transport import Transport
from braided.jobs.toml_file import read_text

_SOON = 20.0
_TOLD = MOST
_LONG = REHEARSAL + 6 * START
T = TypeVar("T")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Status:
    """Peers that answer, and all components."""

    peers: tuple[requests.PeerRow, ...]
    components: tuple[requests.ComponentRow, ...]


class Fleet:
    """A fleet of peers, by the address of any of them and the fleet's token. Close it, or use it in a `with`.

    token : the secret itself; or token_file, the file that the first peer wrote.
    listen : the address for answers; not a loopback address if the peer is on another machine.

    A refused request raises `PeerError` with the peer's reason.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        beyond_loopback: bool = False,
    ) -> None:
        if (token is None) == (token_file is None):
            raise PeerError("token, token_file: give one of them; the first peer of a fleet writes the file")
        secret = Token(token) if token is not None else Token.read(Path(str(token_file)))
        self._transport = Transport(Identity("user", secret), listen, beyond_loopback=beyond_loopback)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="braided-fleet", daemon=True)
        self._thread.start()
        try:
            self._peer = self._run(self._connect(address))
            self._addresses = [address]
        except BaseException:
            self.close()
            raise

    def submit(self, job: str | os.PathLike[str], *, dry_run: bool = False) -> requests.Submitted:
        """Submit a job file; return where it runs, or would run, and why there."""
        file = Path(job)
        text = read_text(file)
        component_of(text, str(file))  # refused here, without a peer
        request = requests.Submit(text, str(file), dry_run)
        return self._run(self._asked(self._peer, request, requests.Submitted, _LONG))

    def launch(self, application: str | os.PathLike[str], *, dry_run: bool = False) -> requests.Launched:
        """Submit an application: jobs that read each other's topics, with a latency bound (docs/how-to/peers.md)."""
        file = read_application(Path(application))
        file.application()  # refused here, without a peer
        request = requests.Launch(file.name, file.latency, file.steps, dry_run)
        return self._run(self._asked(self._peer, request, requests.Launched, _LONG))

    def status(self) -> Status:
        """Return the peers that answer and all components, with who holds them.

        If the current peer does not answer, another peer that it knew is used from then on.
        """
        return self._run(self._status())

    def move(self, component: str, peer: str) -> bool:
        """Move a component to a peer, by name; return when it runs there: False if it was there already."""
        return not self._run(self._asked(self._peer, requests.MoveTo(component, peer), Done, _LONG)).reason

    def remove(self, component: str) -> None:
        """Remove a component from the fleet for ever; its peer stops it after the current batch."""
        self._run(self._asked(self._peer, requests.Remove(component), Done))

    def retry(self, component: str) -> requests.Submitted:
        """Start a failed component again, and reset its count of failures; return where it runs."""
        return self._run(self._asked(self._peer, requests.Retry(component), requests.Submitted, _LONG))

    def pause(self, component: str) -> None:
        """Pause a component until it is resumed; its peer stops it after the current batch."""
        self._run(self._asked(self._peer, requests.Pause(component), Done))

    def resume(self, component: str) -> requests.Submitted:
        """Let a paused component run again; return where. A component that is not paused is not changed."""
        return self._run(self._asked(self._peer, requests.Resume(component), requests.Submitted, _LONG))

    def restart(self, component: str) -> requests.Submitted:
        """Stop a component after the current batch and start it again at the same peer; return where it runs."""
        return self._run(self._asked(self._peer, requests.Restart(component), requests.Submitted, _LONG))

    def undrain(self, peer: str) -> None:
        """Let a drained peer accept components again."""
        self._run(self._undrain(peer))

    def drain(self, peer: str) -> list[str]:
        """Let a peer move its components to other peers and accept no more; return those that stay."""
        return self._run(self._drain(peer))

    def events(self, *, since: float = 0.0, component: str = "", newest: int | None = None) -> list[Event]:
        """Return the last ten thousand events of the fleet from its storage, oldest first.

        since : seconds since 1970. component : only events of this one. newest : at most this number, up to 40.
        """
        request = requests.ListEvents(0, since, component, newest or 0)
        return sorted(self._run(self._events(request))[0], key=lambda event: event.at)

    def follow(self, *, since: float = 0.0, component: str = "", every: float = 1.0) -> Iterator[Event]:
        """Yield past events, oldest first, and then new events, for ever. If a peer fails, another one is asked."""
        last, yielded = 0, deque[Event](maxlen=_TOLD)
        while True:
            try:
                events, last = self._run(self._events(requests.ListEvents(last, since, component)))
            except PeerError:
                self._run(self._turn())
                last = 0  # every peer has its own numbers
                continue
            for event in sorted(events, key=lambda event: event.at):
                if event not in yielded:
                    yielded.append(event)
                    yield event
            time.sleep(every)

    def log(self, component: str) -> requests.Log:
        """Return the last lines that the driver of a component has logged about it."""
        return self._run(self._asked(self._peer, requests.ReadLog(component), requests.Log))

    def close(self) -> None:
        """Close all connections."""
        if self._loop.is_running():
            self._run(self._disconnect())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connect(self, address: str) -> Contact:
        self._machine = RealMachine(self._transport.send)
        self._agent = Agent(await self._transport.start(), self._machine)
        self._transport.receive = self._agent.receive
        return await self._transport.greet(address)

    async def _disconnect(self) -> None:
        if hasattr(self, "_machine"):
            await self._machine.close()
        await self._transport.close()

    async def _asked(self, peer: Contact, request: Request, kind: type[M], patience: float | None = None) -> M:
        patience = _SOON if patience is None else patience
        reply = await self._agent.ask(peer, request, patience)
        if isinstance(reply, Done) and not reply.ok:
            raise PeerError(reply.reason)
        if not isinstance(reply, kind):
            raise PeerError(f"peer {peer.address}: did not answer within {patience:.0f} seconds")
        return reply

    async def _status(self) -> Status:
        try:
            status = await self._told()
        except PeerError:
            await self._turn()
            status = await self._told()
        self._addresses = list(dict.fromkeys([self._peer.address, *(row.contact.address for row in status.peers)]))
        return status

    async def _told(self) -> Status:
        peers = await self._peers()
        return Status(tuple(peers), tuple(await self._rows(requests.ListComponents, requests.Components)))

    async def _turn(self) -> None:
        for address in self._addresses:
            with contextlib.suppress(PeerError):
                self._peer = await self._transport.greet(address)
                return
        raise PeerError(f"no peer answers any more; tried {', '.join(self._addresses)}")

    async def _peers(self) -> list[requests.PeerRow]:
        rows = await self._rows(requests.ListPeers, requests.Peers, lambda row: row.contact.node)
        return sorted(rows, key=lambda row: row.contact.name)

    async def _rows(
        self, request: Callable[[str], Request], kind: type[Any], key: Callable[[Any], str] = lambda row: row.name
    ) -> list[Any]:
        """Return the rows of all pages; `key` is the field of the last row that a request names."""
        rows: list[Any] = []
        while True:
            page = (await self._asked(self._peer, request(key(rows[-1]) if rows else ""), kind)).rows
            rows += page
            if len(page) < requests.PAGE:
                return rows

    async def _drain(self, name: str) -> list[str]:
        peer = find_peer(name, [row.contact for row in await self._peers()])
        return list((await self._asked(peer, requests.Drain(), requests.Drained, _LONG)).stay)

    async def _undrain(self, name: str) -> None:
        peer = find_peer(name, [row.contact for row in await self._peers()])
        await self._asked(peer, requests.Undrain(), Done)

    async def _events(self, request: requests.ListEvents) -> tuple[list[Event], int]:
        events: list[Event] = []
        while True:
            page = await self._asked(self._peer, request, requests.Events)
            events += page.rows
            if not page.more:
                return events, page.last
            request = replace(request, after=page.last)
