"""The processes below one, by /proc: their CPU time and their memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A process: its parent, the name of its program, and its CPU time with that of children that have ended."""

    pid: int
    parent: int
    name: str
    cpu_s: float

    def memory_mb(self) -> float:
        """Return its memory; pages that it shares count in part, so that those of several processes add up."""
        try:
            lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # gone meanwhile
            return 0.0
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def below(root: int) -> list[Process]:
    """Return a process and all below it, each after its parent."""
    children: dict[int, list[Process]] = {}
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (process := _read(folder)) is not None:
            children.setdefault(process.parent, []).append(process)
            if process.pid == root:
                found.append(process)
    for process in found:
        found += children.get(process.pid, [])
    return found


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it so far."""
    return sum(process.cpu_s for process in below(os.getpid()))


def _read(folder: Path) -> Process | None:
    try:
        text = (folder / "stat").read_text()
    except OSError:
        return None
    # A name may have brackets and spaces.
    name, _, rest = text.partition(" (")[2].rpartition(") ")
    fields = rest.split()
    return Process(int(folder.name), int(fields[1]), name, sum(map(int, fields[11:15])) / _TICKS)
