"""The demo's picture: one HTML file with inline SVG, nothing to fetch, light or dark as the reader's system."""

from __future__ import annotations

from html import escape

from braided.cli.charts import draw_chart
from braided.runtime.operator import Json

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
dt { color: var(--quiet) } dd { margin: 0; font-variant-numeric: tabular-nums }
.good { color: var(--good); font-weight: 600 } .bad { color: var(--bad); font-weight: 600 }
svg { display: block; width: 100%; height: auto }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--quiet) }
svg .end { text-anchor: end } svg .mid { text-anchor: middle } svg .label { font-weight: 600 }
svg .grid { stroke: var(--grid) } svg .mark { stroke: var(--mark); stroke-dasharray: 4 4 }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round }
.line.rate { stroke: var(--rate) } .point.rate, .label.rate { fill: var(--rate) }
.line.s0 { stroke: var(--s0) } .point.s0, .label.s0 { fill: var(--s0) }
.line.s1 { stroke: var(--s1) } .point.s1, .label.s1 { fill: var(--s1) }
.line.s2 { stroke: var(--s2) } .point.s2, .label.s2 { fill: var(--s2) }
.line.s3 { stroke: var(--s3) } .point.s3, .label.s3 { fill: var(--s3) }
"""


def draw_page(run: Json) -> str:
    """Draw a run, as `describe_run` tells it, as one HTML page that is well-formed XML too."""
    plan, join = run["plan"], run["join"]
    code = (
        'braided.join(calls, numbers, on=[("caller", "phone")], time=("start", "seen_at"),\n'
        f'             within="{join["within"]}", lateness="{join["lateness"]}")'
    )
    facts = "\n".join(
        f"<dt>{escape(label)}</dt><dd{_judged(label, run['equal'])}>{escape(text)}</dd>"
        for label, text in run["summary"].items()
    )
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    charts = "\n".join(
        f'<section><h2>{title}</h2><p>{caption}</p><svg viewBox="0 0 720 220" role="img" aria-label="{title}">'
        f"\n{chart}\n</svg></section>"
        for title, caption, chart in _draw_charts(run)
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
<section><dl>{facts}</dl></section>
{charts}
<p>{escape(versions)}. The charts run over event time; hover over a point for its value.</p>
</main>
</body>
</html>
"""


def _judged(label: str, equal: bool) -> str:
    return "" if label != "checked" else ' class="good"' if equal else ' class="bad"'


def _draw_charts(run: Json) -> list[tuple[str, str, str]]:
    """Return titles, captions and charts; a batch stands at the event time at which it ended."""
    plan, batches = run["plan"], run["batches"]
    ends = [min((number + 1) * plan["batch_seconds"], plan["seconds"]) for number in range(len(batches))]
    mark = (plan["hot_from"], "one phone turns hot")
    rates = [batch["rows"] / batch["seconds"] for batch in batches]
    return [
        (
            "Rows a second",
            "Per batch, of wall time. The first batch starts the Python workers.",
            draw_chart(ends, {"all rows": rates}, x_end=plan["seconds"], mark=mark, classes=("rate",)),
        ),
        (
            "Rows in state",
            "Per worker. Rows that can still match are kept, once; the others leave in blocks, so that the window "
            "and the lateness bound the state.",
            draw_chart(ends, by_worker(batches, "stored_rows"), x_end=plan["seconds"], mark=mark),
        ),
        (
            "CPU time",
            "Milliseconds per worker and batch, without the first, which loads the compiled kernels. "
            "All rows of the hot phone go to one worker.",
            draw_chart(ends[1:], by_worker(batches[1:], "cpu_ms"), x_end=plan["seconds"], mark=mark, unit=" ms"),
        ),
    ]


def by_worker(batches: list[Json], name: str) -> dict[str, list[float]]:
    """Return one figure of every worker as a series over the batches."""
    workers = range(len(batches[0]["workers"]) if batches else 0)
    return {f"worker {number}": [batch["workers"][number][name] for batch in batches] for number in workers}
