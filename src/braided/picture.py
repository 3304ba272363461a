"""A query as a picture: boxes from its sources on the left to its result on the right, written as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

_WIDTH, _GAP_X, _GAP_Y, _LINE, _PAD = 330, 84, 24, 17, 10
_LETTERS = 50
_FILLS = {"braided": "#dcefe3", "spark": "#eeeeee", "source": "#e3e9f7"}


@dataclass(frozen=True)
class Box:
    """One operator of a query: its title, its description, and the boxes that its rows come from."""

    title: str
    kind: Literal["braided", "spark", "source"]
    lines: Sequence[str] = ()
    inputs: Sequence[Box] = ()
    operator: str | None = None
    """The name of the operator in the metrics, for an operator of Braided."""


@dataclass
class _Placed:
    box: Box
    lines: list[str]
    column: int
    y: float = 0.0
    inputs: list[_Placed] = field(default_factory=list)

    @property
    def height(self) -> int:
        return 2 * _PAD + _LINE * (1 + len(self.lines))

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def draw(result: Box) -> str:
    """Return the picture of a query, from the box of its result.

    >>> draw(Box("count", "spark", inputs=[Box("calls", "source")])).count("<rect")
    2
    """
    last = _place(result)
    placed = _all(last)
    _stack(last, {})
    columns = last.column + 1
    width = columns * _WIDTH + (columns - 1) * _GAP_X + 2 * _PAD
    height = max(each.y + each.height for each in placed) + _PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="sans-serif" font-size="12">',
    ]
    parts += [_arrow(source, each) for each in placed for source in each.inputs]
    parts += [_drawn(each) for each in placed]
    return "\n".join([*parts, "</svg>"]) + "\n"


def lay_out(result: Box) -> dict[str, Any]:
    """Return the same picture as plain JSON: boxes with their positions, and arrows as pairs of box numbers.

    >>> lay_out(Box("count", "spark", inputs=[Box("calls", "source")]))["arrows"]
    [[0, 1]]
    """
    last = _place(result)
    placed = _all(last)
    _stack(last, {})
    numbers = {id(each): number for number, each in enumerate(placed)}
    return {
        "boxes": [
            {
                "title": each.box.title, "kind": each.box.kind, "operator": each.box.operator, "lines": each.lines,
                "x": _left(each), "y": round(each.y, 1), "width": _WIDTH, "height": each.height,
            }
            for each in placed
        ],
        "arrows": [[numbers[id(source)], numbers[id(each)]] for each in placed for source in each.inputs],
    }  # fmt: skip


def _place(box: Box) -> _Placed:
    """Give every box a column: the one to the right of its rightmost input."""
    inputs = [_place(each) for each in box.inputs]
    lines = [part for line in box.lines for part in textwrap.wrap(line, _LETTERS, subsequent_indent="  ")]
    return _Placed(box, lines, max((each.column + 1 for each in inputs), default=0), inputs=inputs)


def _all(placed: _Placed) -> list[_Placed]:
    return [*(part for each in placed.inputs for part in _all(each)), placed]


def _stack(placed: _Placed, free: dict[int, float]) -> None:
    """Put a box beside the middle of its inputs, and below the boxes that its column has already."""
    for each in placed.inputs:
        _stack(each, free)
    wanted = 0.0
    if placed.inputs:
        wanted = (placed.inputs[0].middle + placed.inputs[-1].middle - placed.height) / 2
    placed.y = max(wanted, free.get(placed.column, float(_PAD)))
    free[placed.column] = placed.y + placed.height + _GAP_Y


def _left(placed: _Placed) -> int:
    return _PAD + placed.column * (_WIDTH + _GAP_X)


def _drawn(placed: _Placed) -> str:
    x, y = _left(placed), placed.y
    title = escape(textwrap.shorten(placed.box.title, _LETTERS, placeholder=" …"))
    texts = [f'<text x="{x + _PAD}" y="{y + _PAD + 12:.1f}" font-weight="bold">{title}</text>']
    texts += [
        f'<text x="{x + _PAD}" y="{y + _PAD + 12 + _LINE * at:.1f}">{escape(line)}</text>'
        for at, line in enumerate(placed.lines, 1)
    ]
    rect = (
        f'<rect x="{x}" y="{y:.1f}" width="{_WIDTH}" height="{placed.height}" rx="6" fill="{_FILLS[placed.box.kind]}" '
        'stroke="#777777"/>'
    )
    return "\n".join([rect, *texts])


def _arrow(source: _Placed, target: _Placed) -> str:
    x1, y1, x2, y2 = _left(source) + _WIDTH, source.middle, _left(target), target.middle
    middle = (x1 + x2) / 2
    return (
        f'<path d="M{x1} {y1:.1f} C{middle} {y1:.1f} {middle} {y2:.1f} {x2 - 7} {y2:.1f}" fill="none" '
        f'stroke="#777777"/><path d="M{x2 - 8} {y2 - 4:.1f} L{x2} {y2:.1f} L{x2 - 8} {y2 + 4:.1f} z" fill="#777777"/>'
    )
