"""Hosts on one machine: network namespaces of their own, with a network between them that is slow, loses packets and splits.

```
 namespace a        this process         namespace b
  tun device --- packets, in a heap --- tun device
                 by when they are due
```
A TUN device per namespace ends in this process, so latency, loss and partitions need no kernel module such as netem.
Every host has a monotonic clock of its own, as other machines have: on one machine all clocks agree, and code that
compared those of two machines would not be noticed. Needs root, `ip` and `unshare`.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

_TUN = "/dev/net/tun"
_SET_NAME, _IS_TUN, _NO_HEADER = 0x400454CA, 0x0001, 0x1000
_NET = "10.99.0."
_LARGEST = 65536


def why_not() -> str | None:
    """Return why there can be no such hosts here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if lacking:
        return f"no {lacking[0]} on the path (Debian's iproute2 and util-linux)"
    if not os.path.exists(_TUN):
        return f"no {_TUN}"
    for what in (("--net",), ("--time", "--monotonic", "1")):
        done = subprocess.run(["unshare", *what, "true"], capture_output=True, text=True, check=False)
        if done.returncode:
            return f"namespaces are not permitted: {done.stderr.strip()}"
    return None


class Hosts:
    """Hosts and the network between them; use it as a context manager.

    delay : seconds that a packet takes one way, and half as much again at random, so that packets overtake each other.
    loss : the part of packets that are lost. Both may be changed at any time.
    """

    def __init__(self, names: Sequence[str], *, delay: float = 0.0, seed: int = 0) -> None:
        self.delay, self.loss = delay, 0.0
        self.addresses = {name: f"{_NET}{number}" for number, name in enumerate(names, 1)}
        self._random = random.Random(seed)
        self._side: frozenset[str] = frozenset()
        self._devices: dict[str, int] = {}
        self._clocks: dict[str, subprocess.Popen[bytes]] = {}
        self._due: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def cut(self, *names: str) -> None:
        """Let no packet pass between these hosts and the others, until `heal`."""
        self._side = frozenset(self.addresses[name] for name in names)

    def heal(self) -> None:
        """Let all hosts reach each other."""
        self._side = frozenset()

    def popen(self, name: str, command: Sequence[str], **more: Any) -> subprocess.Popen[str]:
        """Start a command on a host; the process is that of the command."""
        return subprocess.Popen([*self._enter(name), *command], text=True, **more)

    def run(self, name: str, command: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None) -> Any:
        """Run a command on a host to its end, and return what `subprocess.run` returns."""
        return subprocess.run(
            [*self._enter(name), *command], capture_output=True, text=True, timeout=timeout, check=False, env=env
        )

    def _space(self, name: str) -> str:
        return f"braided-{os.getpid()}-{name}"

    def _enter(self, name: str) -> list[str]:
        clock = f"/proc/{self._clocks[name].pid}/ns/time_for_children"
        return ["ip", "netns", "exec", self._space(name), "nsenter", f"--time={clock}"]

    def __enter__(self) -> Hosts:
        try:
            for number, name in enumerate(self.addresses, 1):
                self._add(name, number)
        except BaseException:
            self.close()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, name: str, number: int) -> None:
        space, device = self._space(name), f"brd{os.getpid() % 10**6}-{number}"
        handle = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        self._devices[name] = handle
        fcntl.ioctl(handle, _SET_NAME, struct.pack("16sH22x", device.encode(), _IS_TUN | _NO_HEADER))
        days = self._random.randrange(1, 1000)
        self._clocks[name] = subprocess.Popen(["unshare", "--time", "--monotonic", str(86_400 * days), "sleep", "inf"])
        for words in (
            ("netns", "add", space),
            ("link", "set", device, "netns", space),
            ("-n", space, "addr", "add", f"{self.addresses[name]}/24", "dev", device),
            ("-n", space, "link", "set", "lo", "up"),
            ("-n", space, "link", "set", device, "up"),
        ):
            subprocess.run(["ip", *words], check=True, capture_output=True)
        clock = f"/proc/{self._clocks[name].pid}/ns/time_for_children"
        while os.readlink(clock) == os.readlink("/proc/self/ns/time"):
            time.sleep(0.01)

    def close(self) -> None:
        """End the network and remove the namespaces. Processes on hosts must have ended."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join()
        for name in self._devices:
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False, capture_output=True)
        for clock in self._clocks.values():
            clock.kill()
            clock.wait()
        for handle in self._devices.values():
            os.close(handle)

    def _carry(self) -> None:
        """In a thread: take packets from the devices, and give each to its device when it is due."""
        handles = {self.addresses[name]: handle for name, handle in self._devices.items()}
        waiting = select.poll()
        for handle in handles.values():
            waiting.register(handle, select.POLLIN)
        while not self._is_closed.is_set():
            wait = min(0.2, max(0.0, self._due[0][0] - time.monotonic())) if self._due else 0.2
            for handle, _ in waiting.poll(1000 * wait):
                self._take(os.read(handle, _LARGEST), handles)
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, handle, packet = heapq.heappop(self._due)
                os.write(handle, packet)

    def _take(self, packet: bytes, handles: Mapping[str, int]) -> None:
        if packet[0] >> 4 != 4:  # IPv6 looks for routers
            return
        sender, to = (".".join(map(str, packet[at : at + 4])) for at in (12, 16))
        side = self._side
        if to not in handles or (sender in side) != (to in side) or self._random.random() < self.loss:
            return
        self._count += 1
        due = time.monotonic() + self.delay * self._random.uniform(1.0, 1.5)
        heapq.heappush(self._due, (due, self._count, handles[to], packet))
