"""The local runtime: the same operators in one process, for tests, notebooks and small data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from braided.routing.table import RoutingTable
from braided.runtime.operator import Json, Operator
from braided.runtime.report import Report
from braided.runtime.router import Packet, route_task
from braided.runtime.store import MemoryStore
from braided.runtime.worker import Place, fingerprint, run_worker


class LocalRuntime:
    """Runs an operator batch by batch. Its workers' stores are all the state there is.

    Every batch is a list of tasks, each an input number and its rows, as Spark's partitions are.
    """

    def __init__(self, operator: Operator, workers: int = 1, stores: Sequence[MemoryStore] | None = None) -> None:
        self.operator = operator
        self.stores = list(stores) if stores is not None else [MemoryStore() for _ in range(workers)]
        self.table = RoutingTable.hashed(len(self.stores))
        self._fingerprint = fingerprint(operator.options)
        self.reports: list[Json] = []

    def run_batch(self, tasks: Sequence[tuple[int, Sequence[pa.RecordBatch]]]) -> Iterator[pa.RecordBatch]:
        """Yield the results of one batch under `table`; the state is committed when the last one has been taken."""
        workers = len(self.stores)
        inbox: list[list[Packet]] = [[] for _ in range(workers)]
        for number, (side, batches) in enumerate(tasks):
            for sent in route_task(self.operator, self._fingerprint, self.table, side, number, workers, batches):
                if isinstance(sent, list):
                    for packet in sent:
                        inbox[packet.worker].append(packet)
        reports = []
        for worker, packets in enumerate(inbox):
            if packets:
                place = Place(worker, workers, self._fingerprint)
                reports.append((yield from run_worker(self.operator, place, packets, self.stores[worker])))
        self.reports = reports or self.reports

    def report(self) -> Report:
        """Return the report after the last batch."""
        return Report.of_workers("local", None, self.reports)


def record_batches(data: Any) -> Iterator[pa.RecordBatch]:
    """Read anything that speaks the Arrow C stream interface, batch by batch."""
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
    else:
        yield from pa.RecordBatchReader.from_stream(data)
