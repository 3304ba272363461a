"""The endpoint for Prometheus: only `/metrics`."""

from __future__ import annotations

from typing import Any, ClassVar

from braided.ui.guarded_server import GuardedHandler, GuardedServer
from braided.ui.metrics import Metrics

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer(GuardedServer):
    """Serves metrics until it is closed; scrape `address`, with `token` as a bearer token if there is one."""

    path: ClassVar[str] = "metrics"

    def __init__(self, metrics: Metrics, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        handler: Any = type("Handler", (_Handler,), {"metrics": metrics})
        super().__init__(handler, host=host, port=port, token=token)
        self.start()


class _Handler(GuardedHandler):
    metrics: Metrics

    def serve(self, path: str) -> None:
        """See `GuardedHandler`."""
        if path == "/metrics":
            self.answer(200, self.metrics.text().encode(), {"Content-Type": _TYPE})
        else:
            self.answer(404, b"the metrics are at /metrics\n")
