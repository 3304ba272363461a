"""Discovery: look-ups in O(log n) hops, hosts that are found after deaths, expiry, limits."""

from __future__ import annotations

import asyncio
import math
import random

import pytest
from support.fleets import agent, contact
from support.profiles import size

from braided.errors import PeerError
from braided.fleet.contact_buckets import Buckets, key_of
from braided.fleet.discovery import Discovery
from braided.fleet.host_index import MAX_HOSTS, HostIndex, Hosts, Register
from braided.fleet.messages import Contact, Done
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork, run


async def _fleet(
    network: VirtualNetwork, count: int, **options: float
) -> tuple[list[Discovery], dict[str, VirtualMachine]]:
    """Nodes that have joined one after the other, each by one that was there."""
    nodes: list[Discovery] = []
    machines = {}
    for number in range(count):
        made, machine = agent(network, f"peer{number}")
        node = Discovery(made, **options)  # type: ignore[arg-type]
        machines[made.contact.name] = machine
        if nodes:
            await node.join([network.random.choice(nodes).agent.contact])
        nodes.append(node)
    return nodes, machines


def _contact(number: int) -> Contact:
    return Contact(f"{number:040x}", "10.0.0.1:1", f"n{number}")


@pytest.mark.long
def test_hops_grow_with_the_logarithm_of_the_fleet() -> None:
    async def hops(count: int) -> tuple[float, int]:
        network = VirtualNetwork(seed=count)
        nodes, _ = await _fleet(network, count)
        found = []
        for number in range(60):
            key = key_of(f"operator{number}")
            lookup = await network.random.choice(nodes).lookup(key)
            nearest = min(nodes, key=lambda node: node.agent.contact.number ^ key)
            assert lookup.nearest[0] == nearest.agent.contact
            found.append((lookup.hops, lookup.asked))
        return sum(hop for hop, _ in found) / len(found), max(asked for _, asked in found)

    few, _ = run(hops(64))
    many, asked = run(hops(size(quick=500, slow=4000)))
    assert many <= math.log2(1000) / 2
    assert many - few <= 2
    assert asked <= 40


def test_all_keys_are_found_also_after_two_have_died() -> None:
    async def find() -> None:
        network = VirtualNetwork(seed=5)
        nodes, machines = await _fleet(network, 12, ttl=600.0)
        hosts = {f"join.{number}": network.random.choice(nodes) for number in range(60)}
        for name, host in hosts.items():
            assert len(await host.register(name)) == 3
        for name in ("peer3", "peer8"):
            machines[name].kill()
        alive = [node for node in nodes if node.agent.contact.name not in ("peer3", "peer8")]
        for name, host in hosts.items():
            assert await network.random.choice(alive).hosts(name) == [host.agent.contact]

    run(find())


def test_a_host_that_refreshes_stays_while_the_peers_change_and_a_dead_one_expires() -> None:
    async def live() -> None:
        network = VirtualNetwork(seed=6, loss=0.02)
        nodes, machines = await _fleet(network, 20, ttl=60.0)
        for node in nodes[:2]:
            await node.register("join.window")
            node.agent.machine.spawn(node.keep())
        for dead in range(2, 12):
            await asyncio.sleep(30)
            machines[f"peer{dead}"].kill()
            made, _ = agent(network, f"new{dead}")
            joined = Discovery(made)
            await joined.join([nodes[0].agent.contact])
            both = {nodes[0].agent.contact.name, nodes[1].agent.contact.name}
            assert {host.name for host in await joined.hosts("join.window")} == both
        machines["peer1"].kill()
        await asyncio.sleep(61)
        assert await joined.hosts("join.window") == [nodes[0].agent.contact]

    run(live())


def test_what_is_unregistered_is_gone_at_once() -> None:
    async def leave() -> None:
        nodes, _ = await _fleet(VirtualNetwork(), 5)
        await nodes[0].register("join")
        assert await nodes[3].hosts("join")
        await nodes[0].unregister("join")
        assert not await nodes[3].hosts("join")
        assert nodes[0].registered == {}

    run(leave())


def test_a_full_bucket_keeps_whom_it_has_until_they_fall_silent() -> None:
    buckets = Buckets(0, size=2)
    first, second, third, fourth = (_contact(number) for number in (8, 9, 10, 11))
    assert buckets.heard(first) is None
    assert buckets.heard(second) is None
    assert buckets.heard(third) == first
    assert buckets.heard(first) is None  # first is there: now second is the one not heard of for longest
    assert buckets.heard(fourth) == second
    assert set(buckets) == {first, second}
    buckets.missed(second)
    assert second in set(buckets)  # a message may have been lost
    buckets.missed(second)
    assert set(buckets) == {first, fourth}
    buckets.missed(_contact(0))
    assert buckets.heard(_contact(0)) is None
    assert len(buckets) == 2


def test_the_closest_are_those_of_all() -> None:
    generator = random.Random(3)
    contacts = [_contact(generator.getrandbits(160)) for _ in range(200)]
    buckets = Buckets(generator.getrandbits(160), size=200)
    for known in contacts:
        buckets.heard(known)
    key = generator.getrandbits(160)
    assert buckets.closest(key, 9) == sorted(contacts, key=lambda known: known.number ^ key)[:9]


def test_an_index_is_bounded_and_expires() -> None:
    index = HostIndex()
    for number in range(MAX_HOSTS + 5):
        index.add(1, _contact(number + 1), 10.0 + number, 0.0)
    assert index.find(1, 0.0).left[0] == 10.0 + MAX_HOSTS + 4
    assert len(index._keys[1]) == MAX_HOSTS
    assert index.keys(10.0 + MAX_HOSTS + 4) == []
    with pytest.raises(PeerError, match=r"ttl=3601.0: write a number of seconds"):
        index.add(1, _contact(1), 3601.0, 0.0)


def test_a_host_registers_only_itself_and_keys_are_checked() -> None:
    async def register() -> None:
        network = VirtualNetwork()
        north, _ = agent(network, "north")
        south, _ = agent(network, "south")
        node = Discovery(north)
        assert await south.ask(contact("north"), Register("x", 1.0)) == Done(False, "key='x': write 40 hex digits")
        assert await south.ask(contact("north"), Register("0" * 40, 1.0)) == Done()
        assert node.index.find(0, north.machine.now()).hosts == (contact("south"),)

    run(register())


def test_options_that_cannot_be_are_refused() -> None:
    made, _ = agent(VirtualNetwork(), "north")
    with pytest.raises(PeerError, match="replicas=1: write at least 2, so that one may fail"):
        Discovery(made, replicas=1)
    with pytest.raises(PeerError, match=r"ttl=0: write a number of seconds above 0"):
        Discovery(made, ttl=0)
    with pytest.raises(PeerError, match="hosts, left: 1 and 0 entries"):
        Hosts((contact("a"),), ())
