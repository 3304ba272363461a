"""Large blocks are sent through the shuffle as file names: a router writes a file, and the worker maps it into memory.

```
 <checkpoint>/braided/blocks/<run id>/<operator>/<worker>/<batch>-<side>-<task>-<seq>-<kind>-<checksum>
```

A block is needed until its batch is committed: if a task of that batch runs again, it reads the block again; if the
batch runs again later, it writes the block again. So in batch N a worker deletes the blocks in its folder from before
N. If a worker stores the rows of a block unchanged, it gives the file a second name (`braided.runtime.file_blocks`).
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from braided.errors import StateError
from braided.runtime.buffer_file import checksum_in, map_file, seal, write_file
from braided.runtime.router import IN_FILE, Packet
from braided.runtime.store import UnusableBlockError


@dataclass(frozen=True)
class ShuffleFolder:
    """The folder of one operator's blocks in one batch of one run. Blocks below `least` bytes are sent inline."""

    path: Path
    batch: int
    least: int

    def send(self, packet: Packet) -> Packet:
        """Return the packet; if its block is large, write the block to a file."""
        if packet.block is None or packet.block.size < self.least:
            return packet
        place = packet.side, packet.task, packet.seq, packet.kind
        name = self.write(packet.worker, place, packet.block)
        return replace(packet, kind=packet.kind | IN_FILE, block=pa.py_buffer(name.encode()))

    def receive(self, packet: Packet) -> Packet:
        """Return the packet with its block, which is read from its file if there is one."""
        if packet.block is None or not packet.kind & IN_FILE:
            return packet
        name = packet.block.to_pybytes().decode()
        try:
            block = self.read(packet.worker, name)
        except UnusableBlockError as error:
            raise StateError(f"{error}, which a router wrote in this batch; start the query again") from error
        path = self.path / str(packet.worker) / name
        return replace(packet, kind=packet.kind & ~IN_FILE, block=block, path=path)

    def write(self, worker: int, place: tuple[int, ...], block: pa.Buffer) -> str:
        """Write a block for a worker; return its name. `place` identifies the block within its batch."""
        header = seal([block])
        name = f"{'-'.join(map(str, (self.batch, *place)))}-{checksum_in(header):016x}"
        folder = self.path / str(worker)
        try:
            write_file(folder / name, header, [block])
        except FileNotFoundError:
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / name, header, [block])
        return name

    def read(self, worker: int, name: str) -> pa.Buffer:
        """Return a block of this batch; raise `UnusableBlockError` if its file is missing or damaged."""
        path = self.path / str(worker) / name
        try:
            mapped = map_file(path)
        except FileNotFoundError as error:
            raise UnusableBlockError(f"the file {path} is missing") from error
        if mapped is None or f"{checksum_in(mapped[1]):016x}" != name.rpartition("-")[2]:
            raise UnusableBlockError(f"the file {path} is damaged")
        return mapped[0][0]

    def clean(self, worker: int) -> None:
        """Delete the blocks of batches before this one."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.path / str(worker)):
                born = entry.name.lstrip(".").partition("-")[0]
                if born.isdigit() and int(born) < self.batch:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
