"""A peer for benchmarks: `braided peer`, with a part of it switched off, or with its messages counted.

    python benchmarks/fleet_peer.py [--cold] [--without-relief] [--sent FILE] ARGUMENTS OF braided peer

A cold peer neither runs anything before its first job, nor rehearses. With `--sent`, SIGUSR1 has it write to a file how
many messages it has sent so far.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import braided.fleet.hosting.spark_host
import braided.fleet.load_watch
from braided.cli import main
from braided.fleet.agent import Agent

SCRIPT = str(Path(__file__))


def _count_messages(file: Path) -> None:
    agents: list[Agent] = []
    make = Agent.__init__

    def made(self: Agent, *arguments: object, **options: object) -> None:
        make(self, *arguments, **options)  # type: ignore[arg-type]
        agents.append(self)

    def write(*_: object) -> None:
        sent = sum(count for agent in agents for kind, count in agent.counts.items() if kind.startswith("sent "))
        new = file.with_suffix(".new")
        new.write_text(str(sent))
        os.replace(new, file)

    Agent.__init__ = made  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, write)


def _switch(arguments: list[str]) -> list[str]:
    """Do what the first arguments ask for; return the others."""
    match arguments:
        case ["--cold", *others]:
            braided.fleet.hosting.spark_host.rehearse = lambda *_: None
            braided.fleet.hosting.spark_host.warm_up = lambda *_: None
        case ["--without-relief", *others]:
            braided.fleet.load_watch.FLOOR = 1e9  # no peer is as hot as that
        case ["--sent", file, *others]:
            _count_messages(Path(file))
        case _:
            return arguments
    return _switch(others)


if __name__ == "__main__":
    sys.exit(main(["peer", *_switch(sys.argv[1:])]))
