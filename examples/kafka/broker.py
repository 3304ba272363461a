"""One Kafka broker on this machine, on loopback: started, stopped, killed and started again on the same data."""

from __future__ import annotations

import base64
import contextlib
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from jars import BROKER, fetch

_JAVA = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CLUSTER = "braided-example-broker"


class Broker:
    """A broker that is its own controller (KRaft). `servers` is what clients are given.

    Topics are made when first used, with `partitions` partitions. Use it as a context manager, or call `start`.
    """

    def __init__(self, folder: Path, *, partitions: int = 3) -> None:
        self._folder = folder
        self._log = folder / "broker.log"
        self._port, controller = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None
        self._jars = fetch(BROKER, folder / "jars")
        self._settings = folder / "server.properties"
        self._settings.write_text(
            "\n".join(
                [
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"controller.quorum.voters=1@127.0.0.1:{controller}",
                    f"listeners=PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
                    f"advertised.listeners=PLAINTEXT://127.0.0.1:{self._port}",
                    "controller.listener.names=CONTROLLER",
                    f"log.dirs={folder / 'data'}",
                    f"num.partitions={partitions}",
                    "offsets.topic.replication.factor=1",
                    "transaction.state.log.replication.factor=1",
                    "transaction.state.log.min.isr=1",
                    "group.initial.rebalance.delay.ms=0",
                    "",
                ]
            )
        )
        formatted = self._java("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(self._settings))
        if formatted.wait(60):
            raise RuntimeError(f"the broker's storage cannot be made; see {self._log}")

    @property
    def servers(self) -> str:
        """Return its address."""
        return f"127.0.0.1:{self._port}"

    def start(self, seconds: float = 60) -> None:
        """Start it and wait until it answers."""
        self._process = self._java("kafka.Kafka", str(self._settings))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"the broker did not start; see {self._log}")

    def stop(self) -> None:
        """Let it end in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            classes = ":".join(map(str, self._jars))
            command = ["java", *_JAVA, "-cp", classes, main, *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _cluster_id() -> str:
    """Return the id that the storage gets: 16 bytes in base 64."""
    return base64.urlsafe_b64encode(_CLUSTER.encode()[:16]).decode().rstrip("=")


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody uses now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
