"""A real Prometheus on loopback, with the alerts of the example; Debian's package `prometheus` has the program."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

PROGRAM = shutil.which("prometheus")
EXAMPLES = Path(__file__).parents[2] / "examples" / "prometheus"
PATIENCE = 120.0


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Prometheus:
    """Scrapes `url` every second. The alerts wait for seconds where those of the example wait for minutes.

    limits : texts of rules that are replaced, since no test fills a disk or waits for an hour.
    """

    def __init__(self, folder: Path, url: str, limits: Mapping[str, str] = MappingProxyType({})) -> None:
        self.port = free_port()
        target = urllib.parse.urlsplit(url).netloc
        (folder / "prometheus.yml").write_text(
            f"""global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: braided
    static_configs: [{{ targets: ["{target}"] }}]
"""
        )
        alerts = re.sub(r"for: \d+[smh]", "for: 1s", (EXAMPLES / "alerts.yml").read_text())
        alerts = re.sub(r"\[\d+[mh]\]", "[15s]", alerts)
        for text, other in {"> 300": "> 25", **limits}.items():
            assert text in alerts, text
            alerts = alerts.replace(text, other)
        (folder / "alerts.yml").write_text(alerts)
        self._process = subprocess.Popen(
            [
                str(PROGRAM),
                "--config.file=prometheus.yml",
                f"--web.listen-address=127.0.0.1:{self.port}",
                f"--storage.tsdb.path={folder / 'data'}",
            ],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, path: str, **query: str) -> Any:
        """Return what its API answers; None if it does not."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def value(self, query: str) -> float | None:
        """Return the sum of what a query finds; None for nothing."""
        found = (self.ask("query", query=query) or {}).get("result", [])
        return sum(float(each["value"][1]) for each in found) if found else None

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = (self.ask("alerts") or {}).get("alerts", [])
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, f"{what}; firing: {self.firing()}"
            time.sleep(0.25)

    def fires(self, alert: str) -> None:
        """Wait until an alert fires."""
        self.until(lambda: alert in self.firing(), f"{alert} does not fire")

    def clears(self, alert: str) -> None:
        """Wait until an alert fires no more."""
        self.until(lambda: alert not in self.firing(), f"{alert} does not clear")
