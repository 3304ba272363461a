"""Small faults at random places of a file: a comparison turned, a number off by one, a call left out.

They tell how strong the tests are without anybody's choice of what to break. Some change nothing that can be seen
(a bound that is never reached, a size that only costs time), so what counts is how many are noticed, not all of them.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
# What people read, and what only a type checker reads, is no fault of the algorithm.
_NOT_IN = {"describe", "label", "__repr__"}


@dataclass(frozen=True)
class Site:
    """A piece of text from `start` to `stop`, and what stands there instead."""

    line: int
    start: int
    stop: int
    new: str


def sites(path: Path) -> list[Site]:
    """Return every fault that can be put into a file."""
    text = path.read_text()
    return sorted(_Finder(text).of(ast.parse(text)), key=lambda site: (site.start, site.new))


def draw(folder: Path, files: list[str], count: int, seed: int) -> list[tuple[str, Site]]:
    """Return some faults of some files, every fault equally likely."""
    every = [(name, site) for name in files for site in sites(folder / name)]
    return random.Random(seed).sample(every, min(count, len(every)))


class _Finder:
    def __init__(self, text: str) -> None:
        # ast counts columns in bytes.
        self._text = text.encode()
        self._lines = [0]
        for line in self._text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def of(self, node: ast.AST) -> Iterator[Site]:
        if isinstance(node, ast.FunctionDef) and node.name in _NOT_IN:
            return
        if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom | ast.AnnAssign | ast.JoinedStr):
            return
        yield from self._faults(node)
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.of(child)

    def _faults(self, node: ast.AST) -> Iterator[Site]:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SWAPS:
                yield self._swap(left, right, op)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPS:
                yield self._swap(left, right, op)
            case ast.BoolOp(op=op, values=[first, second, *_]):
                yield self._swap(first, second, op)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield Site(node.lineno, self._at(node)[0], self._at(operand)[0], "")
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                yield Site(node.lineno, *self._at(node), str(value + 1))
            case ast.Constant(value=bool() as value):
                yield Site(node.lineno, *self._at(node), str(not value))
            case ast.Call(func=ast.Name(id=name) as called) if name in _NAMES:
                yield Site(node.lineno, *self._at(called), _NAMES[name])
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield Site(node.lineno, *self._at(node), "pass")
            case ast.Break():
                yield Site(node.lineno, *self._at(node), "continue")

    def _swap(self, left: ast.expr, right: ast.expr, op: ast.AST) -> Site:
        old, new = _SWAPS[type(op)]
        start = self._text.index(old.encode(), self._at(left)[1])
        assert start < self._at(right)[0], "an operator stands between its operands"
        return Site(left.lineno, start, start + len(old), new)

    def _at(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset
