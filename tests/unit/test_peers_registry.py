"""Names of peers: one peer has a name at a time, whoever starts when."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from support.fleets import contact

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.peer_names import PeerNames, find_peer
from braided.fleet.requests import Storage, WhichStorage
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork, run
from braided.storage.files import LocalFiles


def _peer(network: VirtualNetwork, root: Path, which: str, name: str) -> tuple[PeerNames, VirtualMachine]:
    machine = VirtualMachine(network, replace(contact(which), name=name), storage=(0.0, 0.5))
    agent = Agent(machine.contact, machine)
    agent.on(WhichStorage, lambda sender, asked: Storage(str(root)))
    machine.receive = agent.receive
    return PeerNames(agent, LocalFiles(root)), machine


@pytest.mark.parametrize("seed", range(10))
def test_of_peers_that_start_at_the_same_time_one_gets_the_name(tmp_path: Path, seed: int) -> None:
    async def play() -> None:
        network = VirtualNetwork(seed=seed, delay=(0.001, 0.2))
        peers = [_peer(network, tmp_path, which, "north") for which in "abc"]
        outcomes = await asyncio.gather(*(names.claim() for names, _ in peers), return_exceptions=True)
        (winner,) = [machine.contact for (_, machine), outcome in zip(peers, outcomes, strict=True) if outcome is None]
        refusals = [str(outcome) for outcome in outcomes if outcome is not None]
        assert refusals == [f"name='north': the peer at {winner.address} has this name; choose another"] * 2

    run(play())


def test_the_name_of_a_dead_peer_is_free_and_other_names_are(tmp_path: Path) -> None:
    async def play() -> None:
        network = VirtualNetwork(seed=1)
        first, machine = _peer(network, tmp_path, "a", "north")
        await first.claim()
        await first.claim()  # its own
        await _peer(network, tmp_path, "b", "north.1")[0].claim()
        machine.kill()
        await _peer(network, tmp_path, "c", "north")[0].claim()
        (tmp_path / "peers" / "north" / "000000000003.json").write_text("{")
        with pytest.raises(PeerError, match=r"peers/north/000000000003.json: is damaged .*; delete it if no peer has"):
            await _peer(network, tmp_path, "d", "north")[0].claim()

    run(play())


def test_a_peer_is_found_by_its_name() -> None:
    north, south, other = contact("north"), contact("south"), replace(contact("other"), name="north")
    assert find_peer("south", [north, south]) == south
    with pytest.raises(PeerError, match="peer='west': does not answer; there are north, south"):
        find_peer("west", [north, south, other])
    with pytest.raises(PeerError, match=r"peer='north': the peers at 10.* and 10.* have this name; stop all but one"):
        find_peer("north", [north, south, other])
