"""Line charts as SVG text, without dependencies. CSS classes set the colours, so a page can be light or dark.

```
                  | mark
 60k |............|..........
 40k |......___---|---____... worker 1      direct labels at the right end, moved apart
 20k |__---.......|.......... worker 0
     0 s     30 s     60 s
```
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Frame:
    """The size of a chart and of its margins, in SVG units."""

    width: int = 720
    height: int = 220
    left: int = 52
    right: int = 84
    top: int = 26
    bottom: int = 28

    def across(self, share: float) -> float:
        """Return the x coordinate of a share of the horizontal axis."""
        return self.left + share * (self.width - self.left - self.right)

    def down(self, share: float) -> float:
        """Return the y coordinate of a share of the vertical axis, from the bottom."""
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


def draw_chart(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    x_end: float,
    unit: str = "",
    mark: tuple[float, str] | None = None,
    classes: Sequence[str] = ("s0", "s1", "s2", "s3"),
    frame: Frame | None = None,
) -> str:
    """Draw named series over seconds as the content of an SVG element, as in the drawing of this module.

    `mark` is a time in seconds with a word for it. Points have their values as tooltips.

    >>> print(draw_chart([1, 2], {"a": [1, 3]}, x_end=2).splitlines()[-1])
    <text class="label s0" x="644.0" y="30.0">a</text>
    """
    frame = frame or Frame()
    most = max((value for values in series.values() for value in values), default=0)
    step = tick_step(most, 4)
    top = max(step * math.ceil(most / step - 1e-9), step)
    parts = _draw_axes(frame, step, top, x_end, unit)
    if mark is not None:
        parts.append(draw_mark(*mark, x_end=x_end, frame=frame))
    ends = []
    for (name, values), style in zip(series.items(), classes, strict=False):
        points = [(frame.across(a / x_end), frame.down(b / top)) for a, b in zip(x, values, strict=True)]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
        parts.append(f'<path class="line {style}" d="M{path}"/>')
        parts += [
            f'<circle class="point {style}" cx="{a:.1f}" cy="{b:.1f}" r="2.5">'
            f"<title>{escape(name)}, {second:g} s: {value:,.0f}{escape(unit)}</title></circle>"
            for (a, b), second, value in zip(points, x, values, strict=True)
        ]
        if points:
            ends.append((points[-1][1], name, style))
    for y, name, style in spread_labels(ends, 15):
        parts.append(f'<text class="label {style}" x="{frame.across(1) + 8:.1f}" y="{y + 4:.1f}">{escape(name)}</text>')
    return "\n".join(parts)


def draw_mark(second: float, word: str, *, x_end: float, frame: Frame, line: int = 0) -> str:
    """Draw a vertical line with a word at its top; if two marks are close, put one word on a higher `line`."""
    at, top = frame.across(second / x_end), frame.top - 16 - 15 * line
    return (
        f'<path class="mark" d="M{at:.1f} {top}V{frame.down(0):.1f}"/>\n'
        f'<text class="tick" x="{at + 5:.1f}" y="{top + 8}">{escape(word)}</text>'
    )


def _draw_axes(frame: Frame, step: float, top: float, x_end: float, unit: str) -> list[str]:
    parts = []
    for number in range(round(top / step) + 1):
        y = frame.down(number * step / top)
        parts.append(f'<path class="grid" d="M{frame.left} {y:.1f}H{frame.across(1):.1f}"/>')
        text = short_number(number * step) + (escape(unit) if number * step == top else "")
        parts.append(f'<text class="tick end" x="{frame.left - 8}" y="{y + 4:.1f}">{text}</text>')
    every = tick_step(x_end, 5)
    for number in range(int(x_end / every + 1e-9) + 1):
        x = frame.across(number * every / x_end)
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{frame.height - 8}">{number * every:g} s</text>')
    return parts


def tick_step(most: float, ticks: int) -> float:
    """Return a round step that divides 0..most into about `ticks` parts.

    >>> tick_step(130, 4), tick_step(47_000, 4), tick_step(0, 4)
    (50.0, 20000.0, 1.0)
    """
    if most <= 0:
        return 1.0
    raw = most / ticks
    size = 10.0 ** math.floor(math.log10(raw))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * (1 - 1e-9))


def short_number(value: float) -> str:
    """Write the number of a tick.

    >>> [short_number(value) for value in (0, 250, 1500, 40_000, 2_500_000, 20_000_000_000)]
    ['0', '250', '1.5k', '40k', '2.5M', '20G']
    """
    for size, suffix in ((1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")):
        if value >= size:
            return f"{value / size:g}{suffix}"
    return f"{value:g}"


def spread_labels(ends: Sequence[tuple[float, str, str]], gap: float) -> list[tuple[float, str, str]]:
    """Move overlapping labels apart, and keep their order.

    >>> spread_labels([(10, "a", ""), (12, "b", "")], 4)
    [(9.0, 'a', ''), (13.0, 'b', '')]
    """
    ordered = sorted(ends)
    heights = [end[0] for end in ordered]
    for _ in range(len(heights)):
        for above in range(len(heights) - 1):
            short = gap - (heights[above + 1] - heights[above])
            if short > 0:
                heights[above] -= short / 2
                heights[above + 1] += short / 2
    return [(height, name, style) for height, (_, name, style) in zip(heights, ordered, strict=True)]
