"""Two pictures as SVG, in a few lines each: the pitch with what was found, and K over time as in Figure 5a."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

COLOURS = {"home": "#1f5fbf", "away": "#c0392b"}


def pitch(passes: Sequence[tuple[str, float, float, float, float]], shots: Sequence[tuple[float, float]]) -> str:
    """Draw passes (team, from x, y, to x, y) as arrows, and shots as circles, in metres from the centre."""
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="-57 -38 114 76" width="912" height="608">',
        '<rect x="-57" y="-38" width="114" height="76" fill="#3c8d40"/>',
        '<g fill="none" stroke="white" stroke-width="0.3">',
        '<rect x="-52.5" y="-34" width="105" height="68"/><path d="M0-34V34"/><circle r="9.15"/>',
        '<rect x="-52.5" y="-20.16" width="16.5" height="40.32"/><rect x="36" y="-20.16" width="16.5" height="40.32"/>',
        '<rect x="-54.5" y="-3.66" width="2" height="7.32"/><rect x="52.5" y="-3.66" width="2" height="7.32"/></g>',
    ]
    for team, colour in COLOURS.items():
        lines.append(
            f'<marker id="{team}" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="5" markerHeight="5" orient="auto">'
            f'<path d="M0 0L6 3L0 6z" fill="{colour}"/></marker>'
        )
    for team, x, y, to_x, to_y in passes:
        lines.append(
            f'<path d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}" stroke="{COLOURS.get(team, "black")}" '
            f'stroke-width="0.35" opacity="0.75" marker-end="url(#{team})"/>'
        )
    lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1" fill="#ffd23f" stroke="black"/>' for x, y in shots]
    return "\n".join([*lines, "</svg>", ""])


def k_over_time(curves: Mapping[str, Sequence[tuple[float, float]]], delays: Sequence[tuple[float, float]]) -> str:
    """Draw K in milliseconds over seconds, one line for each name, above the delays of single rows."""
    width, height, left, top = 900, 360, 60, 30
    points = [point for curve in curves.values() for point in curve] + list(delays)
    last = max(x for x, _ in points)
    most = max(y for _, y in points) * 1.1 + 1

    def at(x: float, y: float) -> str:
        return f"{left + x / last * (width - left - 20):.1f},{top + (1 - y / most) * (height - top - 40):.1f}"

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for tick in np.linspace(0, most / 1.1, 5):
        lines.append(f'<polyline points="{at(0, tick)} {at(last, tick)}" stroke="#dddddd"/>')
        x, y = at(0, tick).split(",")
        lines.append(f'<text x="{float(x) - 8}" y="{float(y) + 4}" text-anchor="end">{tick:.0f} ms</text>')
    for x, y in delays:
        place = at(x, y).split(",")
        lines.append(f'<circle cx="{place[0]}" cy="{place[1]}" r="1.3" fill="#999999" opacity="0.5"/>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = ("#c0392b", "#1f5fbf", "#2e7d32")[number % 3]
        points_ = " ".join(at(x, y) for x, y in curve)
        lines.append(f'<polyline points="{points_}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="{left + 10 + 170 * number}" y="20" fill="{colour}">{name}</text>')
    lines.append(f'<text x="{width - 20}" y="{height - 12}" text-anchor="end">seconds (to {last:.0f})</text>')
    return "\n".join([*lines, "</svg>", ""])
