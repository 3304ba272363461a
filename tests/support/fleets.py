"""Virtual fleets for tests: agents on one virtual network, by seed."""

from __future__ import annotations

from braided.fleet.agent import Agent
from braided.fleet.virtual_network import VirtualMachine, VirtualNetwork
from braided.sim.simulated_fleet import contact

__all__ = ["agent", "contact"]


def agent(
    network: VirtualNetwork, name: str, *, rate: float = 1.0, storage: tuple[float, float] = (0.0, 0.0)
) -> tuple[Agent, VirtualMachine]:
    """An agent and the machine that it runs on."""
    machine = VirtualMachine(network, contact(name), rate=rate, storage=storage)
    made = Agent(machine.contact, machine)
    machine.receive = made.receive
    return made, machine
