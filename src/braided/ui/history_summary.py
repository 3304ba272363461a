"""The summary of a history for each run: as plain JSON, and as text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from braided.runtime.contract import Json
from braided.runtime.report import Report
from braided.ui.history_events import report_of

_MOST_DECISIONS = 20


def summarize(events: Iterable[Json]) -> list[Json]:
    """Return the summary of every run of a history, in the order of their starts."""
    runs: dict[str, list[Json]] = {}
    for event in events:
        if "query" in event:
            runs.setdefault(event["query"], []).append(event)
    return [_run(query, own) for query, own in runs.items()]


def _run(query: str, events: Sequence[Json]) -> Json:
    by_kind: dict[str, list[Json]] = {}
    for event in events:
        by_kind.setdefault(event["event"], []).append(event)
    started, ended = (by_kind.get(kind, [{}])[-1] for kind in ("started", "ended"))
    batches = by_kind.get("batch", [])
    run: Json = {
        "query": query,
        "name": started.get("name", query),
        "started": started.get("time"),
        "ended": ended.get("time"),
        "error": ended.get("error"),
        "note": by_kind.get("note", [None])[-1],
        "batches": len(batches),
        "rows": sum(map(_rows, batches)),
        "operators": _operators(batches),
        "tables": {event["operator"]: event for event in by_kind.get("table", [])},
        "decisions": by_kind.get("decision", []),
    }
    if batches:
        times = [_seconds(batch) for batch in batches]
        rates = [_rows(batch) / time for batch, time in zip(batches, times, strict=True)]
        run["seconds"] = {"median": round(statistics.median(times), 3), "most": round(max(times), 3)}
        run["rows_per_second"] = round(statistics.median(rates))
        run["phases"] = _phases(batches)
    return run


def _rows(batch: Json) -> int:
    """Return the input rows: those of the first operator, which is the first in the flow, or else Spark's count."""
    if batch["operators"]:
        return sum(stream.get("last_rows", 0) for stream in batch["operators"][0]["streams"])
    return sum(source.get("rows", 0) for source in batch["sources"])


def _seconds(batch: Json) -> float:
    return float(max(1, batch["ms"].get("triggerExecution", 0))) / 1000


def _phases(batches: Sequence[Json]) -> dict[str, float]:
    """Return the share of each phase in the time of all batches, the largest first."""
    sums: dict[str, float] = {}
    for batch in batches:
        for name, millis in batch["ms"].items():
            if name != "triggerExecution":
                sums[name] = sums.get(name, 0) + millis
    total = sum(map(_seconds, batches)) * 1000
    return {name: round(sums[name] / total, 4) for name in sorted(sums, key=lambda name: -sums[name])}


def _operators(batches: Sequence[Json]) -> list[Json]:
    newest = {part["operator"]: (part, batch["batch"]) for batch in batches for part in batch["operators"]}
    return [{"operator": name, **report_of(part, batch).to_dict()} for name, (part, batch) in newest.items()]


def write_text(runs: Sequence[Json]) -> str:
    return "\n\n".join("\n".join(_lines(run)) for run in runs) or "no query was started yet"


def _lines(run: Json) -> list[str]:
    state = "failed" if run["error"] else "ended" if run["ended"] else "running, or killed"
    lines = [f"{run['name']}: {state}" + (f", started {_moment(run['started'])}" if run["started"] else "")]
    if run["error"]:
        lines.append(f"  {run['error']}")
    if run["note"]:
        lines.append(f"  {run['note']['title']}: {run['note']['text']}")
        lines += [f"  {label}: {text}" for label, text in run["note"]["facts"].items()]
    if run["batches"]:
        seconds = run["seconds"]
        lines += [
            f"  {run['rows']:,} rows in {run['batches']:,} batches; the median batch took {seconds['median']:g} s, "
            f"with {run['rows_per_second']:,} rows/s; the slowest took {seconds['most']:g} s",
            "  time by phase: "
            + ", ".join(f"{name} {share:.1%}" for name, share in run["phases"].items() if share > 0),
        ]
    for operator in run["operators"]:
        report = Report(operator["query"], operator["streams"], operator["workers"])
        lines += [f"  {line}" for line in str(report).splitlines()]
    for table in run["tables"].values():
        grids = [_grid(grid) for grid in table["grids"]]
        lines.append(
            f"  routing {table['scheme']}, table {table['version']}: {len(table['in_use'])} of "
            f"{table['workers']} workers in use" + (f"; {', '.join(grids)}" if grids else "")
        )
    for decision in run["decisions"][-_MOST_DECISIONS:]:
        what = [str(decision[name]) for name in ("value", "key") if name in decision][:1]
        what += [f"grid {decision['grid']}"] if "grid" in decision else []
        lines.append(f"  batch {decision['batch']}: {' '.join([decision['action'], *what])}; {decision['reason']}")
    return lines


def _grid(grid: Json) -> str:
    heights = [len(column) for column in grid["columns"]]
    shape = f"{heights[0]} x {len(heights)}" if len(set(heights)) == 1 else "+".join(map(str, heights))
    what = "all rows" if grid["key"] is None else f"hot key {grid['label'] or '#' + grid['key'][:8]}"
    return f"{what} on grid {shape}"


def _moment(millis: float) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
