#!/usr/bin/env python3
"""Lists the benchmarks, or runs one and shows its figures as a table.

    python benchmarks/run.py
    python benchmarks/run.py join -- --quick

A benchmark says how far it is on stderr and prints its figures as lines of JSON on stdout.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FOLDER = Path(__file__).parent


def main(words: Sequence[str] | None = None, folder: Path = FOLDER) -> int:
    """Return the benchmark's exit code; 2 if there is none of that name, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description="Run a benchmark and show its figures as a table, or list them.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one; without it they are listed")
    parser.add_argument("words", nargs="*", metavar="ARGUMENT", help="for the benchmark, after --")
    parser.add_argument("--json", action="store_true", help="the benchmark's own JSON instead of the table")
    arguments = parser.parse_args(words)
    known = find_benchmarks(folder)
    if arguments.name is None:
        print("\n".join(f"{name:<16} {about}" for name, about in known.items()))
        return 0
    if arguments.name not in known:
        print(f"run.py: {arguments.name!r}: no such benchmark; there are {', '.join(known)}", file=sys.stderr)
        return 2
    command = [sys.executable, str(folder / f"{arguments.name}.py"), *arguments.words]
    try:
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    except KeyboardInterrupt:
        print("run.py: stopped", file=sys.stderr)
        return 130
    for line in ran.stdout.splitlines():
        figures = None if arguments.json else _figures(line)
        print(line if figures is None else "\n".join(table_of(figures)))
    return ran.returncode


def find_benchmarks(folder: Path) -> dict[str, str]:
    """Return the scripts that can be run, by name, with the first line of each; the others are shared by them."""
    benchmarks = {}
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "__main__" in source and path.name != "run.py":
            benchmarks[path.stem] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return benchmarks


def table_of(figures: Json, indent: str = "") -> list[str]:
    """Return figures as lines: objects of the same few numbers become a table, the rest is listed.

    >>> print("\\n".join(table_of({"date": "today", "engines": {"a": {"s": 1.25, "rows": 10}, "b": {"s": 2}}})))
    date  today
    engines     s  rows
      a      1.25    10
      b         2
    """
    lines = []
    plain = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    width = max(map(len, plain), default=0)
    lines += [f"{indent}{name:<{width}}  {_cell(value)}" for name, value in plain.items()]
    for name, value in figures.items():
        if not isinstance(value, dict) or not value:
            continue
        if all(isinstance(row, dict) and not any(isinstance(x, dict) for x in row.values()) for row in value.values()):
            lines += _table(indent, name, value)
        else:
            lines += [f"{indent}{name}", *table_of(value, indent + "  ")]
    return lines


def _table(indent: str, name: str, rows: dict[str, Json]) -> list[str]:
    heads = list(dict.fromkeys(head for row in rows.values() for head in row))
    cells = [[indent + name, *heads]]
    cells += [[f"{indent}  {label}", *(_cell(row.get(head, "")) for head in heads)] for label, row in rows.items()]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads) + 1)]
    lines = []
    for label, *row in cells:
        right = [cell.rjust(width) for cell, width in zip(row, widths[1:], strict=True)]
        lines.append("  ".join([label.ljust(widths[0]), *right]).rstrip())
    return lines


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list):
        return " ".join(map(_cell, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _figures(line: str) -> Json | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


if __name__ == "__main__":
    sys.exit(main())
