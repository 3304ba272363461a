"""Virtual fleets for tests: agents on one virtual network, by seed."""

from __future__ import annotations

import hashlib

from braided.fleet.agent import Agent
from braided.fleet.messages import Contact
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork


def contact(name: str) -> Contact:
    """A peer's contact: its id is the hash of its name, as over TLS it is that of its key."""
    digest = hashlib.sha1(name.encode()).digest()
    return Contact(digest.hex(), f"10.{digest[0]}.{digest[1]}.{digest[2]}:{7000 + digest[3]}", name)


def agent(
    network: VirtualNetwork, name: str, *, rate: float = 1.0, storage: tuple[float, float] = (0.0, 0.0)
) -> tuple[Agent, VirtualMachine]:
    """An agent and the machine that it runs on."""
    machine = VirtualMachine(network, contact(name), rate=rate, storage=storage)
    made = Agent(machine.contact, machine)
    machine.receive = made.receive
    return made, machine
