"""A running query of the demo, from the dashboard's events: numbers of each batch, decisions of the routing."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from braided.runtime.contract import Json
from braided.ui.history import History
from braided.ui.history_events import report_of

# Seconds: Spark reports the end of a query a little later.
_ON_ITS_WAY = 10.0


@dataclass(frozen=True)
class WorkerLoad:
    """One worker in one batch; its load is its rows and results, divided by the mean of all workers."""

    rows: int
    results: int
    load: float
    cpu_ms: int
    stored_rows: int
    stored_bytes: int


@dataclass(frozen=True)
class Batch:
    """One batch with data: its rows and seconds, the totals after it, its routing table and its workers.

    `lateness` is the larger of both streams, in microseconds; `recall` comes with its standard error.
    """

    number: int
    rows: int
    seconds: float
    results: int
    late: int
    clocks: tuple[int, int]
    table: int
    workers: tuple[WorkerLoad, ...]
    lateness: int = 0
    recall: tuple[float, float] | None = None

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def stored_rows(self) -> int:
        return sum(worker.stored_rows for worker in self.workers)

    @property
    def stored_bytes(self) -> int:
        return sum(worker.stored_bytes for worker in self.workers)

    @property
    def imbalance(self) -> float:
        """The load of the busiest worker: 1 if all do the same, the number of workers if one does everything."""
        return max(worker.load for worker in self.workers)


@dataclass(frozen=True)
class Decision:
    """One change of the routing: the batch that caused it, the table with the change, and the reason."""

    batch: int
    table: int
    action: str
    what: str
    reason: str

    @classmethod
    def of_json(cls, decision: Json) -> Decision:
        """Return a decision from its form in events and in `braided.report`.

        >>> print(Decision.of_json({"batch": 8, "version": 2, "action": "promote", "reason": "1.6 of a worker's fair"
        ...                          " share", "key": "00ff", "value": "555", "grid": "1x4"}))
        batch 9: promote 555, grid 1x4; 1.6 of a worker's fair share
        """
        parts = [str(decision[name]) for name in ("value", "key") if name in decision][:1]
        parts += [f"grid {decision['grid']}"] if "grid" in decision else []
        parts += [f"{decision['buckets']} buckets"] if "buckets" in decision else []
        return cls(decision["batch"], decision["version"], decision["action"], ", ".join(parts), decision["reason"])

    def __str__(self) -> str:
        return f"batch {self.batch + 1}: {' '.join(filter(None, (self.action, self.what)))}; {self.reason}"


@dataclass
class Run:
    """The known state of a query; `id` is that of its run."""

    id: str = ""
    batches: list[Batch] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    elapsed: float = 0.0

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def results(self) -> int:
        return self.batches[-1].results if self.batches else 0

    @property
    def late(self) -> int:
        """The number of late rows."""
        return self.batches[-1].late if self.batches else 0

    @property
    def recall(self) -> tuple[float, float] | None:
        """The estimated share of the exact result, and its standard error; None without a budget."""
        return self.batches[-1].recall if self.batches else None

    @property
    def promotion(self) -> Decision | None:
        """The first decision to spread a hot key over several workers."""
        return next((decision for decision in self.decisions if decision.action == "promote"), None)

    def before_and_after(self) -> tuple[Batch, Batch] | None:
        """Return the batch that caused the promotion, and the last one; None if none used the new table."""
        promotion = self.promotion
        if promotion is None or self.batches[-1].table < promotion.table:
            return None
        before = next(batch for batch in self.batches if batch.number == promotion.batch)
        return before, self.batches[-1]

    def take(self, event: Json) -> None:
        """Take the next event of the query; batches without rows, which only move clocks, are left out."""
        if event["event"] == "batch" and any(source["rows"] for source in event["sources"]):
            self.batches.append(_batch_of(event))
        elif event["event"] == "decision":
            self.decisions.append(Decision.of_json(event))


def _batch_of(event: Json) -> Batch:
    [operator] = event["operators"]
    report = report_of(operator, event["batch"])
    clocks = [stream.get("clock") or 0 for stream in report.streams]
    recall = report.query.get("recall")
    return Batch(
        number=event["batch"],
        rows=sum(stream["last_rows"] for stream in report.streams),
        seconds=max(event["ms"]["triggerExecution"], 1) / 1000,
        results=report.query["results"],
        late=sum(stream["late"] for stream in report.streams),
        clocks=(clocks[0], clocks[1]),
        table=operator["table"],
        workers=tuple(
            WorkerLoad(
                load=worker["share"],
                **{name: worker["last"][name] for name in WorkerLoad.__dataclass_fields__ if name != "load"},
            )
            for worker in report.workers
        ),
        lateness=max(stream.get("lateness") or 0 for stream in report.streams),
        recall=None if recall is None else (recall, report.query.get("recall_error") or 0.0),
    )


def follow(
    start: Callable[[], Any], history: History, show: Callable[[Run], None], interrupted: threading.Event
) -> Run:
    """Start a query, show it until it ends, and return its run from `history`; an interrupt stops the query first."""
    started, seen = time.monotonic(), 0
    query = start()
    run = Run(str(query.runId))
    ended = reported = False
    while not reported:
        if ended and not history.wait(seen, _ON_ITS_WAY):
            break
        if not ended:
            ended = query.awaitTermination(0.2)
            run.elapsed = time.monotonic() - started
        if interrupted.is_set():
            query.stop()
            raise KeyboardInterrupt
        for numbered in history.since(seen):
            event, seen = json.loads(numbered.text), numbered.number
            if event.get("query") == run.id:
                run.take(event)
                reported |= event["event"] == "ended"
        show(run)
    return run


def share_of_rows(batches: Sequence[Batch]) -> list[float]:
    """Return each worker's share of the rows of some batches.

    >>> loads = (WorkerLoad(30, 0, 1.5, 1, 0, 0), WorkerLoad(10, 0, 0.5, 1, 0, 0))
    >>> share_of_rows([Batch(0, 40, 1.0, 0, 0, (0, 0), 1, loads)])
    [0.75, 0.25]
    """
    sums = [sum(loads) for loads in zip(*([w.rows for w in batch.workers] for batch in batches), strict=True)]
    return [rows / max(sum(sums), 1) for rows in sums]


def median_rate(batches: Sequence[Batch]) -> float:
    """Return the rows per second of the median batch: the first batches include the warm-up of JVM and workers."""
    return statistics.median(batch.rate for batch in batches)
