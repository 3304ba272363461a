"""The local runtime: the same operators in one process, for tests, notebooks and small data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import pyarrow as pa

from braided.balance.controller import Controller, Decision
from braided.balance.observation import observe
from braided.routing.table import RoutingTable
from braided.runtime.contract import Json, Operator
from braided.runtime.report import Report
from braided.runtime.router import Packet, RouterReport, Watch, route_task
from braided.runtime.shuffle_files import ShuffleFolder
from braided.runtime.store import MemoryStore
from braided.runtime.worker import WorkerTask, fingerprint, run_worker
from braided.storage.topic_progress import Progress


class LocalRuntime:
    """Runs an operator batch by batch. All state is in the stores of its workers.

    Every batch is a list of tasks, each with the number of an input and its rows, like Spark's partitions. With a
    controller the routing adapts from batch to batch; without one it stays as in `table`. Blocks are passed to workers
    in memory, or large ones, as on Spark, in files of the folder `shuffle` if this is set before the batch.
    """

    def __init__(
        self,
        operator: Operator,
        workers: int = 1,
        stores: Sequence[MemoryStore] | None = None,
        controller: Controller | None = None,
    ) -> None:
        self.operator = operator
        self.stores = list(stores) if stores is not None else [MemoryStore() for _ in range(workers)]
        self.controller = controller
        self.table = RoutingTable.hashed(len(self.stores)) if controller is None else controller.table
        self.shuffle: ShuffleFolder | None = None
        self.decisions: list[Decision] = []
        self.wanted: int | str | None = None
        self.routed: list[RouterReport] = []
        self._batch = 0
        self._fingerprint = fingerprint(operator.options)
        self.reports: list[Json] = []

    def run_batch(
        self,
        tasks: Sequence[tuple[int, Sequence[pa.RecordBatch]]],
        *,
        final: bool = False,
        moment: int | None = None,
        promises: Mapping[int, Progress] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the results of one batch with `table`; the state is committed after the last result was read.

        In a final batch, operators release all waiting rows. `moment` is when the batch runs, in microseconds, for
        operators that detect idle streams. `promises` has the progress of inputs that are read from topics; each of
        these inputs has a task.
        """
        workers, shuffle = len(self.stores), self.shuffle
        watch = None if self.controller is None else Watch()
        started = time.perf_counter()
        self.routed = []
        inbox: list[list[Packet]] = [[] for _ in range(workers)]
        for number, (side, batches) in enumerate(tasks):
            least = None if shuffle is None else shuffle.least
            promise = partial((promises or {}).get, side)
            for sent in route_task(
                self.operator, self._fingerprint, self.table, side, number, workers, batches, watch, least, promise
            ):
                if isinstance(sent, list):
                    for packet in sent:
                        inbox[packet.worker].append(packet if shuffle is None else shuffle.send(packet))
                else:
                    self.routed.append(sent)
        reports = []
        for worker, packets in enumerate(inbox):
            if packets:
                if shuffle is not None:
                    packets = [shuffle.receive(packet) for packet in packets]  # noqa: PLW2901
                    shuffle.clean(worker)
                task = WorkerTask(worker, workers, self._fingerprint, watch is not None, final, moment)
                reports.append((yield from run_worker(self.operator, task, packets, self.stores[worker])))
        self.reports = reports or self.reports
        self._control(reports, 1000 * (time.perf_counter() - started))
        self._batch += 1

    def _control(self, reports: list[Json], batch_ms: float) -> None:
        if self.controller is None:
            return
        routed = [asdict(report) for report in self.routed]
        seen = observe(self._batch, batch_ms, reports, routed)
        if seen is not None:
            self.decisions += self.controller.step(seen, self.wanted)
            self.table = self.controller.table

    def report(self) -> Report:
        """Return the report after the last batch."""
        return Report.of_workers("local", None, self.reports)
