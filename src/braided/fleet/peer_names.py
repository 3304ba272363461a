"""The names of peers, decided by storage: two peers that start at the same time cannot get the same name.

```
 peers/NAME/000000000003.json   the third peer with this name, and its address
```

A name is free again when the last peer with it no longer answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from braided.errors import PeerError
from braided.fleet.agent import Agent
from braided.fleet.messages import Contact
from braided.fleet.requests import WhichStorage
from braided.storage.files import Files

_FOLDER = "peers"
_ASKED = 2  # how often, since a message may be lost


class PeerNames:
    """The name of one peer, whose agent asks earlier holders whether they still run."""

    def __init__(self, agent: Agent, files: Files) -> None:
        self._agent = agent
        self._files = files

    async def claim(self) -> None:
        """Take the name of this peer; `PeerError` with the address of another peer that has it."""
        while True:
            number = await self.check() + 1
            content = self._agent.contact.to_bytes()
            name = self._file(number)
            if await self._agent.machine.blocking(self._files.create, name, content):
                return

    async def check(self) -> int:
        """Refuse the name if an answering peer has it; return how many peers have had it."""
        me = self._agent.contact
        files = await self._agent.machine.blocking(self._files.names, f"{_FOLDER}/{me.name}")
        number = max((int(file[:12]) for file in files if file.endswith(".json")), default=0)
        if number:
            holder = await self._agent.machine.blocking(self._read, self._file(number))
            if holder.node != me.node and await self._is_there(holder):
                raise PeerError(f"name={me.name!r}: the peer at {holder.address} has this name; choose another")
        return number

    async def _is_there(self, holder: Contact) -> bool:
        # A request as from a user: the receiver does not store its sender as a peer, which it may never become.
        for _ in range(_ASKED):
            if await self._agent.ask(holder, WhichStorage()) is not None:
                return True
        return False

    def _read(self, name: str) -> Contact:
        return Contact.from_bytes(self._files.read(name) or b"null", name, "delete it if no peer has this name")

    def _file(self, number: int) -> str:
        return f"{_FOLDER}/{self._agent.contact.name}/{number:012d}.json"


def find_peer(name: str, contacts: Iterable[Contact]) -> Contact:
    """Return the peer with a name; `PeerError` if there is none or more than one."""
    known = list(contacts)
    matches = [contact for contact in known if contact.name == name]
    if not matches:
        names = ", ".join(sorted({contact.name for contact in known}))
        raise PeerError(f"peer={name!r}: does not answer; there are {names}")
    if len(matches) > 1:
        addresses = " and ".join(sorted(contact.address for contact in matches))
        raise PeerError(f"peer={name!r}: the peers at {addresses} have this name; stop all but one of them")
    return matches[0]
