"""A peer as a process of its own, with model components, over TLS: `python peer_process.py NAME STORAGE TOKEN [JOIN]`.

It prints its address when it listens. Numbers come with the clock of the machine, which all processes share.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from braided.fleet.agent_machine import RealMachine
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.identity import Identity, Token
from braided.fleet.transport import Transport
from support.fleet_model import ModelHost

SETTINGS = Settings(period=0.3, ttl=4.0, span=2.0, rehearsal=10.0, start=5.0)
RATE = 200


def until() -> int:
    """How many numbers have come: none is left out or comes twice, whoever asks."""
    return int((time.time() % 100_000) * RATE)


async def live(name: str, storage: str, token: str, others: list[str]) -> None:
    """Be a peer until killed."""
    transport = Transport(Identity(name, Token.read(Path(token))))
    machine = RealMachine(transport.send)
    contact = await transport.start()
    machine.contact = contact  # type: ignore[attr-defined]
    peer = Peer(contact, machine, ModelHost(machine, until), storage, SETTINGS)  # type: ignore[arg-type]
    transport.receive = peer.agent.receive
    await peer.start([await transport.greet(address) for address in others])
    print(contact.address, flush=True)
    while True:
        await asyncio.sleep(3600)


if __name__ == "__main__":
    own, storage_, token_, *joins = sys.argv[1:]
    asyncio.run(live(own, storage_, token_, joins))
