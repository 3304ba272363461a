"""The demo's picture: one HTML file with inline SVG, nothing to fetch, light or dark as the reader's system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import TypeAlias

from braided.cli.bars import WIDTH, draw_bars, height_of
from braided.cli.charts import Frame, draw_chart, draw_mark
from braided.cli.display import FIGURES
from braided.runtime.contract import Json

_STYLE = """
:root { --paper: #fff; --page: #f4f6f8; --ink: #17212b; --quiet: #5d6b7a; --grid: #e3e8ed; --mark: #9aa7b4;
  --rate: #2563eb; --s0: #0e8a9c; --s1: #d9730d; --s2: #8b5cf6; --s3: #4d9f45; --good: #15803d; --bad: #b91c1c }
@media (prefers-color-scheme: dark) { :root { --paper: #17202a; --page: #0e151c; --ink: #e6edf3; --quiet: #93a1b0;
  --grid: #263340; --mark: #5d6b7a; --rate: #6ea1ff; --s0: #3fc1d3; --s1: #f59e42; --s2: #b79cff; --s3: #7fcf76;
  --good: #4ade80; --bad: #f87171 } }
body { margin: 0; padding: 32px 16px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
main { max-width: 780px; margin: 0 auto }
h1 { font-size: 26px; margin: 0 0 4px } h2 { font-size: 16px; margin: 0 }
p { margin: 0 0 12px; color: var(--quiet) }
section { background: var(--paper); border-radius: 12px; padding: 18px 22px; margin: 16px 0 }
pre { margin: 0; overflow-x: auto; font: 13px/1.55 ui-monospace, "DejaVu Sans Mono", monospace }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 18px; margin: 0 }
ul { margin: 0; padding-left: 18px } dt { color: var(--quiet) } dd { margin: 0; font-variant-numeric: tabular-nums }
.good { color: var(--good); font-weight: 600 } .bad { color: var(--bad); font-weight: 600 }
svg { display: block; width: 100%; height: auto }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--quiet) }
svg .end { text-anchor: end } svg .mid { text-anchor: middle } svg .label { font-weight: 600 }
svg .grid { stroke: var(--grid) } svg .mark { stroke: var(--mark); stroke-dasharray: 4 4 }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round }
.line.rate { stroke: var(--rate) } .point.rate, .label.rate { fill: var(--rate) }
.bar.s0 { fill: var(--s0) } .bar.s1 { fill: var(--s1) } .bar.s2 { fill: var(--s2) } .bar.s3 { fill: var(--s3) }
.bar.pale { opacity: .55 } svg text.label { fill: var(--ink) }
.line.s0 { stroke: var(--s0) } .point.s0, .label.s0 { fill: var(--s0) }
.line.s1 { stroke: var(--s1) } .point.s1, .label.s1 { fill: var(--s1) }
.line.s2 { stroke: var(--s2) } .point.s2, .label.s2 { fill: var(--s2) }
.line.s3 { stroke: var(--s3) } .point.s3, .label.s3 { fill: var(--s3) }
"""


_Chart: TypeAlias = tuple[str, str, str, int]
"""A title, a caption, the chart and its height."""


def draw_page(run: Json) -> str:
    """Draw a run, as `describe_run` gives it, as one HTML page that is well-formed XML too."""
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    parts = "\n".join(_draw_part(part, run["join"]["workers"]) for part in run["parts"].values())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>braided demo</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{parts}
<p>{escape(versions)}. {escape("; ".join(FIGURES).capitalize())}. The charts run over event time; hover over a point
for its value.</p>
</main>
</body>
</html>
"""


def _draw_part(part: Json, workers: int) -> str:
    plan = part["plan"]
    charts = "\n".join(
        f'<section><h2>{title}</h2><p>{caption}</p><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{title}">\n{chart}\n</svg></section>'
        for title, caption, chart, height in _draw_charts(part)
    )
    return f"""<h1>{escape(part["title"])}</h1>
<p>{escape(part["says"])}. {plan["rows"]:,} rows over {plan["seconds"]} seconds of event time, in
{len(part["batches"])} batches by {workers} workers.</p>
<section><pre>{escape(part["code"])}</pre></section>
<section><dl>{_list_facts(part["summary"], part["right"])}</dl></section>
{charts}
{_list_decisions(part["decisions"])}"""


def _list_facts(facts: dict[str, str], right: bool) -> str:
    verdict = ' class="good"' if right else ' class="bad"'
    return "\n".join(
        f"<dt>{escape(label)}</dt><dd{verdict if label == 'checked' else ''}>{escape(text)}</dd>"
        for label, text in facts.items()
    )


def _list_decisions(decisions: list[Json]) -> str:
    if not decisions:
        return ""
    items = "\n".join(f"<li>{escape(decision['text'])}</li>" for decision in decisions)
    return f"<section><h2>What the routing decided</h2><ul>{items}</ul></section>"


