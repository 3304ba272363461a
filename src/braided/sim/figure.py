"""Figures as standalone SVG files and as Markdown tables: panels side by side, lines or bars, one legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from braided.charts import Frame, short_number, tick_step

_COLOURS = {
    "GDJ": "#2563eb",
    "PROB": "#ea580c",
    "AGE": "#16a34a",
    "FIFO": "#9333ea",
    "RAND": "#64748b",
    "RECENT": "#dc2626",
    "auto": "#ca8a04",
    "limit": "#94a3b8",
}
_MORE = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#ca8a04", "#0891b2", "#64748b")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#334155}.title{font-weight:600}.grid{stroke:#cbd5e1;stroke-width:.6}"
    ".line{fill:none;stroke-width:1.8}@media(prefers-color-scheme:dark){text{fill:#cbd5e1}.grid{stroke:#475569}}"
)
_LETTER = 6.8
"""How wide a letter is at most, on average."""
_FEW = 12
_PANEL = Frame(width=330, height=250, left=44, right=14, top=34, bottom=44)


@dataclass(frozen=True)
class Panel:
    """One plot: series over x, which are numbers (lines) or words (bars)."""

    title: str
    x_label: str
    y_label: str
    x: Sequence[float] | Sequence[str]
    series: Mapping[str, Sequence[float]]
    log_x: bool = False


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, as measured here."""

    number: str
    slug: str
    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = field(default_factory=tuple)


def draw(figure: Figure) -> str:
    """Return the figure as an SVG document."""
    names = list(dict.fromkeys(name for panel in figure.panels for name in panel.series))
    colours = {name: _COLOURS.get(name.split(",")[0], _MORE[i % len(_MORE)]) for i, name in enumerate(names)}
    if len(set(colours.values())) < len(names):
        colours = {name: _MORE[i % len(_MORE)] for i, name in enumerate(names)}
    columns = min(3, len(figure.panels))
    rows = math.ceil(len(figure.panels) / columns)
    width = columns * _PANEL.width
    places, at, line = [], _PANEL.left, 0
    for name in names:
        if at + 40 + 7 * len(name) > width and at > _PANEL.left:
            at, line = _PANEL.left, line + 1
        places.append((name, at, 18 * line))
        at += 40 + 7 * len(name)
    legend = 30 + 18 * line
    height = legend + rows * _PANEL.height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(figure.title)}">',
        f"<style>{_STYLE}</style>",
    ]
    for name, at, down in places:
        parts.append(f'<path d="M{at} {14 + down}h18" stroke="{colours[name]}" stroke-width="3"/>')
        parts.append(f'<text x="{at + 23}" y="{18 + down}">{escape(name)}</text>')
    for i, panel in enumerate(figure.panels):
        x, y = i % columns * _PANEL.width, legend + i // columns * _PANEL.height
        parts += [f'<g transform="translate({x} {y})">', *_draw_panel(panel, colours), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _draw_panel(panel: Panel, colours: Mapping[str, str]) -> list[str]:
    most = max(max(values) for values in panel.series.values())
    step = tick_step(most, 4)
    top = step * math.ceil(most / step - 1e-9)
    left, right, bottom = _PANEL.across(0), _PANEL.across(1), _PANEL.down(0)
    parts = [f'<text class="title" x="{left}" y="14">{escape(panel.title)}</text>']
    parts.append(f'<text x="{right}" y="28" text-anchor="end">{escape(panel.y_label)}</text>')
    for k in range(round(top / step) + 1):
        y = _PANEL.down(k * step / top)
        parts.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>')
        parts.append(
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{short_number(round(k * step, 9))}</text>'
        )
    middle = (left + right) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(panel.x_label)}</text>')
    words = any(isinstance(value, str) for value in panel.x)
    places = _places(panel, panel.x)
    free = 0.0
    ticks: Sequence[float] | Sequence[str] = panel.x
    if not words:
        ticks = ticks_of([float(x) for x in panel.x], log=panel.log_x)
    for place, value in zip(_places(panel, ticks), ticks, strict=True):
        text = value if isinstance(value, str) else short_number(float(f"{value:.3g}"))
        if words or place - _LETTER * len(text) / 2 >= free:
            parts.append(f'<text x="{place:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(text)}</text>')
            free = place + _LETTER * (len(text) / 2 + 1)
    wide = 0.8 * (right - left) / len(panel.x) / len(panel.series)
    for s, (name, values) in enumerate(panel.series.items()):
        heights = [_PANEL.down(value / top) for value in values]
        if words:
            for place, y, value in zip(places, heights, values, strict=True):
                x = place + (s - len(panel.series) / 2) * wide
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{max(0.0, bottom - y):.1f}" '
                    f'fill="{colours[name]}"><title>{escape(name)}: {value:g}</title></rect>'
                )
            continue
        points = list(zip(places, heights, strict=True))
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="line" stroke="{colours[name]}" d="M{path}"/>')
        for (x, y), at, value in zip(points, panel.x, values, strict=True):
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colours[name]}">'
                f"<title>{escape(name)} at {at:g}: {value:g}</title></circle>"
            )
    return parts


def _places(panel: Panel, values: Sequence[float] | Sequence[str]) -> list[float]:
    """Return where values are on the horizontal axis of a panel."""
    if any(isinstance(value, str) for value in panel.x):
        return [_PANEL.across((i + 0.5) / len(values)) for i in range(len(values))]

    def at(x: float | str) -> float:
        return math.log(float(x)) if panel.log_x else float(x)

    low, high = min(map(at, panel.x)), max(map(at, panel.x))
    return [_PANEL.across((at(x) - low) / (high - low) if high > low else 0.5) for x in values]


def ticks_of(x: Sequence[float], *, log: bool) -> list[float]:
    """Return what to write at an axis: the points themselves where they are few, else round numbers between them.

    >>> ticks_of([1, 5, 40], log=False), ticks_of(range(3, 50), log=False)
    ([1, 5, 40], [10.0, 20.0, 30.0, 40.0])
    >>> ticks_of([0.9 + n for n in range(60)], log=True)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    """
    low, high = min(x), max(x)
    if len(x) <= _FEW:
        return list(x)
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [float(f"{factor}e{decade}") for decade in decades for factor in (1, 2, 5)]
        return [tick for tick in found if low <= tick <= high]
    step = tick_step(high - low, 5)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 9) for number in range(first, last + 1)]


def table(figure: Figure) -> str:
    """Return the figure's numbers as Markdown."""
    parts = [f"## Figure {figure.number}: {figure.title}", ""]
    for panel in figure.panels:
        parts += [f"{panel.title}, {panel.y_label} by {panel.x_label}:", ""]
        parts.append(f"| {panel.x_label} | " + " | ".join(panel.series) + " |")
        parts.append("|---" * (1 + len(panel.series)) + "|")
        for i, x in enumerate(panel.x):
            cells = [f"{values[i]:.4g}" for values in panel.series.values()]
            parts.append(f"| {x if isinstance(x, str) else f'{x:g}'} | " + " | ".join(cells) + " |")
        parts.append("")
    parts += [f"* {note}" for note in figure.notes]
    return "\n".join([*parts, ""])
