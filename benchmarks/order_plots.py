"""K and delays over time as SVG, with the rows that came too late: the paper's Figure 5a for any set."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from order_sets import Times

from braided.charts import Frame, short_number, tick_step
from braided.sim.slack import slack_rows
from braided.time.lateness import Lateness
from braided.time.learning.rules import PRIME_ROWS

RULES = {
    "margin 0": Lateness(margin=0, floor="0 seconds"),
    "margin 0.5": Lateness(floor="0 seconds"),
    "recall 99%": Lateness(recall=0.99, floor="0 seconds"),
}
SECONDS = {"paper": 20.0}
POINTS, STEPS = 700, 400
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #5d6b7a }
.title { font-size: 14px; font-weight: 600; fill: #17212b } .end { text-anchor: end } .mid { text-anchor: middle }
.grid { stroke: #e3e8ed } .dot { fill: #9aa7b4 } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round }
.s0 { stroke: #2563eb } .s1 { stroke: #b4459c } .s2 { stroke: #c2761b } .miss { fill: none; stroke-width: 1.6 }
text.s0 { stroke: none; fill: #2563eb } text.s1 { stroke: none; fill: #b4459c } text.s2 { stroke: none; fill: #c2761b }
"""


def draw_set(directory: Path, name: str, times: Times) -> None:
    """Write `order_<name>.svg`: delays as dots, K of each rule as a line, misses as crosses in its colour."""
    directory.mkdir(parents=True, exist_ok=True)
    clock = np.maximum.accumulate(times)
    seconds = (clock - clock[0]) / 1e6
    shown = seconds <= SECONDS.get(name, float("inf"))
    seconds, delays = seconds[shown], ((clock - times) / 1e6)[shown]
    runs = {rule: slack_rows(times, spec) for rule, spec in RULES.items()}
    # While the first rows are held back, K follows the clock and leaves the picture.
    top_delay = max(
        float(delays.max()), *(float(run.lateness[shown][PRIME_ROWS:].max()) / 1e6 for run in runs.values())
    )
    frame = Frame(width=860, height=320, top=36, right=96)
    step = tick_step(top_delay, 4)
    top, end = step * np.ceil(top_delay / step), float(seconds[-1]) or 1.0

    def place(second: float, value: float) -> str:
        return f"{frame.across(second / end):.1f} {frame.down(min(value, top) / top):.1f}"

    parts = [f'<text class="title" x="{frame.left}" y="20">{escape(name)}: delay and K in seconds</text>']
    for number in range(round(top / step) + 1):
        y = frame.down(number * step / top)
        parts.append(f'<path class="grid" d="M{frame.left} {y:.1f}H{frame.across(1):.1f}"/>')
        label = short_number(round(number * step, 6))
        parts.append(f'<text class="end" x="{frame.left - 8}" y="{y + 4:.1f}">{label}</text>')
    every = tick_step(end, 5)
    for number in range(int(end / every) + 1):
        x = frame.across(number * every / end)
        parts.append(f'<text class="mid" x="{x:.1f}" y="{frame.height - 8}">{number * every:g} s</text>')
    for row in _largest_in(delays, POINTS):
        x, y = place(seconds[row], delays[row]).split()
        parts.append(f'<circle class="dot" cx="{x}" cy="{y}" r="1.2"/>')
    for number, (rule, run) in enumerate(runs.items()):
        lateness, missed = run.lateness[shown] / 1e6, np.flatnonzero(~run.in_order[shown])
        rows = np.unique(np.linspace(0, len(seconds) - 1, STEPS).astype(int))
        path = "L".join(place(seconds[row], lateness[row]) for row in rows)
        parts.append(f'<path class="line s{number}" d="M{path}"/>')
        thinned = missed[:: max(1, len(missed) // 150)]
        cross = "m-3 -3l6 6m-6 0l6 -6"
        marks = "".join(f"M{place(seconds[row], delays[row])}{cross}" for row in thinned)
        parts.append(f'<path class="miss s{number}" d="{marks}"/>')
        words = f"{rule}: {len(missed):,} too late"
        parts.append(f'<text class="s{number} end" x="{frame.across(1):.1f}" y="{14 + 13 * number}">{words}</text>')
    body = "\n".join(parts)
    (directory / f"order_{name}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'aria-label="K and delays of {escape(name)} over time">\n<style>{STYLE}</style>\n'
        f'<rect width="{frame.width}" height="{frame.height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _largest_in(delays: np.ndarray, parts: int) -> list[int]:
    """Return the row of the largest delay in each of so many equal parts."""
    pieces = np.array_split(np.arange(len(delays)), min(parts, len(delays)))
    return [int(piece[np.argmax(delays[piece])]) for piece in pieces]
