"""`braided bench`: run a benchmark of a clone of the repository, with its progress, and show its figures as a table.

Benchmarks are no part of the package: each is a script in `benchmarks/` that says how far it is on stderr and prints
its figures as lines of JSON on stdout.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from braided.cli.exits import CANNOT_START, STOPPED
from braided.cli.session import note_interrupts
from braided.runtime.contract import Json

_SECOND_CTRL_C = 0.2


def list_benchmarks() -> int:
    """Print the names of the benchmarks, each with the first line of what it says of itself."""
    folder = _folder()
    if folder is None:
        return _no_folder()
    for name, words in _benchmarks(folder).items():
        print(f"{name:<16} {words}")
    return 0


def run_benchmark(name: str, words: Sequence[str], *, as_json: bool) -> int:
    """Run a benchmark to its end; Ctrl-C asks it to stop, a second one ends it at once."""
    folder = _folder()
    if folder is None:
        return _no_folder()
    known = _benchmarks(folder)
    if name not in known:
        print(f"braided bench: {name!r}: no such benchmark; there are {', '.join(known)}", file=sys.stderr)
        return CANNOT_START
    with note_interrupts() as interrupted:
        child = subprocess.Popen(
            [sys.executable, str(folder / f"{name}.py"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        printed: list[str] = []
        assert child.stdout is not None
        assert child.stderr is not None
        readers = [
            threading.Thread(target=printed.extend, args=(child.stdout,)),
            threading.Thread(target=_show_progress, args=(name, child.stderr, child)),
        ]
        for reader in readers:
            reader.start()
        stopped = _wait(child, interrupted)
        for reader in readers:
            reader.join()
    if stopped:
        print("braided bench: stopped", file=sys.stderr)
        return STOPPED
    for line in printed:
        figures = _figures(line)
        print(line.rstrip() if as_json or figures is None else "\n".join(table_of(figures)))
    return child.returncode


def _wait(child: subprocess.Popen[str], interrupted: threading.Event) -> bool:
    """Wait for the end; whether it was ended."""
    asked = False
    while child.poll() is None:
        if interrupted.wait(_SECOND_CTRL_C):
            interrupted.clear()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL if asked else signal.SIGTERM)
            asked = True
    return asked


def _show_progress(name: str, lines: IO[str], child: subprocess.Popen[str]) -> None:
    """Show the last line of progress in place on a terminal, with the time; elsewhere every line."""
    if not sys.stderr.isatty():
        for line in lines:
            print(line.rstrip(), file=sys.stderr, flush=True)
        return
    newest = ["starts"]
    started = time.monotonic()

    def redraw() -> None:
        while child.poll() is None:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
            text = f"{name}, {time.monotonic() - started:.0f} s: {newest[0]}"
            print(f"\r\x1b[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)
            time.sleep(_SECOND_CTRL_C)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    drawing = threading.Thread(target=redraw)
    drawing.start()
    kept: list[str] = []
    for line in lines:
        newest[0] = line.rstrip().rpartition("\r")[2] or newest[0]
        kept = [*kept, line][-20:]
    drawing.join()
    if child.poll():
        print("".join(kept), end="", file=sys.stderr)


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


def _folder() -> Path | None:
    """The benchmarks of the clone that one is in, or that the package is installed from."""
    places = [*_above(Path.cwd()), *_above(Path(__file__).resolve())]
    return next((place / "benchmarks" for place in places if (place / "benchmarks" / "workloads.py").is_file()), None)


def _above(path: Path) -> Iterator[Path]:
    yield path
    yield from path.parents


def _benchmarks(folder: Path) -> dict[str, str]:
    """The scripts that can be run, by name; the others are shared by them."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "__main__" in source:
            found[path.stem] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return found


def _no_folder() -> int:
    print("braided bench: no benchmarks here; they are in a clone of the repository, run it there", file=sys.stderr)
    return CANNOT_START
