"""`braided papers`: writes the figures of the papers as SVG, and their data as JSON, into a folder."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from braided.cli.exits import FAILED
from braided.errors import OptionError
from braided.sim.figure import draw
from braided.sim.papers import papers


def make_papers(only: str | None, out: Path, *, quick: bool, data: Path | None = None) -> int:
    """Draw the figures of one paper or of all; verdicts go to stdout, progress to stderr."""
    started = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"braided: --out {out}: {error.strerror}; give a writable folder", file=sys.stderr)
        return FAILED
    try:
        every = papers(data)
    except OptionError as error:
        print(f"braided: --data: {error}", file=sys.stderr)
        return FAILED
    for paper, makers in every.items():
        if only not in (None, paper):
            continue
        for maker in makers:

            def tell(what: str, paper: str = paper) -> None:
                print(f"{paper}: {what} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)

            for figure in maker(quick, tell):
                stem = out / figure.figure.slug
                stem.with_suffix(".svg").write_text(draw(figure.figure))
                content = {"paper": paper, "quick": quick, **figure.to_json()}
                stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
                print(f"{paper} Figure {figure.figure.number}: {figure.figure.title}: {stem}.svg")
                for verdict in figure.verdicts:
                    print(f"  {verdict}")
    return 0
