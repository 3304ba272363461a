"""The contacts of a node: few at every distance, the longest known ones first (Kademlia)."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

from braided.fleet.messages import Contact

SIZE = 8
_MISSES = 2  # a single one may be a lost message


def key_of(name: str) -> int:
    """Return the key of a name: its SHA-1, as a number of 160 bits.

    >>> f"{key_of('join.window.phone'):040x}"
    '1749a7708db02d055d25d61b308545157dd2e3ef'
    """
    return int.from_bytes(hashlib.sha1(name.encode(), usedforsecurity=False).digest(), "big")


class Buckets:
    """Contacts by their distance (xor) from this node: bucket i has those at a distance between 2^i and 2^(i+1).

    A full bucket keeps its contacts: a contact that is known for long is likely to stay, and many new ones cannot push
    the others out. The new contact waits, and the contact that has been silent for longest must be pinged.

    size : the number of contacts in a bucket, and of those that wait.
    """

    def __init__(self, me: int, size: int = SIZE) -> None:
        self._me = me
        self._size = size
        self._known: defaultdict[int, dict[str, Contact]] = defaultdict(dict)
        self._waiting: defaultdict[int, dict[str, Contact]] = defaultdict(dict)
        self._all: dict[str, Contact] = {}
        self._misses: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Contact]:
        return iter(self._all.values())

    def heard(self, contact: Contact) -> Contact | None:
        """Record that a contact answered; if it must wait for a place, return the contact to ping."""
        distance = self._me ^ contact.number
        if not distance:
            return None
        self._misses.pop(contact.node, None)
        place = distance.bit_length() - 1
        bucket = self._known[place]
        if bucket.pop(contact.node, None) is not None or len(bucket) < self._size:
            bucket[contact.node] = self._all[contact.node] = contact
            self._waiting[place].pop(contact.node, None)
            return None
        waiting = self._waiting[place]
        waiting.pop(contact.node, None)
        waiting[contact.node] = contact
        if len(waiting) > self._size:
            del waiting[next(iter(waiting))]
        return next(iter(bucket.values()))

    def missed(self, contact: Contact) -> None:
        """Record that a contact did not answer; after two times in a row the newest waiting contact replaces it."""
        distance = self._me ^ contact.number
        if not distance:
            return
        place = distance.bit_length() - 1
        self._waiting[place].pop(contact.node, None)
        if contact.node not in self._known[place]:
            return
        self._misses[contact.node] = self._misses.get(contact.node, 0) + 1
        if self._misses[contact.node] >= _MISSES:
            del self._known[place][contact.node], self._all[contact.node], self._misses[contact.node]
            if self._waiting[place]:
                node, newest = self._waiting[place].popitem()
                self._known[place][node] = self._all[node] = newest

    def closest(self, key: int, count: int) -> list[Contact]:
        """Return the contacts nearest to a key, nearest first."""
        return sorted(self._all.values(), key=lambda contact: contact.number ^ key)[:count]
