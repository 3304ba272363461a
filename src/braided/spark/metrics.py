"""`braided.metrics`: the metrics of a session's queries for Prometheus, served from its driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from braided.errors import OptionError
from braided.spark.catalyst import is_classic
from braided.spark.dashboard import Beside
from braided.spark.sessions import is_connect
from braided.spark.watching import Watch
from braided.ui.metrics import Metrics
from braided.ui.metrics_server import MetricsServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MetricsEndpoint:
    """Metrics that are served until `close`. `url` is the address to scrape; `token` the bearer token, if required."""

    def __init__(
        self, spark: SparkSession, *, host: str, port: int, token: str | None, beside: Beside | None = None
    ) -> None:
        if not is_classic(spark) and not is_connect(spark):
            raise OptionError(f"spark={type(spark).__name__}: give a SparkSession")
        self._metrics = Metrics()
        self._server = MetricsServer(self._metrics, host=host, port=port, token=token)
        self.url, self.token = self._server.address, self._server.token
        self._watch = Watch(spark, self._metrics.add, redact=True, for_page=False)
        self._watch.begin()
        self._beside = None if beside is None else beside(self._metrics.add)

    def follow(self, spark: SparkSession) -> Callable[[], None]:
        """Serve the figures of the job of a fleet too, until what is returned is called.

        The fleet restarts the job after a failure, often at another peer, so its query never has the state "failed"
        here. The state of the job is in the metrics of the fleet.
        """
        watch = Watch(spark, partial(self._metrics.add, is_restarted=True), redact=True, for_page=False)
        watch.begin()
        # It waits for the last events.
        return lambda: threading.Thread(target=watch.end, name="braided-metrics-end", daemon=True).start()

    def text(self) -> str:
        """Return the metrics in the format of Prometheus."""
        return self._metrics.text()

    def close(self) -> None:
        """Stop serving; the queries go on."""
        if self._beside is not None:
            self._beside.close()
        self._watch.end(wait=False)
        self._server.close()

    def __enter__(self) -> MetricsEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"metrics at {self.url}"