def _draw_charts(part: Json) -> list[_Chart]:
    """Return the charts of a part; a batch stands at the event time at which it ended."""
    return [chart for name in part["charts"] if (chart := _CHARTS[name](part)) is not None]


def _draw_load(part: Json) -> _Chart:
    return (
        "Load",
        "Rows and results of a worker over the mean of all, per batch. After the hot phone got a grid of workers, "
        "its old worker still answers for what it stored until that leaves the window.",
        *_draw_series(part, by_worker(part["batches"], "load")),
    )


def _draw_rate(part: Json) -> _Chart:
    rates = [batch["rows"] / batch["seconds"] for batch in part["batches"]]
    return (
        "Rows a second",
        "Per batch, of wall time. The first batch starts the Python workers.",
        *_draw_series(part, {"all rows": rates}, classes=("rate",)),
    )


def _draw_state(part: Json) -> _Chart:
    return (
        "Rows in state",
        "Per worker. Rows that can still match are kept; the others leave in blocks, so that the window and the "
        "lateness bound the state, or the budget does.",
        *_draw_series(part, by_worker(part["batches"], "stored_rows")),
    )


def _draw_cpu(part: Json) -> _Chart:
    return (
        "CPU time",
        "Milliseconds per worker and batch, without the first, which loads the compiled kernels.",
        *_draw_series(part, by_worker(part["batches"][1:], "cpu_ms"), skip=1, unit=" ms"),
    )


def _draw_lateness(part: Json) -> _Chart:
    seconds = [batch["lateness"] / 1_000_000 for batch in part["batches"]]
    return (
        "Lateness",
        "Seconds, as learned from the rows so far, the larger of both streams. A row that is later may lose pairs.",
        *_draw_series(part, {"learned": seconds}, unit=" s", classes=("rate",)),
    )


def _draw_recall(part: Json) -> _Chart:
    known = [batch["recall"] for batch in part["batches"] if batch["recall"] is not None]
    return (
        "Recall",
        "The share of the exact result so far, in percent, as estimated while the join runs.",
        *_draw_series(
            part,
            {"recall": [100 * recall[0] for recall in known]},
            skip=len(part["batches"]) - len(known),
            unit=" %",
            classes=("rate",),
        ),
    )


def _draw_series(
    part: Json,
    series: dict[str, list[float]],
    *,
    skip: int = 0,
    unit: str = "",
    classes: tuple[str, ...] = ("s0", "s1", "s2", "s3"),
) -> tuple[str, int]:
    """Draw series over the batches without the first `skip`, with the moments at which things changed."""
    plan, batches = part["plan"], part["batches"]
    end = plan["seconds"]
    ends = [min((number + 1) * plan["batch_seconds"], end) for number in range(len(batches))]
    frame = Frame(height=240, top=44)
    chart = draw_chart(ends[skip:], series, x_end=end, unit=unit, classes=classes, frame=frame)
    marks = []
    if "hot_from" in plan:
        # The earlier word stands higher, so that the later line does not cross it.
        marks.append(draw_mark(plan["hot_from"], "one phone turns hot", x_end=end, frame=frame, line=1))
    adapted = next((d["table"] for d in part["decisions"] if d["action"] == "promote"), None)
    used = [number for number, batch in enumerate(batches) if adapted is not None and batch["table"] >= adapted]
    if used:
        at = used[0] * plan["batch_seconds"]
        marks.append(draw_mark(at, "it has a grid of workers", x_end=end, frame=frame))
    chart = "\n".join([chart, *marks])
    return chart, frame.height


def _draw_comparison(part: Json) -> _Chart | None:
    """Return the bars per worker, if the routing adapted."""
    if part["compared"] is None:
        return None
    before, after = (part["batches"][index] for index in part["compared"])
    panels = {
        f"{word} (batch {batch['number'] + 1})": [(worker["rows"], worker["results"]) for worker in batch["workers"]]
        for word, batch in (("Before", before), ("After", after))
    }
    caption = (
        "Rows (dark) and results (pale) per worker in the batch that caused the promotion, and in the last. "
        "The dashed line is the mean."
    )
    return "Before and after", caption, draw_bars(panels), height_of(len(before["workers"]))


_CHARTS: Mapping[str, Callable[[Json], _Chart | None]] = {
    "load": _draw_load,
    "comparison": _draw_comparison,
    "rate": _draw_rate,
    "state": _draw_state,
    "cpu": _draw_cpu,
    "lateness": _draw_lateness,
    "recall": _draw_recall,
}


def by_worker(batches: list[Json], name: str) -> dict[str, list[float]]:
    """Return one figure of every worker as a series over the batches."""
    workers = range(len(batches[0]["workers"]) if batches else 0)
    return {f"worker {number}": [batch["workers"][number][name] for batch in batches] for number in workers}
