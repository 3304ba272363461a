"""Large blocks cross the shuffle by name: a router writes them to a file, and the worker maps that into its memory.

```
 <checkpoint>/braided/blocks/<run id>/<operator>/<worker>/<batch>-<side>-<task>-<seq>-<kind>-<checksum>
```

A block is needed until its batch is committed: a task of that batch that runs again reads it again, and a batch that
runs again after that writes it anew. So in batch N a worker deletes the blocks of its own folder from before N.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from braided.runtime.buffer_file import checksum_in, map_file, seal, write_file
from braided.runtime.store import UnusableBlockError


@dataclass(frozen=True)
class ShuffleFolder:
    """Where the blocks of one operator are in one batch of one run. Those of less than `least` bytes travel inline."""

    path: Path
    batch: int
    least: int

    def write(self, worker: int, place: tuple[int, ...], block: pa.Buffer) -> str:
        """Write a block for a worker; return its name. `place` tells blocks of a batch apart."""
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
        """Return a block of this batch; raise `UnusableBlockError` where its file is not what was written."""
        path = self.path / str(worker) / name
        try:
            found = map_file(path)
        except FileNotFoundError as error:
            raise UnusableBlockError(f"the file {path} is missing") from error
        if found is None or f"{checksum_in(found[1]):016x}" != name.rpartition("-")[2]:
            raise UnusableBlockError(f"the file {path} is damaged")
        return found[0][0]

    def clean(self, worker: int) -> None:
        """Delete the blocks of batches before this one."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.path / str(worker)):
                born = entry.name.lstrip(".").partition("-")[0]
                if born.isdigit() and int(born) < self.batch:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)
