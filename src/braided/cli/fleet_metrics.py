"""`braided fleet metrics`: serves the metrics of a fleet for Prometheus, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib

from braided.cli.exits import CANNOT_START, STOPPED, first_line, refuse
from braided.cli.history_commands import FleetPlace
from braided.cli.local_spark import note_interrupts
from braided.errors import BraidedError
from braided.ui.metrics import Metrics
from braided.ui.metrics_server import MetricsServer


def serve_fleet_metrics(arguments: argparse.Namespace) -> int:
    metrics = Metrics()
    with contextlib.ExitStack() as opened:
        try:
            opened.enter_context(FleetPlace(arguments.peer, arguments.token_file).follow(metrics.add))
            server = MetricsServer(metrics, host=arguments.host, port=arguments.port, token=arguments.token)
        except (BraidedError, OSError) as error:
            return refuse("fleet metrics", first_line(error), CANNOT_START, as_json=arguments.json)
        opened.callback(server.close)
        interrupted = opened.enter_context(note_interrupts())
        bearer = "" if server.token is None else f" with the bearer token {server.token}"
        print(f"metrics: {server.address}{bearer}; Ctrl-C ends it", flush=True)
        interrupted.wait()
    return STOPPED
