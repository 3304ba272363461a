"""The demo's picture: one HTML file with inline SVG, nothing to fetch, light or dark as the reader's system."""

from __future__ import annotations

from html import escape

from braided.cli.bars import WIDTH, draw_bars, height_of
from braided.cli.charts import Frame, draw_chart, draw_mark
from braided.operator.contract import Json

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


def draw_page(run: Json) -> str:
    """Draw a run, as `describe_run` gives it, as one HTML page that is well-formed XML too."""
    plan, join, legs = run["plan"], run["join"], run["legs"]
    code = (
        'braided.join(calls, numbers, on=[("caller", "phone")], time=("start", "seen_at"),\n'
        f'             within="{join["within"]}", lateness="{join["lateness"]}")'
    )
    theta = (
        'braided.join(incoming, outgoing, on=None, time="start", '
        f'within="{legs["join"]["within"]}", lateness="{legs["join"]["lateness"]}",\n'
        f'             where="{legs["join"]["where"]}")'
    )
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    charts = "\n".join(
        f'<section><h2>{title}</h2><p>{caption}</p><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{title}">\n{chart}\n</svg></section>'
        for title, caption, chart, height in _draw_charts(run)
    )
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
<h1>braided demo</h1>
<p>{plan["rows"]:,} call records and suspicious numbers over {plan["seconds"]} seconds of event time,
joined in {len(run["batches"])} batches by {join["workers"]} workers.</p>
<section><pre>{escape(code)}</pre></section>
<section><dl>{_list_facts(run["summary"], run["checks"]["joined"])}</dl></section>
{charts}
{_list_decisions(run["decisions"])}
<h1>By a predicate alone</h1>
<p>Calls that enter and calls that leave the network have no key in common. Each meets every other in the window, on a
grid of workers; a relayed call is a pair that lasts about as long, in two cells.</p>
<section><pre>{escape(theta)}</pre></section>
<section><dl>{_list_facts(legs["summary"], run["checks"]["matched"])}</dl></section>
<p>{escape(versions)}. The charts run over event time; hover over a point for its value.</p>
</main>
</body>
</html>
"""


def _list_facts(facts: dict[str, str], equal: bool) -> str:
    verdict = ' class="good"' if equal else ' class="bad"'
    return "\n".join(
        f"<dt>{escape(label)}</dt><dd{verdict if label == 'checked' else ''}>{escape(text)}</dd>"
        for label, text in facts.items()
    )


def _list_decisions(decisions: list[Json]) -> str:
    if not decisions:
        return ""
    items = "\n".join(f"<li>{escape(decision['text'])}</li>" for decision in decisions)
    return f"<section><h2>What the routing decided</h2><ul>{items}</ul></section>"


def _draw_charts(run: Json) -> list[tuple[str, str, str, int]]:
    """Return titles, captions, charts and their heights; a batch stands at the event time at which it ended."""
    batches = run["batches"]
    rates = [batch["rows"] / batch["seconds"] for batch in batches]
    return [
        (
            "Load",
            "Rows and results of a worker over the mean of all, per batch. After the hot phone got a grid of workers, "
            "its old worker still answers for what it stored until that leaves the window.",
            *_draw_series(run, by_worker(batches, "load")),
        ),
        *_draw_comparison(run),
        (
            "Rows a second",
            "Per batch, of wall time. The first batch starts the Python workers.",
            *_draw_series(run, {"all rows": rates}, classes=("rate",)),
        ),
        (
            "Rows in state",
            "Per worker. Rows that can still match are kept; the others leave in blocks, so that the window "
            "and the lateness bound the state.",
            *_draw_series(run, by_worker(batches, "stored_rows")),
        ),
        (
            "CPU time",
            "Milliseconds per worker and batch, without the first, which loads the compiled kernels.",
            *_draw_series(run, by_worker(batches[1:], "cpu_ms"), skip=1, unit=" ms"),
        ),
    ]


def _draw_series(
    run: Json,
    series: dict[str, list[float]],
    *,
    skip: int = 0,
    unit: str = "",
    classes: tuple[str, ...] = ("s0", "s1", "s2", "s3"),
) -> tuple[str, int]:
    """Draw series over the batches without the first `skip`, with the moments at which things changed."""
    plan, batches = run["plan"], run["batches"]
    end = plan["seconds"]
    ends = [min((number + 1) * plan["batch_seconds"], end) for number in range(len(batches))]
    frame = Frame(height=240, top=44)
    chart = draw_chart(ends[skip:], series, x_end=end, unit=unit, classes=classes, frame=frame)
    # The earlier word stands higher, so that the later line does not cross it.
    marks = [draw_mark(plan["hot_from"], "one phone turns hot", x_end=end, frame=frame, line=1)]
    adapted = next((d["table"] for d in run["decisions"] if d["action"] == "promote"), None)
    used = [number for number, batch in enumerate(batches) if adapted is not None and batch["table"] >= adapted]
    if used:
        at = used[0] * plan["batch_seconds"]
        marks.append(draw_mark(at, "it has a grid of workers", x_end=end, frame=frame))
    chart = "\n".join([chart, *marks])
    return chart, frame.height


def _draw_comparison(run: Json) -> list[tuple[str, str, str, int]]:
    """Return the bars per worker, if the routing adapted."""
    if run["compared"] is None:
        return []
    before, after = (run["batches"][index] for index in run["compared"])
    panels = {
        f"{word} (batch {batch['number'] + 1})": [(worker["rows"], worker["results"]) for worker in batch["workers"]]
        for word, batch in (("Before", before), ("After", after))
    }
    caption = (
        "Rows (dark) and results (pale) per worker in the batch that caused the promotion, and in the last. "
        "The dashed line is the mean."
    )
    return [("Before and after", caption, draw_bars(panels), height_of(len(before["workers"])))]


def by_worker(batches: list[Json], name: str) -> dict[str, list[float]]:
    """Return one figure of every worker as a series over the batches."""
    workers = range(len(batches[0]["workers"]) if batches else 0)
    return {f"worker {number}": [batch["workers"][number][name] for batch in batches] for number in workers}
