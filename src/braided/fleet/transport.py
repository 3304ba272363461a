"""Messages over asyncio streams with TLS 1.3, in which both sides prove that they belong to the fleet.

A peer listens at one address and opens one connection to every peer that it sends to; replies come over that peer's own
connection. TLS encrypts, authenticates, and refuses replayed or reordered records. Sessions are not resumed and there
is no early data, so a recording of one connection is useless on another.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from braided.errors import PeerError
from braided.fleet.framing import frame, read_frame
from braided.fleet.identity import Identity, node_of
from braided.fleet.messages import Contact

MAX_CONNECTIONS = 256
MAX_WAITING = 1000  # messages to one peer
CONNECT = 5.0
"""Seconds for a connection and its handshake."""
IDLE = 120.0
"""Seconds after which a connection over which no whole message comes is closed."""
_FAILURES = (OSError, ssl.SSLError, asyncio.IncompleteReadError, TimeoutError, PeerError)


class Transport:
    """A peer's streams.

    listen : host and port; port 0 chooses a free one. Only loopback addresses unless `beyond_loopback`.
    `counts` has the numbers of refused and dropped messages.
    """

    def __init__(self, identity: Identity, listen: str = "127.0.0.1:0", *, beyond_loopback: bool = False) -> None:
        self.identity = identity
        self.counts: Counter[str] = Counter()
        self._host, self._port = split(listen)
        if not beyond_loopback and not is_loopback(self._host):
            raise PeerError(
                f"listen={listen!r}: can be reached from other machines; allow this with --beyond-loopback "
                "(beyond_loopback=True)"
            )
        if _is_anywhere(self._host):
            raise PeerError(
                f"listen={listen!r}: other peers cannot reach this one by that; write an address of this machine, as "
                "10.0.0.5:7401"
            )
        self.receive: Callable[[str, bytes], None] = lambda node, content: None
        """Called with every message and the id of its sender."""
        self._server: asyncio.Server | None = None
        self._links: dict[str, _Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Contact:
        """Listen; return the address of this peer."""
        try:
            self._server = await asyncio.start_server(self._accept, self._host, self._port)
        except OSError as error:
            why = os.strerror(error.errno).lower() if error.errno else str(error)
            listen = f"{self._host}:{self._port}"
            raise PeerError(f"listen={listen!r}: {why}; give another port, or 0 for a free one") from error
        self._port = self._server.sockets[0].getsockname()[1]
        return Contact(self.identity.node, f"{self._host}:{self._port}", self.identity.name)

    def send(self, to: Contact, content: bytes) -> None:
        """Send a message in the background; if it cannot be sent, it is dropped and counted."""
        link = self._links.get(to.node)
        if link is None or link.to != to:
            link = self._links[to.node] = _Link(to)
        if len(link.waiting) >= MAX_WAITING:
            self.counts["queue full"] += 1
            return
        link.waiting.append(frame(content))
        if not link.is_busy:
            link.is_busy = True
            self._spawn(self._flush(link))

    async def greet(self, address: str) -> Contact:
        """Return the contact of the peer that listens at an address; its name is not known yet."""
        try:
            _, writer, node = await self._connect(address)
        except ssl.SSLCertVerificationError as error:
            raise PeerError(
                f"address={address!r}: the token is wrong; the process that listens there has a certificate of another "
                "token. Give the token file of that fleet"
            ) from error
        except _FAILURES as error:
            raise PeerError(f"address={address!r}: no peer of this fleet answers there ({_short(error)})") from error
        writer.close()
        return Contact(node, address, "unknown")

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for link in self._links.values():
            if link.writer is not None:
                link.writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
        host, port = split(address)
        async with asyncio.timeout(CONNECT):
            reader, writer = await asyncio.open_connection(host, port, ssl=self.identity.client)
        return reader, writer, _peer_of(writer)

    async def _flush(self, link: _Link) -> None:
        try:
            if link.writer is None or link.writer.is_closing():
                reader, writer, node = await self._connect(link.to.address)
                if node != link.to.node:
                    writer.close()
                    self.counts["another node at that address"] += len(link.waiting)
                    link.waiting.clear()
                    return
                link.writer = writer
                self._spawn(self._drain(link, reader, writer))
            async with asyncio.timeout(CONNECT):
                while link.waiting:
                    link.writer.write(link.waiting.pop(0))
                    await link.writer.drain()
        except _FAILURES:
            self.counts["not sent"] += len(link.waiting) + 1
            link.waiting.clear()
            if link.writer is not None:
                link.writer.close()
                link.writer = None
        finally:
            link.is_busy = False

    async def _drain(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Remove the connection when the other side closes it, as users do. It sends nothing here."""
        with contextlib.suppress(*_FAILURES):
            await reader.read(1)
        writer.close()
        if link.writer is writer and not link.is_busy and self._links.get(link.to.node) is link:
            del self._links[link.to.node]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if len(self._tasks) > MAX_CONNECTIONS:
            self.counts["too many connections"] += 1
            writer.close()
            return
        try:
            try:
                # After accepting, so that handshakes that fail can be counted.
                await writer.start_tls(self.identity.server, ssl_handshake_timeout=CONNECT)
                node = _peer_of(writer)
            except _FAILURES:
                self.counts["handshake refused"] += 1
                return
            await self._listen(node, reader)
        except _FAILURES:
            self.counts["connection broken"] += 1
        except asyncio.CancelledError:
            pass  # this peer is closing; asyncio would log it as an error
        finally:
            writer.close()

    async def _listen(self, node: str, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                async with asyncio.timeout(IDLE):
                    content = await read_frame(reader)
            except asyncio.IncompleteReadError:
                return
            except PeerError:
                self.counts["malformed frame"] += 1
                return
            self.receive(node, content)


class _Link:
    """The connection to one peer, and the messages that wait for it."""

    def __init__(self, to: Contact) -> None:
        self.to = to
        self.waiting: list[bytes] = []
        self.writer: asyncio.StreamWriter | None = None
        self.is_busy = False


def _peer_of(writer: asyncio.StreamWriter) -> str:
    encrypted = writer.get_extra_info("ssl_object")
    certificate = encrypted.getpeercert(binary_form=True) if encrypted is not None else None
    if certificate is None:
        raise PeerError("the other side has sent no certificate")
    return node_of(certificate)


def split(address: str) -> tuple[str, int]:
    """Return host and port of an address.

    >>> split("127.0.0.1:7401"), split("[::1]:0")
    (('127.0.0.1', 7401), ('::1', 0))
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise PeerError(f"address={address!r}: write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host by this name."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_anywhere(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
