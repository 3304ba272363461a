"""Bounded memory: every figure of the GreedyDual-Join paper's evaluation (3 to 10), as a plot and a table.

    python benchmarks/gdj.py                      all of it, under 20 minutes on one core
    python benchmarks/gdj.py --quick              about a minute; its curves are rough
    python benchmarks/gdj.py --only 4 sets        some figures; `sets` is the table of all policies on all data sets
    python benchmarks/gdj.py --data DIR           where trades_*.parquet and weather_*.parquet are; without: synthetic

Plots (gdj_*.svg) and tables (gdj_tables.md) go to --out, progress to stderr, and one JSON line a figure to stdout. All
of it depends on the data and on seeds alone, except for the speeds in the table of data sets.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from braided.sim.figure import draw, table
from braided.sim.gdj.attributes import several_attributes, two_attributes
from braided.sim.gdj.evaluation import FIGURES, Setting
from braided.sim.gdj.sets import compare_sets, kernel_speed, sets_table

HERE = Path(__file__).resolve().parent
FIGURES.update({"7b": several_attributes, "8b": two_attributes})


def main() -> int:
    options = _options()
    where = options.data if (options.data / "trades_2024-07-16.parquet").exists() else None
    names = options.only or [*sorted(FIGURES), "sets", "speed"]
    started = time.monotonic()
    tables = [
        f"# Bounded memory: the tables behind [the figures](gdj.md)\n\nMade by `benchmarks/gdj.py`, {_today()}.\n"
    ]
    for number, name in enumerate(names):
        place = f"[{number + 1}/{len(names)}] {name}"

        def tell(what: str, place: str = place) -> None:
            print(f"\r\033[K{place}: {what} ({time.monotonic() - started:.0f} s)", end="", file=sys.stderr, flush=True)

        setting = Setting(where, options.quick, tell)
        line, text = _make(name, setting, options.out)
        print(
            json.dumps({"benchmark": "gdj", "quick": options.quick, "real_data": where is not None, **line}), flush=True
        )
        tables.append(text)
    print(file=sys.stderr)
    if options.out and not options.only:
        (options.out / "gdj_tables.md").write_text("\n".join(tables))
    return 0


def _make(name: str, setting: Setting, out: Path | None) -> tuple[dict[str, Any], str]:
    if name == "sets":
        rows = compare_sets(setting)
        return {"figure": "sets", "sets": rows}, sets_table(rows)
    if name == "speed":
        speeds = kernel_speed(setting)
        told = ", ".join(f"{name} {speed / 1e6:.2f}" for name, speed in speeds["rows_a_second"].items())
        return {"figure": "speed", **speeds}, f"## The kernel, million rows a second of processor time\n\n{told}.\n"
    figure = FIGURES[name](setting)
    if out:
        (out / f"gdj_{figure.slug}.svg").write_text(draw(figure))
    return {"figure": figure.number, "title": figure.title, "panels": [asdict(p) for p in figure.panels]}, table(figure)


def _today() -> str:
    return datetime.date.today().isoformat()


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*FIGURES, "sets", "speed"], metavar="FIGURE")
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--out", type=Path, default=None, help="a directory for plots and tables, such as docs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
