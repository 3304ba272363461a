#!/usr/bin/env python3
"""Draws the pictures of docs/concepts/ideas.md, an SVG file each, light or dark as the reader's system is.

python scripts/drawings.py
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
WIDTH = 720

STYLE = """
svg { color-scheme: light dark }
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #5d6b7a }
.strong { font-weight: 600; fill: #17212b } .mid { text-anchor: middle } .end { text-anchor: end }
.small { font-size: 12px }
.paper { fill: #fff; stroke: #d9e0e7 } .cell { fill: #f3f5f7; stroke: #c3ccd5 }
.line { fill: none; stroke: #8896a4; stroke-width: 1.5 }
.dash { fill: none; stroke: #8896a4; stroke-dasharray: 4 4 } .head { fill: #8896a4 }
.left { fill: #0b7285 } .right { fill: #c2560c } .good { fill: #3c8435 } .bad { fill: #c2255c }
.on { fill: #fff; font-weight: 600 }
.leftly { fill: #0b7285; opacity: .22 } .rightly { fill: #c2560c; opacity: .22 } .goodly { fill: #3c8435; opacity: .22 }
@media (prefers-color-scheme: dark) {
  text { fill: #9aa8b6 } .strong { fill: #e6edf3 } .paper { fill: #16202a; stroke: #2a3744 }
  .cell { fill: #0d141b; stroke: #3a4958 }
  .left { fill: #3fc1d3 } .right { fill: #f59e42 } .good { fill: #7fcf76 } .bad { fill: #ff8fb5 } .on { fill: #0d141b }
  .leftly { fill: #3fc1d3 } .rightly { fill: #f59e42 } .goodly { fill: #7fcf76 }
}
"""


def text(x: float, y: float, words: str, style: str = "") -> str:
    """Return a line of text."""
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, style: str, radius: float = 5) -> str:
    """Return a box."""
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def dot(x: float, y: float, style: str, radius: float = 6) -> str:
    """Return a row of a stream."""
    return f'<circle class="{style}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>'


def line(path: str, style: str = "line") -> str:
    """Return a line along a path."""
    return f'<path class="{style}" d="{path}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return an arrow to the right or down."""
    if x1 == x2:
        return line(f"M{x1:g} {y1:g}V{y2 - 7:g}") + line(f"M{x2 - 4:g} {y2 - 8:g}h8l-4 8z", "head")
    middle = (x1 + x2) / 2
    curve = f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2 - 7:g} {y2:g}"
    return line(curve) + line(f"M{x2 - 8:g} {y2 - 4:g}v8l8 -4z", "head")


def draw_grid() -> list[str]:
    """A key group on a grid of workers: one row of each stream, and where the two meet."""
    parts = []
    left, top, wide, high = 260, 64, 96, 46
    for column in range(3):
        parts.append(text(left + column * (wide + 8) + wide / 2, 240, f"column {column}", "mid small"))
        for row in range(3):
            x, y = left + column * (wide + 8), top + row * (high + 8)
            parts.append(box(x, y, wide, high, "cell"))
            if row == 1:
                parts.append(box(x, y, wide, high, "leftly"))
            if column == 2:
                parts.append(box(x, y, wide, high, "rightly"))
            meet = row == 1 and column == 2
            parts.append(text(x + wide / 2, y + 28, f"worker {column * 3 + row}", "mid strong" if meet else "mid"))
    parts += [
        dot(30, 141, "left"),
        text(44, 137, "a left row", "strong"),
        text(44, 154, "one worker of every column", "small"),
        arrow(222, 141, 256, 141),
        dot(540, 24, "right"),
        text(530, 22, "a right row", "end strong"),
        text(530, 37, "all of one column", "end small"),
        arrow(540, 34, 540, 60),
        text(588, 137, "they meet here,", "strong"),
        text(588, 154, "and nowhere else", "small"),
    ]
    return parts


def draw_assignments() -> list[str]:
    """An assignment gives way to another while no state moves."""
    left, step = 150, 66
    parts = [text(left + step * number + step / 2, 34, f"batch {number + 1}", "mid small") for number in range(8)]
    spans = (
        (50, "left", 0, 3, "rows are stored under a"),
        (92, "leftly", 3, 7, "a is only probed, with copies"),
        (134, "right", 3, 8, "rows are stored under b"),
    )
    for y, style, start, end, words in spans:
        parts.append(box(left + start * step, y, (end - start) * step - 4, 30, style))
        solid = style in ("left", "right")
        parts.append(text(left + (start + end) * step / 2, y + 20, words, "mid on" if solid else "mid strong"))
    cut, dead = left + 3 * step - 2, left + 7 * step - 2
    parts += [
        text(20, 70, "assignment a", "strong"),
        text(20, 154, "assignment b", "strong"),
        line(f"M{cut} 42V182", "dash"),
        text(cut, 198, "the routing changes", "mid small"),
        line(f"M{dead} 42V182", "dash"),
        text(700, 198, "a is dead: nothing under it can match", "end small"),
    ]
    return parts


def draw_slack() -> list[str]:
    """K-slack: a row leaves once the clock is K beyond it."""
    horizon, clock = 330, 560
    done = [70, 112, 150, 205, 262, 300]
    waiting = [356, 398, 455, 472, 530, clock]
    parts = [line("M40 120H690"), text(690, 142, "event time", "end small")]
    parts += [dot(x, 120, "good") for x in done]
    parts += [dot(x, 120, "left") for x in waiting]
    parts += [
        line(f"M{horizon} 52V160", "dash"),
        line(f"M{clock} 52V160", "dash"),
        text(clock, 44, "clock: the largest trusted time", "mid strong"),
        text(horizon, 178, "clock - K", "mid strong"),
        line(f"M{horizon} 68H{clock}"),
        text((horizon + clock) / 2, 62, "K, learned from the delays", "mid"),
        text(180, 100, "left already, in order", "mid"),
        text(445, 100, "wait: an earlier row may still come", "mid"),
        dot(180, 150, "bad"),
        line("M180 144V124", "line"),
        text(180, 178, "a late row: counted", "mid small"),
    ]
    return parts


def draw_credits() -> list[str]:
    """A buffer under a budget, by the credits of its rows."""
    credits = [3, 7, 5, 9, 1, 4, 8, 2, 6, 5]
    base, left, wide = 180, 200, 40
    parts = [line(f"M{left - 10} {base}H{left + 10 * wide + 6}")]
    for number, credit in enumerate(credits):
        x, height = left + number * wide, credit * 12
        style = "bad" if credit == min(credits) else "left"
        parts.append(box(x, base - height, wide - 8, height, style, 3))
        if number == 3:
            parts += [
                box(x, base - height - 14, wide - 8, 12, "good", 3),
                text(x + 16, base - height - 22, "a match: +1", "mid small"),
            ]
        if credit == min(credits):
            parts.append(text(x + 16, base + 18, "gives way", "mid small"))
    level = base - 4 * 12
    parts += [
        line(f"M{left - 10} {level}H{left + 10 * wide + 6}", "dash"),
        text(20, level - 18, "a newcomer starts", "strong"),
        text(20, level, "at a percentile of the", "small"),
        text(20, level + 16, "credits, tuned while", "small"),
        text(20, level + 32, "the join runs", "small"),
        text(left + 10 * wide + 14, base, "rows kept", "small"),
        text(left, 28, "credit of each row", "strong"),
    ]
    return parts


def draw_partials() -> list[str]:
    """An aggregate after a join begins in the join's workers."""
    parts = []
    counts = (("cell A1", 310, "cell B2", 45), ("cell A1", 290, "cell B2", 61), ("cell A1", 402, "cell B2", 38))
    for number, (first, n, second, m) in enumerate(counts):
        y = 22 + number * 62
        parts += [
            box(24, y, 128, 48, "cell"),
            text(88, y + 29, f"worker {number}", "mid strong"),
            arrow(152, y + 24, 232, y + 24),
            text(192, y + 14, f"{n + m} pairs", "mid small"),
            box(234, y, 150, 48, "leftly"),
            text(246, y + 20, f"{first}: {n}", "strong"),
            text(246, y + 38, f"{second}: {m}", "strong"),
            arrow(384, y + 24, 500, 110),
        ]
    parts += [
        box(502, 84, 190, 54, "goodly"),
        text(514, 106, f"cell A1: {310 + 290 + 402:,}", "strong"),
        text(514, 126, f"cell B2: {45 + 61 + 38}", "strong"),
        text(309, 222, "one partial row a worker, pane and group", "mid small"),
        text(597, 222, "Spark adds them up", "mid small"),
    ]
    return parts


def draw_migration() -> list[str]:
    """A job moves from one peer to another; the topic's log says who may write."""
    parts = [
        text(20, 52, "source", "strong"),
        text(20, 112, "target", "strong"),
        text(20, 172, "topic's log", "strong"),
    ]
    spans = (
        (32, "left", 110, 330, "runs, epoch 3"),
        (92, "rightly", 190, 300, "rehearses"),
        (92, "right", 410, 690, "goes on, epoch 4"),
    )
    for y, style, start, end, words in spans:
        parts.append(box(start, y, end - start, 32, style))
        parts.append(text((start + end) / 2, y + 21, words, "mid strong" if style == "rightly" else "mid on"))
    for number in range(8):
        claim = number == 4
        style = "good" if claim else "left" if number < 4 else "right"
        x = 110 + number * 72
        parts.append(box(x, 154, 66, 28, style, 3))
        parts.append(text(x + 33, 173, "claim 4" if claim else f"batch {number + 7 - (number > 4)}", "mid on small"))
    parts += [
        line("M330 24V146", "dash"),
        text(334, 84, "stops after a batch, releases its lease", "small"),
        text(
            396,
            206,
            "what epoch 3 would write after the claim is refused, whoever is dead, slow or asleep",
            "mid small",
        ),
    ]
    return parts


DRAWINGS: dict[str, tuple[str, int, Callable[[], list[str]]]] = {
    "grid": ("A grid of workers; a left row and a right row meet in one of them", 254, draw_grid),
    "assignments": (
        "Assignments over eight batches: one is stored under, then probed, then dead",
        212,
        draw_assignments,
    ),
    "slack": ("Rows on a line of event time: those before the clock minus K have left in order", 196, draw_slack),
    "credits": ("Bars of the credits of kept rows; the least gives way", 212, draw_credits),
    "partials": ("Workers count their pairs by cell, and their counts are added up", 236, draw_partials),
    "migration": ("A job runs at one peer, then at another; the log has a claim between them", 222, draw_migration),
}


def main() -> None:
    """Write all of them."""
    for name, (label, height, draw) in DRAWINGS.items():
        picture = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">\n'
            f"<style>{STYLE}</style>\n{box(0.5, 0.5, WIDTH - 1, height - 1, 'paper', 12)}\n"
            + "\n".join(draw())
            + "\n</svg>\n"
        )
        (DOCS / "concepts" / f"idea_{name}.svg").write_text(picture)
        print(f"docs/idea_{name}.svg: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
