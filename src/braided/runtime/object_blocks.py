"""Blocks of state as objects of a store such as S3: one object for each worker and batch, small blocks inline.

```
 <checkpoint>/braided/state/<operator>/<worker>/<batch>-<digest>       | block | block | ...
```

In such a store, requests cost time and money, not bytes. So the new blocks of a batch are one object, written in one
request when the worker has finished, before its bookkeeping is saved. Blocks of less than `INLINE` bytes are in the
bookkeeping. The bookkeeping has the place of each block (`places`: object, offset, size, or the bytes), and the objects
without any live block, each with the batch that dropped its last one (`dropped`). Blocks are kept in the host's cache,
a bounded folder on its disk (`braided.runtime.cache`), so a worker that stays on its host reads nothing.

Objects are deleted by the rules of `braided.runtime.file_blocks`: an object that was dropped in a batch before
L = N - 2 - R, and an object that was written before L and is neither live nor dropped, by the loaded bookkeeping. An
object is complete when its request has succeeded, and a task that runs again writes the same bytes under the same name.
Both kinds are deleted once in `SWEEP_EVERY` batches, after one list request.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from braided.runtime.cache import host_cache
from braided.runtime.store import Cache, CachedBlocks, UnusableBlockError, digest_of
from braided.storage.files import CHECKPOINT, files_at
from braided.typing import Json

INLINE = 4 << 10
"""Blocks with fewer bytes are in the bookkeeping. Runs are merged by size, so there are few of these."""
SWEEP_EVERY = 32
_NAME = re.compile(r"(\d{1,19})-[0-9a-f]{32}")


@dataclass(frozen=True)
class ObjectFolder:
    """Where the objects of one worker are in one batch, and how many batches Spark can go back.

    root : an fsspec URL. home : the folder of the worker's operator, if the bookkeeping has none yet.
    """

    root: str
    home: str
    worker: int
    batch: int
    retained: int


class ObjectBlocks(CachedBlocks):
    """The blocks of one worker in one batch, in objects. See `BlockStore`."""

    def __init__(self, folder: ObjectFolder, bookkeeping: Json, cache: Cache | None = None) -> None:
        """`bookkeeping` is the loaded bookkeeping; its `places` and `dropped` are updated here."""
        self.cache = cache or host_cache()
        self._folder = folder
        self._files = files_at(folder.root, CHECKPOINT)
        self._path = f"{bookkeeping.setdefault('home', folder.home)}/{folder.worker}"
        self._places: dict[str, str | list[str | int]] = bookkeeping.setdefault("places", {})
        self._dropped: list[list[str | int]] = bookkeeping.setdefault("dropped", [])
        self._new: dict[int, bytes] = {}
        if folder.batch % SWEEP_EVERY == 0:
            self._sweep()

    def write_block(self, number: int, content: bytes) -> None:
        """See `CachedBlocks`."""
        if len(content) < INLINE:
            self._places[str(number)] = base64.b64encode(content).decode()
        else:
            self._new[number] = content

    def read_block(self, number: int) -> bytes | None:
        """See `CachedBlocks`."""
        if number in self._new:
            return self._new[number]
        place = self._places.get(str(number))
        if place is None or isinstance(place, str):
            return None if place is None else base64.b64decode(place)
        name, start, size = place
        content = self._files.read(f"{self._path}/{name}", int(start), int(start) + int(size))
        if content is None:
            raise UnusableBlockError(f"the object {self._folder.root}/{self._path}/{name} is missing")
        return content

    def remove_block(self, number: int) -> None:
        """See `CachedBlocks`. An object is kept as long as Spark may go back to a version with a block in it."""
        place = None if self._new.pop(number, None) is not None else self._places.pop(str(number))
        if isinstance(place, list) and place[0] not in self._objects():
            self._dropped.append([place[0], self._folder.batch])

    def finish(self) -> None:
        """See `BlockStore`. Write the new blocks as one object."""
        if not self._new:
            return
        content = b"".join(self._new.values())
        name, start = f"{self._folder.batch}-{digest_of(content)}", 0
        self._files.replace(f"{self._path}/{name}", content)
        for number, block in self._new.items():
            self._places[str(number)] = [name, start, len(block)]
            start += len(block)
        self._new = {}

    def _objects(self) -> set[str]:
        return {str(place[0]) for place in self._places.values() if isinstance(place, list)}

    def _sweep(self) -> None:
        """Delete objects that no version retained by Spark has."""
        limit = self._folder.batch - self._folder.retained - 2
        needed = self._objects() | {str(name) for name, batch in self._dropped if int(batch) >= limit}
        for name in self._files.names(self._path):
            ours = _NAME.fullmatch(name)
            if ours is not None and int(ours[1]) < limit and name not in needed:
                self._files.delete(f"{self._path}/{name}")
        self._dropped[:] = [entry for entry in self._dropped if int(entry[1]) >= limit]
