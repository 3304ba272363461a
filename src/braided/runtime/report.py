"""The report of a query: rows, results, lateness, state and CPU, for each stream and each worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from braided.durations import show_duration
from braided.eviction.recall.estimate import recall_of
from braided.runtime.contract import Json, stream_labels

_COLUMNS = ("rows", "results", "cpu_ms", "stored_rows", "stored_bytes", "runs", "state_reads", "cached_reads")
_BOUNDED = ("evicted", "refused", "shed", "too_large")
# A short report shows all workers if there are at most this many, or else the busiest three; and this many grids.
_FEW = 4
_BUSIEST = 3
_GRIDS = 5
_MOST_NAMED = 16
T = TypeVar("T")


@dataclass(frozen=True)
class Report:
    """The report of one operator; it prints as a small table, with the busiest workers only.

    `text(full=True)` has all workers, and so does printing a report with ``full``. `to_dict()` is plain JSON and always
    complete: ``query``, ``streams`` (for each input) and ``workers``, each with ``last`` (the last batch with data) and
    ``total`` (since the start of the checkpoint).

    For a join with a budget, workers also have the rows ``evicted``, ``refused``, ``shed`` and ``too_large``, and
    ``recall`` with its standard error ``recall_error``; in ``last`` it is that of recent rows. ``query`` has both over
    all workers, as ``recall`` and ``recent_recall``. For a pattern, ``query`` has ``matches`` and ``open_matches``. For
    a hierarchy, it has ``detectors``: for each of them its ``events``, the events that came too ``late`` for it, those
    ``waiting`` for it, its ``delay`` (D, with a history if it is learned), and ``behind``, how long after the streams'
    horizon it gets events. A worker's ``share`` is its rows and results in the last batch divided by the mean of all
    workers. ``state_reads`` counts the blocks of state that it read; ``cached_reads`` of these did not
    have to be read and verified again, which are fewer if Spark moved it to another executor.
    """

    query: Json
    streams: list[Json]
    workers: list[Json]
    routing: Json | None = None
    full: bool = False

    @classmethod
    def of_workers(cls, name: str, batch: int | None, reports: Iterable[Json], routing: Json | None = None) -> Report:
        """Combine the reports of one operator's workers in one batch."""
        by_worker = {report["worker"]: report for report in reports}
        ordered = [by_worker[worker] for worker in sorted(by_worker)]
        known = (ordered[0].get("streams") if ordered else None) or [{}, {}]
        labels = [stream.get("name", label) for stream, label in zip(known, stream_labels(len(known)), strict=True)]
        streams = [_stream(side, label, known[side], ordered) for side, label in enumerate(labels)]
        query = {
            "name": name,
            "batch": batch,
            "batches": max((report["batches"] for report in ordered), default=0),
            "results": sum(report["total"]["results"] for report in ordered),
            **_recall_of_all(ordered),
            **_matches(ordered),
            **_detectors(ordered),
        }
        workers = [
            {
                "worker": report["worker"],
                "share": share,
                **{
                    span: {column: report[span].get(column, 0) for column in _COLUMNS} | _bounded(report, span)
                    for span in ("last", "total")
                },
            }
            for report, share in zip(ordered, _shares(ordered), strict=True)
        ]
        return cls(query, streams, workers, routing)

    def to_dict(self) -> Json:
        plain: Json = json.loads(json.dumps(asdict(self)))
        del plain["full"]
        return plain

    def text(self, *, full: bool = False) -> str:
        """Return the report as text: with the busiest workers only, or in full."""
        lines = [f"{self.query['name']}: {self.query['results']:,} results in {self.query['batches']} batches"]
        # Most late rows are joined with all their matches; some joins report late rows that may have lost pairs.
        lost = ("lost pairs",) if any(stream["late"] and "lost" in stream for stream in self.streams) else ()
        lines += _table(
            ("stream", "rows", "late", *lost, "null time", "null key", "quarantined", "discarded", "clock", "lateness"),
            [
                (
                    stream["name"],
                    f"{stream.get('rows', 0):,}",
                    f"{stream['late']:,}",
                    *(f"{stream.get('lost', 0):,}" for _ in lost),
                    f"{stream.get('null_times', 0):,}",
                    f"{stream.get('null_keys', 0):,}",
                    f"{stream.get('quarantined', 0):,}",
                    f"{stream.get('discarded', 0):,}",
                    _clock(stream.get("clock")),
                    show_duration(stream.get("lateness", 0)),
                )
                for stream in self.streams
            ],
        )
        shown = self.workers if full else _busiest(self.workers, lambda worker: worker["share"])
        lines += _table(
            ("worker", "share", "rows", "results", "cpu ms", "last cpu ms", "stored rows", "stored bytes", "runs"),
            [_worker_row(worker) for worker in [*([] if shown is self.workers else [_sum(self.workers)]), *shown]],
        )
        if "matches" in self.query:
            lines.insert(1, f"  matches {self.query['matches']:,}, open {self.query['open_matches']:,}")
        if "detectors" in self.query:
            lines += _detector_lines(self.query["detectors"])
        if "recall" in self.query:
            lines += _recall_lines(self.query, shown)
        if self.routing is not None:
            lines += routing_lines(self.routing, full=full)
        if shown is not self.workers:
            lines.append(f"  and {len(self.workers) - len(shown)} more workers: full=True")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text(full=self.full)

    def __repr__(self) -> str:
        return str(self)


