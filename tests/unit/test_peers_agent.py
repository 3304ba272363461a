"""Messages, agents, the virtual clock and network."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fleets import agent, contact
from support.profiles import examples

from braided.errors import PeerError
from braided.fleet.fleet_peer import Peer
from braided.fleet.messages import LIMIT, Contact, Done, Envelope, Ping, decode, encode, kinds
from braided.fleet.virtual_network import VirtualNetwork, run

NORTH = contact("north")
assert Peer  # with it all kinds of messages are there


def _content(**changes: Any) -> bytes:
    content = json.loads(encode(Envelope(NORTH, 7, True, Done(False, "no"))))
    return json.dumps(content | changes).encode()


def test_an_envelope_survives_its_way() -> None:
    sent = Envelope(NORTH, 7, True, Done(False, "why \u00e4 not"))
    assert decode(encode(sent)) == sent


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"", "not JSON: JSONDecodeError"),
        (b"\xff\xfe\x00", "not JSON: UnicodeDecodeError"),
        (b"[" * 60_000, "not JSON: RecursionError"),
        (b"[1]", "a message without a body"),
        (b"x" * (LIMIT + 1), f"a message of {LIMIT + 1} bytes, more than {LIMIT}"),
        (_content(version=2), "version=2: this peer speaks version 1; upgrade the older one"),
        (_content(kind="os.system"), "kind='os.system': unknown message"),
        (_content(kind=3), "kind: 3: expected a string of at most 32768 characters"),
        (_content(number=True), "number: True: expected a whole number"),
        (_content(number=10**40), ": expected a whole number"),
        (_content(body={"ok": 1}), "ok: 1: expected true or false"),
        (_content(body={"good": True}), "Done: unknown field 'good'"),
        (_content(body=[]), "Done: []: expected an object"),
        (_content(extra=1), "_Header: unknown field 'extra'"),
        (_content(sender={"node": "f" * 40}), "sender: Contact: required fields are missing; it has only ['node']"),
        (_content(sender={"node": "../x", "address": "a:1", "name": "n"}), "node='../x': write 40 hex digits"),
        (b'{"body": {}, "number": NaN}', "not JSON: ValueError"),
    ],
)
def test_what_is_no_message_is_refused(frame: bytes, text: str) -> None:
    with pytest.raises(PeerError) as caught:
        decode(frame)
    assert text in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(500), deadline=None)
@given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(["version", "kind", "number", "body"]), _JSON))
def test_anything_else_that_comes_is_dropped_and_counted(sent: Any) -> None:
    frame = sent if isinstance(sent, bytes) else _content(**sent)
    made, _ = agent(VirtualNetwork(), "north")
    made.receive(NORTH.node, frame)
    assert made.counts["malformed"] + made.counts["unasked"] == 1


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_no_body_of_any_kind_of_message_does_more_than_be_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(kinds())))
    fields = [field.name for field in dataclasses.fields(kinds()[name])]
    body = data.draw(st.dictionaries(st.sampled_from(fields), _JSON) if fields else _JSON)
    try:
        envelope = decode(_content(kind=name, body=body))
    except PeerError:
        return
    assert decode(encode(envelope)) == envelope


def test_too_large_a_message_is_not_sent() -> None:
    with pytest.raises(PeerError, match=f"Done: .* bytes, more than {LIMIT}; send less"):
        encode(Envelope(NORTH, 1, False, Done(False, "x" * LIMIT)))


def test_a_message_in_another_name_is_dropped() -> None:
    made, _ = agent(VirtualNetwork(), "north")
    made.receive(contact("south").node, encode(Envelope(NORTH, 1, False, Ping())))
    assert made.counts == {"impostor": 1}


def test_replies_that_nobody_asked_for_are_dropped() -> None:
    made, _ = agent(VirtualNetwork(), "north")
    made.receive(NORTH.node, encode(Envelope(NORTH, 1, True, Done())))
    assert made.counts["unasked"] == 1


def test_the_same_seed_has_the_same_course() -> None:
    def course(seed: int) -> list[tuple[float, bool]]:
        async def talk() -> list[tuple[float, bool]]:
            network = VirtualNetwork(seed=seed, loss=0.3)
            north, _ = agent(network, "north")
            agent(network, "south")
            times = []
            for _ in range(20):
                reply = await north.ask(contact("south"), Ping())
                times.append((asyncio.get_running_loop().time(), reply is None))
            return times

        return run(talk())

    assert course(1) == course(1) != course(2)
    assert {lost for _, lost in course(1)} == {True, False}


def test_partitions_part_and_heal() -> None:
    async def talk() -> None:
        network = VirtualNetwork()
        north, _ = agent(network, "north")
        agent(network, "south")
        network.partition(("north",), ("south",))
        assert await north.ask(contact("south"), Ping()) is None
        network.heal()
        assert await north.ask(contact("south"), Ping()) == Done()

    run(talk())


def test_a_paused_machine_answers_when_it_goes_on_and_a_dead_one_never() -> None:
    async def talk() -> None:
        network = VirtualNetwork()
        north, _ = agent(network, "north")
        _, machine = agent(network, "south")
        machine.pause()
        asyncio.get_running_loop().call_later(30, machine.resume)
        before = asyncio.get_running_loop().time()
        assert await north.ask(contact("south"), Ping(), patience=100) == Done()
        assert 30 <= asyncio.get_running_loop().time() - before < 31
        machine.kill()
        assert await north.ask(contact("south"), Ping()) is None

    run(talk())


def test_clocks_of_machines_differ() -> None:
    async def wait() -> None:
        network = VirtualNetwork()
        _, fast = agent(network, "north", rate=2.0)
        _, slow = agent(network, "south", rate=0.5)
        starts = fast.now(), slow.now()
        await fast.sleep(10)
        assert asyncio.get_running_loop().time() == 5
        assert fast.now() - starts[0] == pytest.approx(10)
        assert slow.now() - starts[1] == pytest.approx(2.5)

    run(wait())


def test_a_fleet_in_which_nothing_can_happen_says_so() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(PeerError, match="no timer and no message is left"):
        run(wait())


def test_a_contact_that_cannot_be_is_refused() -> None:
    with pytest.raises(PeerError, match="address='nowhere': write host:port"):
        Contact("f" * 40, "nowhere", "n")
    with pytest.raises(PeerError, match=r"name='\.\./x': write letters, digits"):
        Contact("f" * 40, "a:1", "../x")
