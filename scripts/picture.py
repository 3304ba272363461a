#!/usr/bin/env python3
"""Draws docs/demo.svg, the picture of docs/concepts/how_it_works.md, from a run of the demo.

    braided demo --out /tmp/demo && python scripts/picture.py /tmp/demo

The river above is a drawing. What is below it comes from the run; none of it depends on the machine's speed.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from braided.charts import Frame, draw_chart
from braided.cli.demo_display import format_bytes
from braided.cli.demo_parts import Skew
from braided.cli.demo_run import Run
from braided.cli.demo_streams import LATENESS, DemoStreams
from braided.ui.history_files import HistoryReader

TARGET = Path(__file__).parent.parent / "docs" / "demo.svg"
WIDTH, HEIGHT, MIDDLE = 960, 504, 490
CALLS, NUMBERS, JOINED = "#5fb3bf", "#e9a263", "#8189e0"
WORKERS = 4
GOOD = ' class="good"'

STYLE = """
text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #5d6b7a; font-size: 13px }
.name { font-size: 17px; font-weight: 600; fill: #17212b }
.title { font-size: 14px; font-weight: 600; fill: #17212b }
.white { fill: #fff; font-weight: 600 } .mid { text-anchor: middle } .end { text-anchor: end }
.mono { font: 12.5px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; fill: #d5dee7 }
.key { fill: #7f90a1 } .good { fill: #5fd38a; font-weight: 600 }
.bank { fill: none; stroke: #fff; stroke-width: 11.5 } .river { fill: none; stroke-width: 8.5 }
.rows { fill: none; stroke: #fff; stroke-width: 3; stroke-linecap: round; stroke-dasharray: .1 17.9;
  animation: flow 1.5s linear infinite }
@keyframes flow { to { stroke-dashoffset: -36 } }
@media (prefers-reduced-motion: reduce) { .rows { animation: none } }
.tick { font-size: 12px } .label { font-weight: 600 }
.grid { stroke: #e3e8ed } .mark { stroke: #9aa7b4; stroke-dasharray: 4 4 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round } .point { display: none }
.line.s0 { stroke: #2563eb } .label.s0 { fill: #2563eb }
.line.s1 { stroke: #b4459c } .label.s1 { fill: #b4459c }
.line.s2 { stroke: #c2761b } .label.s2 { fill: #c2761b }
.line.s3 { stroke: #3f8f4f } .label.s3 { fill: #3f8f4f }
"""


def main(source: str) -> None:
    """Draw the picture of one run."""
    events = list(HistoryReader(Path(source)).read())
    notes = [event for event in events if event["event"] == "note" and event["title"] == Skew.title]
    if not notes or not notes[-1]["right"]:
        sys.exit(f"{source}: the result was wrong, or --skew was not among the parts; run the demo again")
    run = Run(notes[-1]["query"])
    for event in events:
        if event.get("query") == run.id:
            run.take(event)
    picture = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"
 aria-label="Two streams split over workers and rejoin as one stream of joined rows">
<style>{STYLE}</style>
<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="16" fill="#fff" stroke="#d9e0e7"/>
{draw_river()}
<g transform="translate(28 284)">{draw_terminal(run, notes[-1]["facts"]["checked"])}</g>
<g transform="translate(500 284)">{draw_state(run)}</g>
</svg>
"""
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture)
    print(f"{TARGET}: {len(picture):,} bytes")


def draw_river() -> str:
    """Two streams, each split over the workers; what the workers find flows together again.

    Strands lie side by side in a stream. Each has a white bank, so that later ones seem to cross above.
    """
    split, left, right, merge = 190, MIDDLE - 40, MIDDLE + 40, 740
    heights = [44 + 62 * number for number in range(WORKERS)]
    center = sum(heights) / WORKERS
    strands, pills = [], []
    for number, worker in enumerate(heights):
        beside = (number - (WORKERS - 1) / 2) * 10
        for color, stream, shift in ((CALLS, center - 56, -7), (NUMBERS, center + 56, 7)):
            y, end = stream + beside, worker + shift
            strands.append((color, f"M28 {y}H{split}C{split + 120} {y} {left - 130} {end} {left} {end}"))
        y = center + beside
        strands.append((JOINED, f"M{right} {worker}C{right + 110} {worker} {merge - 100} {y} {merge} {y}H{WIDTH - 28}"))
        pills.append(
            f'<rect x="{MIDDLE - 48}" y="{worker - 19}" width="96" height="38" rx="19" fill="#263340"/>'
            f'<text class="white mid" x="{MIDDLE}" y="{worker + 5}">worker</text>'
        )
    # Odd steps through the strands mix the colours: calls cross above numbers and numbers above calls.
    order = [strands[number * 5 % len(strands)] for number in range(len(strands))]
    rivers = [
        f'<path class="bank" d="{path}"/><path class="river" stroke="{color}" d="{path}"/>'
        f'<path class="rows" d="{path}"/>'
        for color, path in order
    ]
    words = [
        f'<text class="name" x="28" y="{center - 86}">calls</text>',
        f'<text x="28" y="{center - 20}">caller, start, ...</text>',
        f'<text class="name" x="28" y="{center + 26}">suspicious numbers</text>',
        f'<text x="28" y="{center + 92}">phone, seen_at, ...</text>',
        f'<text class="name end" x="{WIDTH - 28}" y="{center - 32}">joined rows</text>',
        f'<text class="end" x="{WIDTH - 28}" y="{center + 40}">every pair once,</text>',
        f'<text class="end" x="{WIDTH - 28}" y="{center + 58}">as if never split</text>',
    ]
    return "\n".join([*rivers, *pills, *words])


def draw_terminal(run: Run, checked: str) -> str:
    """The demo's own summary, without what depends on the machine."""
    compared = run.before_and_after()
    assert compared is not None
    peak = max(run.batches, key=lambda batch: batch.stored_rows)
    before, after = (batch.imbalance for batch in compared)
    lines = {
        "joined": f"{run.rows:,} rows into {run.results:,}",
        "state": f"at most {peak.stored_rows:,} rows, {format_bytes(peak.stored_bytes)}",
        "hot key": f"{Skew.hot_share:.0%} of calls; load {before:.2f}, then {after:.2f} of mean",
        "lateness": f"{LATENESS} allowed, {run.late:,} late rows",
        "checked": checked,
    }
    texts = [
        f'<text class="mono" y="{62 + 26 * number}"><tspan class="key" x="20">{label}</tspan>'
        f'<tspan{GOOD if label == "checked" else ""} x="100">{escape(text)}</tspan></text>'
        for number, (label, text) in enumerate(lines.items())
    ]
    prompt = '<text class="mono" x="20" y="34"><tspan class="key">$</tspan> braided demo</text>'
    return "\n".join(['<rect width="448" height="192" rx="10" fill="#17202a"/>', prompt, *texts])


def draw_state(run: Run) -> str:
    """The load of each worker over the run."""
    streams = DemoStreams(run.rows, len(run.batches) * DemoStreams.batch_seconds)
    ends = [(number + 1) * streams.batch_seconds for number in range(len(run.batches))]
    chart = draw_chart(
        ends,
        {f"worker {worker}": [batch.workers[worker].load for batch in run.batches] for worker in range(WORKERS)},
        x_end=streams.seconds,
        mark=(streams.hot_from, "one phone turns hot"),
        frame=Frame(width=426, height=176, left=44, right=68),
    )
    title = '<text class="title" x="0" y="12">Load of each worker, over the mean</text>'
    return f'{title}<g transform="translate(0 18)">{chart}</g>'


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