def _busiest(workers: list[T], load: Callable[[T], float]) -> list[T]:
    """Return the workers that a short report shows: all if they are few, or else the busiest first."""
    return workers if len(workers) <= _FEW else sorted(workers, key=load, reverse=True)[:_BUSIEST]


def _sum(workers: list[Json]) -> Json:
    spans = {
        span: {name: sum(worker[span][name] for worker in workers) for name in _COLUMNS} for span in ("last", "total")
    }
    return {"worker": "all", "share": 1.0, **spans}


def _worker_row(worker: Json) -> tuple[str, ...]:
    return (
        str(worker["worker"]),
        f"{worker['share']:.2f}",
        *(f"{worker['total'][name]:,}" for name in ("rows", "results", "cpu_ms")),
        f"{worker['last']['cpu_ms']:,}",
        *(f"{worker['last'][name]:,}" for name in ("stored_rows", "stored_bytes", "runs")),
    )


def _stream(side: int, label: str, known: Json, reports: list[Json]) -> Json:
    totals = [report["total"] for report in reports]
    late = sum(total.get(f"late:{label}", 0) for total in totals)
    stream = {"name": label, **known, "late": late}
    stream["last_rows"] = reports[0]["last_streams"][side] if known else 0
    if f"late_us:{label}" in (totals[0] if totals else {}):
        by = sum(total[f"late_us:{label}"] for total in totals)
        stream |= {"late_by_mean": by // max(1, late), "late_by_most": max(t[f"most_late:{label}"] for t in totals)}
    for name in ("lost", "waiting", "quarantined", "discarded"):
        if totals and f"{name}:{label}" in totals[0]:
            stream[name] = sum(total[f"{name}:{label}"] for total in totals)
    return stream


def _shares(reports: list[Json]) -> list[float]:
    """Return each worker's rows and results in the last batch, divided by the mean."""
    work = [report["last"]["rows"] + report["last"]["results"] for report in reports]
    mean = sum(work) / len(work) if work else 0
    return [round(count / mean, 3) if mean else 0.0 for count in work]


def _bounded(report: Json, span: str) -> Json:
    if "recall" not in report:
        return {}
    estimate = recall_of(report["recall"][span == "last"])
    counts = {column: report[span].get(column, 0) for column in _BOUNDED}
    return {**counts, "recall": _rounded(estimate[0]), "recall_error": _rounded(estimate[1])}


def _recall_of_all(reports: list[Json]) -> Json:
    sums = [report["recall"] for report in reports if "recall" in report]
    out: Json = {}
    for at, name in enumerate(("recall", "recent_recall") if sums else ()):
        estimate = recall_of([sum(column) for column in zip(*(worker[at] for worker in sums), strict=True)])
        out |= {name: _rounded(estimate[0]), f"{name}_error": _rounded(estimate[1])}
    return out


def _matches(reports: list[Json]) -> Json:
    """Return the number of matches of a pattern, and the number of open matches."""
    totals = [report["total"] for report in reports]
    names = ("matches", "open_matches") if totals and "matches" in totals[0] else ()
    return {name: sum(total[name] for total in totals) for name in names}


def _detectors(reports: list[Json]) -> Json:
    """Return the reports of each detector over all workers: the longest delay, and the delay history of one worker."""
    of_workers = [report["detectors"] for report in reports if "detectors" in report]
    detectors = []
    for of_detector in zip(*of_workers, strict=True):
        late = sum(one["late"] for one in of_detector)
        by = sum(one["late"] * one["late_by_mean"] for one in of_detector)
        detectors.append(
            {
                **of_detector[0],
                **{name: sum(one[name] for one in of_detector) for name in ("events", "waiting", "late")},
                **{name: max(one[name] for one in of_detector) for name in ("delay", "behind")},
                "late_by_mean": by // max(1, late),
                "late_by_most": max(one["late_by_most"] for one in of_detector),
            }
        )
    return {"detectors": detectors} if of_workers else {}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _detector_lines(detectors: list[Json]) -> list[str]:
    return _table(
        ("detector", "events", "late", "waiting", "delay", "behind"),
        [
            (
                one["name"],
                *(f"{one[name]:,}" for name in ("events", "late", "waiting")),
                show_duration(one["delay"]),
                show_duration(one["behind"]),
            )
            for one in detectors
        ],
    )


def _recall_lines(query: Json, workers: list[Json]) -> list[str]:
    def text(at: Json, name: str) -> str:
        return "-" if at[name] is None else f"{at[name]:.3f} +- {at[name + '_error']:.3f}"

    lines = [f"  recall {text(query, 'recall')} in total, {text(query, 'recent_recall')} recently"]
    names = ("recall", "recently", *_BOUNDED)
    return lines + _table(
        ("worker", *(name.replace("_", " ") for name in names)),
        [
            (
                str(worker["worker"]),
                text(worker["total"], "recall"),
                text(worker["last"], "recall"),
                *(f"{worker['total'][name]:,}" for name in _BOUNDED),
            )
            for worker in workers
        ],
    )


def routing_lines(routing: Json, *, full: bool = False) -> list[str]:
    """Return a routing as text, in full or with a few grids and the most loaded workers; see `describe_routing`."""
    lines = [
        f"  routing {routing['scheme']}, table {routing['version']}: {routing['in_use']} of {routing['workers']} "
        f"workers in use, {routing['alive']} assignments alive"
        + (f", {routing['copies_per_row']:.2f} copies per row" if "copies_per_row" in routing else "")
    ]
    grids = routing["grids"] if full else routing["grids"][:_GRIDS]
    for grid in grids:
        several = f"{len(grid['workers'])} workers" if len(grid["workers"]) > _MOST_NAMED and not full else None
        named = several or f"workers {', '.join(map(str, grid['workers']))}"
        lines.append(f"    {grid['what']}: grid {grid['shape']} on {named}")
    if len(grids) < len(routing["grids"]):
        lines.append(f"    and {len(routing['grids']) - len(grids)} more grids: full=True")
    loads = list(enumerate(routing.get("loads", [])))
    for worker, seen in loads if full else _busiest(loads, lambda load: load[1]["load"][0]):
        now, *longer = (f"{load:.2f}" for load in seen["load"])
        lines.append(f"    worker {worker}: load {now} now, {longer[0]} over 5 batches, {longer[1]} over 15")
    if routing["moving"]:
        lines.append(f"    {routing['moving']} buckets still probe older assignments")
    lines += [f"    batch {d['batch']}: {d['action']}, {d['reason']}" for d in routing.get("decisions", [])[-5:]]
    return lines


def _clock(micros: int | None) -> str:
    if micros is None:
        return "-"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    shown = [[str(cell) for cell in row] for row in (head, *rows)]  # the names in a damaged history may be anything
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in shown
    ]
