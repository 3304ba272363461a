"""State in files of a folder, or in objects, for operators that run in one process."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path

from braided.runtime.file_blocks import FileBlocks, StateFolder
from braided.runtime.object_blocks import ObjectBlocks, ObjectFolder
from braided.runtime.shuffle_files import ShuffleFolder
from braided.runtime.store import BlockStore, MemoryCache, MemoryStore
from braided.storage.files import Files, files_at
from braided.typing import Json


class FolderStore(MemoryStore):
    """One worker's state: the bookkeeping in memory, as Spark's state store would have it, and blocks in files."""

    def __init__(self, root: Path, worker: int, retained: int = 1) -> None:
        super().__init__()
        self.root, self.worker, self.retained = root, worker, retained

    def __getstate__(self) -> tuple[object, ...]:  # type: ignore[override]
        return self.bookkeeping, self.root, self.worker, self.retained

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.cache, self.blocks = MemoryCache(), {}
        self.bookkeeping, self.root, self.worker, self.retained = state  # type: ignore[assignment]

    def open(self, bookkeeping: Json) -> BlockStore:
        return FileBlocks(
            StateFolder(self.root, "join-1", self.worker, bookkeeping["batches"], self.retained), bookkeeping
        )

    @property
    def path(self) -> Path:
        """The folder with its files."""
        return self.root / "join-1" / str(self.worker)

    def files(self) -> set[str]:
        """Return the names of its files."""
        return {path.name for path in self.path.iterdir()} if self.path.exists() else set()

    def named(self) -> set[str]:
        """Return the files that the bookkeeping names, with their indexes: those that live or were dropped."""
        bookkeeping = json.loads((self.bookkeeping or b"\n{}").partition(b"\n")[2])
        live = {str(name) for number, name in bookkeeping.get("blocks", {}).items() if number != "next"}
        names = live | {str(name) for name, _ in bookkeeping.get("dropped", ())}
        return names | {f"{name}.index" for name in names}

    def shuffle(self, batch: int) -> ShuffleFolder:
        """Return the folder in which all blocks of a batch cross the shuffle, beside those of all workers' states."""
        return ShuffleFolder(self.root / "blocks", batch, 1)


class ObjectStore(FolderStore):
    """The same with blocks in objects: in this process, as a store of objects elsewhere would have them."""

    def open(self, bookkeeping: Json) -> BlockStore:
        folder = ObjectFolder(self.location, "join-1", self.worker, bookkeeping["batches"], self.retained)
        return ObjectBlocks(folder, bookkeeping, self.cache)

    @property
    def location(self) -> str:
        """Where all workers have their objects."""
        return f"memory:/{self.root}"

    @property
    def remote(self) -> Files:
        """The objects of all workers."""
        return files_at(self.location, "checkpoint")

    def files(self) -> set[str]:
        return set(self.remote.names(f"join-1/{self.worker}"))

    def named(self) -> set[str]:
        bookkeeping = json.loads((self.bookkeeping or b"\n{}").partition(b"\n")[2])
        live = {str(place[0]) for place in bookkeeping.get("places", {}).values() if isinstance(place, list)}
        return live | {str(name) for name, _ in bookkeeping.get("dropped", ())}


@lru_cache(maxsize=1)
def _root() -> tempfile.TemporaryDirectory[str]:
    """A folder that is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="braided-state-")


def folder_stores(workers: int, retained: int = 1, kind: type[FolderStore] = FolderStore) -> list[FolderStore]:
    """Return new stores, in a folder of their own."""
    root = Path(tempfile.mkdtemp(dir=_root().name))
    return [kind(root, worker, retained) for worker in range(workers)]
