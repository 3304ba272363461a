"""A peer without Spark as a process, with the times that users get but for a shorter lease: `python many_peers.py NAME STORAGE TOKEN [JOIN]`.

It prints its address, then every few seconds a line of JSON: seconds, messages sent, bytes of memory, open descriptors.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from braided.fleet.agent_machine import RealMachine
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.identity import Identity, Token
from braided.fleet.transport import Transport
from support.fleet_model import ModelHost

SETTINGS = Settings(span=20.0, start=10.0)
EVERY = 5.0


async def live(name: str, storage: str, token: str, others: list[str]) -> None:
    """Be a peer until killed."""
    transport = Transport(Identity(name, Token.read(Path(token))))
    machine = RealMachine(transport.send)
    contact = await transport.start()
    machine.contact = contact  # type: ignore[attr-defined]
    host = ModelHost(machine, lambda: int(time.time() % 100_000))  # type: ignore[arg-type]
    peer = Peer(contact, machine, host, storage, SETTINGS)
    transport.receive = peer.agent.receive
    await peer.start([await transport.greet(address) for address in others])
    print(contact.address, flush=True)
    while True:
        await asyncio.sleep(EVERY)
        sent = sum(count for kind, count in peer.agent.counts.items() if kind.startswith("sent "))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        print(json.dumps([time.monotonic(), sent, memory, len(os.listdir("/proc/self/fd"))]), flush=True)


if __name__ == "__main__":
    own, storage_, token_, *joins = sys.argv[1:]
    asyncio.run(live(own, storage_, token_, joins))
