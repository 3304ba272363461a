"""Peers over real streams on loopback: TLS 1.3 on both sides, tokens, replay."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from support.fleet_model import ModelHost, covered

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.agent_machine import RealMachine
from braided.fleet.component_host import Job
from braided.fleet.discovery import Discovery
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.framing import frame
from braided.fleet.messages import Contact, Done, Ping
from braided.storage.topic import Topic

# Over TLS. Without the package that makes certificates there are no peers over a network.

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

from braided.fleet.identity import Identity, Token, new_token
from braided.fleet.transport import Transport, split

TOKEN = new_token()


class Node:
    """An agent on this machine, at a port of loopback."""

    def __init__(self, name: str, token: Token = TOKEN) -> None:
        self.transport = Transport(Identity(name, token))
        self.machine = RealMachine(self.transport.send, seed=1)

    async def start(self) -> Node:
        self.transport.receive = self._arrive
        self.contact = await self.transport.start()
        self.agent = Agent(self.contact, self.machine)
        self.receive: Callable[[str, bytes], None] = self.agent.receive
        return self

    def _arrive(self, node: str, content: bytes) -> None:
        self.receive(node, content)

    async def close(self) -> None:
        await self.machine.close()
        await self.transport.close()


def _run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(limited())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_two_peers_of_a_fleet_talk_and_know_each_other_by_their_keys() -> None:
    async def talk() -> None:
        north, south = await Node("north").start(), await Node("south").start()
        assert await north.agent.ask(south.contact, Ping()) == Done()
        assert south.agent.counts["received Ping"] == 1
        met = await north.transport.greet(south.contact.address)
        assert met.node == south.contact.node != north.contact.node
        link = next(iter(north.transport._links.values()))
        assert link.writer is not None
        assert link.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        for node in (north, south):
            await node.close()

    _run(talk)


def test_a_peer_with_another_token_is_refused_on_both_sides() -> None:
    async def talk() -> None:
        north, stranger = await Node("north").start(), await Node("stranger", new_token()).start()
        assert await stranger.agent.ask(north.contact, Ping(), patience=1.0) is None
        assert await north.agent.ask(stranger.contact, Ping(), patience=1.0) is None
        assert "received Ping" not in north.agent.counts
        assert "received Ping" not in stranger.agent.counts
        await _until(lambda: north.transport.counts["handshake refused"] >= 1)
        with pytest.raises(
            PeerError, match=r"the token is wrong; the process that listens there has a certificate of another token\."
        ):
            await stranger.transport.greet(north.contact.address)
        for node in (north, stranger):
            await node.close()

    _run(talk)


def test_without_a_certificate_or_with_an_older_tls_nobody_is_heard() -> None:
    async def talk() -> None:
        north = await Node("north").start()
        host, port = split(north.contact.address)
        bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        for number, context in enumerate((bare, old, None), start=1):
            try:
                _, writer = await asyncio.open_connection(host, port, ssl=context)
                writer.write(frame(b'{"body": {}}'))
                writer.close()
            except (OSError, ssl.SSLError):
                pass
            await _until(lambda: north.transport.counts["handshake refused"] == number)  # noqa: B023
        assert north.agent.counts == {}
        await north.close()

    _run(talk)


def test_what_was_recorded_on_the_wire_cannot_be_replayed() -> None:
    async def talk() -> None:
        north, south = await Node("north").start(), await Node("south").start()
        recorded = bytearray()
        host, port = split(south.contact.address)

        async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection(host, port)

            async def back() -> None:
                while data := await far_reader.read(1 << 16):
                    writer.write(data)

            task = asyncio.create_task(back())
            while data := await reader.read(1 << 16):
                recorded.extend(data)
                far_writer.write(data)
            far_writer.close()
            await task

        server = await asyncio.start_server(tap, "127.0.0.1", 0)
        tapped = Contact(south.contact.node, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "south")
        north.agent.tell(tapped, Ping())
        await _until(lambda: south.agent.counts["received Ping"] == 1)
        assert b"Ping" not in recorded
        refused = south.transport.counts["handshake refused"] + south.transport.counts["connection broken"]
        _, writer = await asyncio.open_connection(host, port)
        writer.write(bytes(recorded))
        await _until(
            lambda: south.transport.counts["handshake refused"] + south.transport.counts["connection broken"] > refused
        )
        assert south.agent.counts["received Ping"] == 1
        writer.close()
        server.close()
        for node in (north, south):
            await node.close()

    _run(talk)


def test_a_message_for_one_node_is_not_given_to_another_at_its_address() -> None:
    async def talk() -> None:
        north, south, west = [await Node(name).start() for name in ("north", "south", "west")]
        wrong = Contact(west.contact.node, south.contact.address, "west")
        north.agent.tell(wrong, Ping())
        await _until(lambda: north.transport.counts["another node at that address"] == 1)
        assert south.agent.counts == {}
        for node in (north, south, west):
            await node.close()

    _run(talk)


def test_a_peer_that_sends_rubbish_is_cut_off_and_counted() -> None:
    async def talk() -> None:
        north, south = await Node("north").start(), await Node("south").start()
        for content, where in ((frame(b"\xff{"), south.agent.counts), (b"\xff" * 9, south.transport.counts)):
            _, writer, _ = await north.transport._connect(south.contact.address)
            writer.write(content)
            kind = "malformed" if where is south.agent.counts else "malformed frame"
            await _until(lambda: where[kind] == 1)  # noqa: B023
            writer.close()
        for node in (north, south):
            await node.close()

    _run(talk)


def test_a_peer_that_is_gone_is_found_again_when_it_is_back() -> None:
    async def talk() -> None:
        north, south = await Node("north").start(), await Node("south").start()
        assert await north.agent.ask(south.contact, Ping()) == Done()
        await south.close()
        assert await north.agent.ask(south.contact, Ping(), patience=0.3) is None
        back = Node("south")
        back.transport = Transport(back.transport.identity, south.contact.address)
        back.machine = RealMachine(back.transport.send)
        await back.start()
        assert back.contact.node != south.contact.node  # a new key: a new node
        assert await north.agent.ask(back.contact, Ping()) == Done()
        for node in (north, back):
            await node.close()

    _run(talk)


def test_only_loopback_unless_told_and_addresses_are_checked() -> None:
    identity = Identity("north", TOKEN)
    with pytest.raises(PeerError, match=r"listen='0.0.0.0:0': can be reached from other machines; allow this with"):
        Transport(identity, "0.0.0.0:0")
    Transport(identity, "192.0.2.1:0", beyond_loopback=True)
    for anywhere in ("0.0.0.0:7401", "[::]:7401"):
        with pytest.raises(PeerError, match=r"other peers cannot reach this one by that; write an address of this"):
            Transport(identity, anywhere, beyond_loopback=True)
    Transport(identity, "[::1]:0")
    Transport(identity, "localhost:0")
    for wrong in ("localhost", ":1", "a:70000", "a:b"):
        with pytest.raises(PeerError, match="write host:port"):
            split(wrong)


def test_a_token_hides_itself_and_its_file_is_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = new_token()
    logging.getLogger("braided").warning("%s %r", token, [token])
    assert token.secret not in f"{token!r} {token} {caplog.text}"
    path = tmp_path / "token"
    token.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Token.read(path).secret == token.secret
    path.chmod(0o644)
    with pytest.raises(PeerError, match=r"other users can read it; run chmod 600"):
        Token.read(path)
    with pytest.raises(PeerError, match="token: has 3 characters, fewer than 32; create one with `new_token`"):
        Token("abc")


@pytest.mark.long
def test_peers_over_tls_find_each_other_run_a_component_and_move_it(tmp_path: Path) -> None:
    """The whole of a peer, as in the simulation, in real time."""

    async def live() -> None:
        started = asyncio.get_running_loop().time()
        quick = Settings(period=0.2, ttl=5.0, span=4.0, rehearsal=10.0, start=5.0)
        peers: dict[str, Peer] = {}
        nodes = []
        for name in ("north", "south", "west"):
            node = await Node(name).start()
            node.machine.contact = node.contact  # type: ignore[attr-defined]
            host = ModelHost(node.machine, lambda: int((asyncio.get_running_loop().time() - started) * 50))  # type: ignore[arg-type]
            peer = Peer(node.contact, node.machine, host, str(tmp_path), quick)
            node.receive = peer.agent.receive
            others = [await node.transport.greet(nodes[0].contact.address)] if nodes else []
            await peer.start(others)
            peers[name] = peer
            nodes.append(node)
        output = str(tmp_path / "topics" / "one")
        await peers["west"].submit(Job("one", "sum.numbers", (), (output,), str(tmp_path / "checkpoints")))
        await _until(lambda: any(peer.holding.names for peer in peers.values()))
        source = next(name for name, peer in peers.items() if peer.holding.names)
        target = next(name for name in peers if name != source)
        assert await peers["west"].move("one", peers[target].agent.contact)
        assert [name for name, peer in peers.items() if peer.holding.names] == [target]
        before = covered(Topic(output))
        await _until(lambda: covered(Topic(output)) > before)
        for node in nodes:
            await node.close()

    _run(live)


def test_three_peers_find_hosts_over_tls() -> None:
    async def find() -> None:
        nodes = [await Node(name).start() for name in ("north", "south", "west")]
        parts = [Discovery(node.agent) for node in nodes]
        for part in parts[1:]:
            await part.join([nodes[0].contact])
        await parts[1].register("join.window")
        assert await parts[2].hosts("join.window") == [nodes[1].contact]
        for node in nodes:
            await node.close()

    _run(find)


def test_sockets_are_of_loopback() -> None:
    async def listen() -> None:
        north = await Node("north").start()
        assert north.transport._server is not None
        names = [server.getsockname()[0] for server in north.transport._server.sockets]
        assert names == ["127.0.0.1"]
        assert north.transport._server.sockets[0].family == socket.AF_INET
        await north.close()

    _run(listen)
