"""A peer as a process of its own, with model components, over TLS: `python peer_process.py NAME STORAGE TOKEN [JOIN...]`.

It prints its address when it listens. Numbers come with the clock of the machine, which all processes share, or, where
hosts have clocks of their own, as the file `numbers` in the storage says. The file `faults` there, JSON, may have why
jobs fail in their next batch, and which do not keep up: {"fails": {"one": "a fault"}, "behind": ["two"]}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from braided.fleet.agent_machine import RealMachine
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.identity import Identity, Token
from braided.fleet.peer_loads import Measured
from braided.fleet.transport import Transport
from support.fleet_model import ModelHost

SETTINGS = Settings(period=0.3, ttl=4.0, span=2.0, rehearsal=10.0, start=5.0)
RATE = 200


def until() -> int:
    """How many numbers have come: none is left out or comes twice, whoever asks."""
    return int((time.time() % 100_000) * RATE)


def written_to(file: Path) -> Callable[[], int]:
    """How many numbers have come, by a file that whoever sends them replaces."""
    return lambda: int(file.read_text())


async def live(given: argparse.Namespace) -> None:
    """Be a peer until killed."""
    identity = Identity(given.name, Token.read(given.token))
    transport = Transport(identity, given.listen, beyond_loopback=True)
    machine = RealMachine(transport.send)
    contact = await transport.start()
    machine.contact = contact  # type: ignore[attr-defined]
    numbers = given.storage / "numbers"
    host = ModelHost(machine, written_to(numbers) if numbers.exists() else until)  # type: ignore[arg-type]
    faults = given.storage / "faults"
    if faults.exists():
        asyncio.get_running_loop().create_task(follow_faults(host, faults))
    peer = Peer(contact, machine, host, str(given.storage), replace(SETTINGS, span=given.lease))
    transport.receive = peer.agent.receive
    await peer.start([await transport.greet(address) for address in given.join])
    print(contact.address, flush=True)
    while True:
        await asyncio.sleep(3600)


async def follow_faults(host: ModelHost, file: Path) -> None:
    """Do to jobs what a file says, which whoever tests replaces."""
    behind: set[str] = set()
    measure = host.measure

    def measured() -> Measured:
        taken = measure()
        return replace(taken, components=tuple(replace(p, is_behind=p.name in behind) for p in taken.components))

    host.measure = measured  # type: ignore[method-assign]
    while True:
        found = json.loads(file.read_text())
        host.fails = found.get("fails", {})
        behind = set(found.get("behind", ()))
        await asyncio.sleep(0.2)


def main() -> None:
    """Read the command line, and be a peer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("storage", type=Path)
    parser.add_argument("token", type=Path)
    parser.add_argument("join", nargs="*")
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--lease", type=float, default=SETTINGS.span)
    parser.add_argument("--clock", type=float, default=0.0, help="seconds by which the calendar is wrong")
    given = parser.parse_args()
    if given.clock:  # whoever asks, in this process, for the time
        right = time.time
        time.time = lambda: right() + given.clock
    asyncio.run(live(given))


if __name__ == "__main__":
    main()
