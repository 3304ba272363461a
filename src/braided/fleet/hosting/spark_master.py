"""The master of a peer's Spark application: where its executors are, and the settings that follow from this.

A peer is a driver. With `local[n]` its tasks run in its own process tree; with any other master, in executors that the
master starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from braided.errors import PeerError
from braided.fleet.transport import is_loopback

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")
_KNOWN = re.compile(r"spark://.+|yarn|k8s://.+|local-cluster\[\d+, *\d+, *\d+\]")
_HOSTS = re.compile(r"spark://(.+)")
_DRIVER_HOST = "spark.driver.host"


@dataclass(frozen=True)
class Master:
    """Where the executors of a peer are, by Spark's URL.

    cores : the cores that a local peer may use; else those that it requests from its master.
    """

    url: str
    cores: int

    @property
    def is_local(self) -> bool:
        """Whether tasks run in the peer's own process tree."""
        return _LOCAL.fullmatch(self.url) is not None

    def settings(self, listen: str) -> dict[str, str]:
        """Return the settings of Spark beside the master; `listen` is the host at which others reach the peer.

        Executors on other machines reach the driver at the host at which other peers reach the agent.
        """
        if self.is_local:
            return {_DRIVER_HOST: "localhost", "spark.driver.bindAddress": "127.0.0.1"}
        settings = {"spark.cores.max": str(self.cores)} if self.url.startswith("spark://") else {}
        return {**settings, _DRIVER_HOST: listen, "spark.driver.bindAddress": listen}

    def check_driver(self, listen: str, settings: Mapping[str, str]) -> None:
        """Raise if the driver listens on loopback and executors may be on other machines, which could not reach it."""
        if self.is_local or _DRIVER_HOST in settings or not is_loopback(listen):
            return
        named = _HOSTS.fullmatch(self.url)
        if self.url.startswith("local-cluster") or (named and all(map(is_loopback, _hosts(named[1])))):
            return
        raise PeerError(
            f"listen={listen!r}: executors of {self.url} cannot reach the driver there; listen at an address of this "
            f"machine, with --beyond-loopback, or give --conf {_DRIVER_HOST}={listen} if they are all on this machine"
        )


def _hosts(addresses: str) -> Iterator[str]:
    """Yield the hosts of a master and those that stand in for it: `one:7077,other:7077`."""
    for address in addresses.split(","):
        yield address.rpartition(":")[0].removeprefix("[").removesuffix("]") or address


def read_master(url: str | None, cores: int | None) -> Master:
    """Return the master that a user has given, by default this machine with one core.

    >>> read_master(None, 2), read_master("local[3]", None)
    (Master(url='local[2]', cores=2), Master(url='local[3]', cores=3))
    >>> read_master("spark://there:7077", 4).is_local
    False
    """
    if cores is not None and cores < 1:
        raise PeerError(f"cores={cores}: write 1 or more")
    if url is None:
        return Master(f"local[{cores or 1}]", cores or 1)
    local = _LOCAL.fullmatch(url)
    if local is None:
        if not _KNOWN.fullmatch(url):
            raise PeerError(f"master={url!r}: write local[n], spark://HOST:PORT, yarn or k8s://ADDRESS")
        return Master(url, cores or 1)
    there = (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    if there < 1 or cores not in (None, there):
        raise PeerError(f"master={url!r}, cores={cores}: give the cores only once, such as local[2]")
    return Master(f"local[{there}]", there)
