"""Bars per worker, before and after, as SVG text in the style of `charts`.

```
 before: batch 9   largest 2.21 of the mean       after: batch 20   largest 1.04 of the mean
 worker 0 [rows][results]   :    0.61             worker 0 [rows ][results ]:  1.02
 worker 1 [rows][results]   :    0.60             worker 1 [rows ][results ]:  0.98      : is the mean
 worker 2 [rows  ][results  :       ] 2.19        worker 2 [rows ][results ]:  1.04
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 720
_ROW, _THICK, _TOP = 26, 16, 28
_PANEL, _LABEL, _VALUE, _GAP = 348, 62, 42, 24


def height_of(workers: int) -> int:
    """How high the bars of so many workers are."""
    return _TOP + _ROW * workers + 4


def draw_bars(
    panels: Mapping[str, Sequence[tuple[int, int]]], *, classes: Sequence[str] = ("s0", "s1", "s2", "s3")
) -> str:
    """Draw named panels of (rows, results) per worker side by side, as the inside of an SVG element.

    The scale is the mean of the panel, so that panels of batches with more and with fewer results compare.

    >>> print(draw_bars({"now": [(30, 30), (10, 10)]}).splitlines()[0])
    <text class="label" x="0" y="14">now: largest 1.50 of the mean</text>
    """
    loads = {name: _over_mean(works) for name, works in panels.items()}
    most = max((sum(load) for panel in loads.values() for load in panel), default=0.0)
    unit = (_PANEL - _LABEL - _VALUE) / max(most, 1.0)
    parts = []
    for place, (name, works) in enumerate(panels.items()):
        x = place * (_PANEL + _GAP)
        ratio = max((_rounded(load) for load in loads[name]), default=0.0)
        parts.append(f'<text class="label" x="{x}" y="14">{escape(name)}: largest {ratio:.2f} of the mean</text>')
        for number, (work, load) in enumerate(zip(works, loads[name], strict=True)):
            style = classes[number % len(classes)]
            parts += _draw_bar(x, _TOP + _ROW * number, number, work, load, style, unit)
        at = x + _LABEL + unit
        parts.append(f'<path class="mark" d="M{at:.1f} {_TOP - 6}V{_TOP + _ROW * len(works)}"/>')
    return "\n".join(parts)


def _over_mean(works: Sequence[tuple[int, int]]) -> list[tuple[float, float]]:
    mean = sum(map(sum, works)) / max(len(works), 1) or 1.0
    return [(rows / mean, results / mean) for rows, results in works]


def _draw_bar(
    x: int, y: int, number: int, work: tuple[int, int], load: tuple[float, float], style: str, unit: float
) -> list[str]:
    start = x + _LABEL
    cut = start + load[0] * unit
    return [
        f'<text class="tick" x="{x}" y="{y + 12}">worker {number}</text>',
        f'<rect class="bar {style}" x="{start:.1f}" y="{y}" width="{load[0] * unit:.1f}" height="{_THICK}">'
        f"<title>{work[0]:,} rows</title></rect>",
        f'<rect class="bar pale {style}" x="{cut:.1f}" y="{y}" width="{load[1] * unit:.1f}" height="{_THICK}">'
        f"<title>{work[1]:,} results</title></rect>",
        f'<text class="tick end" x="{x + _PANEL}" y="{y + 12}">{_rounded(load):.2f}</text>',
    ]


def _rounded(load: tuple[float, float]) -> float:
    """Rounded first as in reports, so that both show the same two digits."""
    return round(sum(load), 3)
