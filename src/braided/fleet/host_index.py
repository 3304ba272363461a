"""The inverted index: which peers can host an operator, held by the peers nearest to its key, with expiry."""

from __future__ import annotations

from braided.errors import PeerError
from braided.fleet.messages import Contact, Message

MAX_KEYS = 10_000
MAX_HOSTS = 1_000
MAX_TTL = 3600.0
MAX_TOLD = 100  # hosts in one reply, which must fit into a message


class FindNodes(Message):
    """Request the known nodes near a key."""

    key: str


class Nodes(Message):
    """The reply: nodes, nearest first."""

    contacts: tuple[Contact, ...]


class FindHosts(Message):
    """Request the hosts of the operator with this key."""

    key: str


class Hosts(Message):
    """The reply: hosts, each with the seconds until its entry expires."""

    hosts: tuple[Contact, ...]
    left: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.hosts) != len(self.left):
            raise PeerError(f"hosts, left: {len(self.hosts)} and {len(self.left)} entries")


class Register(Message):
    """Register the sender, and no other peer, as host of the operator with this key for `ttl` seconds; 0 ends this."""

    key: str
    ttl: float


def read_key(text: str) -> int:
    """Return the number of a key in hex."""
    try:
        if len(text) != 40:
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise PeerError(f"key={text[:80]!r}: write 40 hex digits") from None


class HostIndex:
    """Maps a key to {host: expiry by this machine's clock}; bounded: the oldest entry is evicted."""

    def __init__(self) -> None:
        self._keys: dict[int, dict[str, tuple[Contact, float]]] = {}

    def add(self, key: int, host: Contact, ttl: float, now: float) -> None:
        """Register a host, or remove it with a `ttl` of 0."""
        if not 0 <= ttl <= MAX_TTL:
            raise PeerError(f"{ttl=}: write a number of seconds from 0 to {MAX_TTL:.0f}")
        hosts = self._alive(key, now)
        if not ttl:
            hosts.pop(host.node, None)
            return
        if key not in self._keys and len(self._keys) >= MAX_KEYS:
            self._sweep(now)
            if len(self._keys) >= MAX_KEYS:
                raise PeerError(f"this peer already holds {MAX_KEYS} keys, the most that it may")
        if len(hosts) >= MAX_HOSTS and host.node not in hosts:
            del hosts[min(hosts, key=lambda node: (hosts[node][1], node))]
        hosts[host.node] = (host, now + ttl)
        self._keys[key] = hosts

    def remove(self, node: str) -> None:
        """Remove a host that is considered failed, under all keys."""
        for hosts in self._keys.values():
            hosts.pop(node, None)

    def find(self, key: int, now: float) -> Hosts:
        """Return the hosts of a key, the last registered first."""
        newest = sorted(self._alive(key, now).values(), key=lambda entry: (-entry[1], entry[0].node))[:MAX_TOLD]
        return Hosts(tuple(host for host, _ in newest), tuple(expiry - now for _, expiry in newest))

    def keys(self, now: float) -> list[int]:
        """Return the keys that have hosts."""
        self._sweep(now)
        return list(self._keys)

    def _alive(self, key: int, now: float) -> dict[str, tuple[Contact, float]]:
        hosts = self._keys.get(key, {})
        for node in [node for node, (_, expiry) in hosts.items() if expiry <= now]:
            del hosts[node]
        return hosts

    def _sweep(self, now: float) -> None:
        self._keys = {key: hosts for key in self._keys if (hosts := self._alive(key, now))}
