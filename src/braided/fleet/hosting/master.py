"""The master of a peer's Spark application: where its executors are, and the settings that follow from this.

A peer is a driver. With `local[n]` its tasks run in its own process tree; with any other master, in executors that the
master starts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from braided.errors import PeerError

_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")
_KNOWN = re.compile(r"spark://.+|yarn|k8s://.+|local-cluster\[\d+, *\d+, *\d+\]")
_ANYWHERE = ("0.0.0.0", "::")


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

        Executors on other machines reach the driver at the host at which other peers reach the agent. If this is every
        address of this machine, Spark chooses one.
        """
        if self.is_local:
            return {"spark.driver.host": "localhost", "spark.driver.bindAddress": "127.0.0.1"}
        settings = {"spark.cores.max": str(self.cores)} if self.url.startswith("spark://") else {}
        if listen not in _ANYWHERE:
            settings |= {"spark.driver.host": listen, "spark.driver.bindAddress": listen}
        return settings


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
