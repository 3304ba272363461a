"""The events of a fleet, in its storage: every peer appends to its own files, of which the oldest are deleted.

```
 events/NORTH/000000000003.jsonl   one event per line
```

Times are those of each peer's calendar: they are only for display, and no decision uses them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass

from braided.errors import BraidedError, PeerError
from braided.fleet.agent import Agent
from braided.fleet.json_records import Record
from braided.storage.files import Files

FOLDER = "events"
SIZE = 128 << 10
"""The bytes of a file after which the next file is started."""
KEPT = 8
"""The number of files per peer: about 10,000 events."""
_SOON = 0.5
"""Seconds between an event and its writing, so that events of the same moment are written together."""
_AGAIN = 5.0
"""Seconds until the next attempt if storage does not answer."""
_WAITING = 1000
MOST = 10_000
"""The number of events that a reader keeps."""
_LONGEST = 2000


class Event(Record):
    """An event of a component at a peer, or of the peer itself; the latter has no component."""

    at: float
    peer: str
    component: str
    what: str


class EventLog:
    """The events of one peer that wait to be written to storage."""

    def __init__(self, agent: Agent, files: Files, *, size: int = SIZE, kept: int = KEPT) -> None:
        self._agent = agent
        self._files = files
        self._size = size
        self._kept = kept
        self._folder = f"{FOLDER}/{agent.contact.name}"
        self._waiting: deque[Event] = deque(maxlen=_WAITING)
        self._is_scheduled = False
        self._writing = asyncio.Lock()
        self._number = -1
        self._written = 0

    def add(self, component: str, what: str) -> Event:
        """Add an event, which is written to storage soon."""
        event = Event(self._agent.machine.time(), self._agent.contact.name, component, what[:_LONGEST])
        self._waiting.append(event)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._agent.machine.spawn(self._write_soon())
        return event

    async def _write_soon(self) -> None:
        wait = _SOON
        try:
            while self._waiting:
                await self._agent.machine.sleep(wait)
                wait = _SOON if await self.flush() else _AGAIN
        finally:
            self._is_scheduled = False

    async def flush(self) -> bool:
        """Write the waiting events; return whether this succeeded."""
        async with self._writing:
            events = list(self._waiting)
            if not events:
                return True
            content = b"".join(event.to_bytes() + b"\n" for event in events)
            try:
                await self._agent.machine.blocking(self._append, content)
            except (BraidedError, OSError):
                return False
            for event in events:
                if self._waiting and self._waiting[0] is event:  # else newer events have pushed it out
                    self._waiting.popleft()
            return True

    def _append(self, content: bytes) -> None:
        if self._number < 0 or self._written >= self._size:
            self._begin_file()
        self._files.append(self._file(self._number), content)
        self._written += len(content)

    def _begin_file(self) -> None:
        # Fails if storage is missing, which a new folder would hide.
        numbers = _numbers(self._files.names(self._folder))
        self._files.make_folder(self._folder)
        self._number = max([self._number, *numbers]) + 1
        self._written = 0
        for old in numbers[: max(0, len(numbers) + 1 - self._kept)]:
            self._files.delete(self._file(old))

    def _file(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.jsonl"


@dataclass(frozen=True)
class Read:
    """An event with its number, from which a reader continues."""

    number: int
    event: Event


class EventReader:
    """The events of all peers that are in storage. Each call reads new events; numbers only grow."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._offsets: dict[str, int] = {}
        self._whole: set[str] = set()
        self._events: deque[Read] = deque(maxlen=MOST)
        self._number = 0

    def read(self) -> list[Read]:
        """Return the events that are kept, in the order in which they were read."""
        seen: set[str] = set()
        for peer in sorted(self._files.names(FOLDER)):
            names = [
                f"{FOLDER}/{peer}/{number:012d}.jsonl" for number in _numbers(self._files.names(f"{FOLDER}/{peer}"))
            ]
            for name in names:
                if name not in self._whole:
                    self._offsets[name] = self._take(name, self._offsets.get(name, 0))
            self._whole.update(names[:-1])  # only the last one grows
            seen.update(names)
        self._offsets = {name: offset for name, offset in self._offsets.items() if name in seen}
        self._whole &= seen
        return list(self._events)

    def _take(self, name: str, start: int) -> int:
        """Read a file from a position; return the new position. An incomplete last line is read later."""
        content = (self._files.read(name) or b"")[start:]
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            with contextlib.suppress(PeerError):  # a crash may have cut a line short
                self._number += 1
                self._events.append(Read(self._number, Event.from_bytes(line, name)))
        return start + len(whole)


def _numbers(names: list[str]) -> list[int]:
    return sorted(int(name[:12]) for name in names if name.endswith(".jsonl") and name[:12].isdigit())
