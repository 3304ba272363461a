"""The output of the demo while it runs: a block redrawn in place on a terminal, else a line per batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TextIO

from braided.cli.demo_run import Run

GOOD, BAD = "1;32", "1;31"
_DECISION = "1;33"
_WORKER_COLORS = ("36", "33", "35", "32")
_BAR = 28
# Only the last few, so that the block fits on a small terminal.
_MOST_DECISIONS = 4
FIGURES = (
    "rows/s: of both streams, read, joined and written as Parquet, by the wall clock",
    "load: rows and results of a worker, over the mean of all workers",
)
"""Explanations of the numbers in a display."""


class Display(Protocol):
    """The output of the demo: permanent lines, and the state of the current run."""

    def begin(self, expected: int) -> None:
        """Prepare to show a run of the expected number of batches."""

    def say(self, label: str, text: str, color: str = "") -> None:
        """Write a permanent line, in an ANSI colour if colours are on."""

    def show(self, run: Run) -> None:
        """Show the progress of the run; called several times per batch."""


def open_display(screen: TextIO, *, origin: int, color: bool) -> Display:
    """Return the display that the screen supports. NO_COLOR and TERM=dumb are respected."""
    color = color and "NO_COLOR" not in os.environ
    terminal = screen.isatty() and os.environ.get("TERM") != "dumb"
    if terminal:
        return LiveDisplay(screen, origin=origin, color=color)
    return LineDisplay(screen, origin=origin)


class LineDisplay:
    """One line per batch and per decision, for files, pipes and CI."""

    def __init__(self, screen: TextIO, *, origin: int) -> None:
        self._screen = screen
        self._origin = origin
        self.begin(0)

    def begin(self, expected: int) -> None:
        self._expected = expected
        self._shown = self._decided = 0

    def say(self, label: str, text: str, color: str = "") -> None:
        print(f"{label:<9} {text}", file=self._screen, flush=True)

    def show(self, run: Run) -> None:
        for number, batch in enumerate(run.batches[self._shown :], self._shown + 1):
            loads = " ".join(f"{worker.load:.2f}" for worker in batch.workers)
            cpu = " + ".join(f"{worker.cpu_ms:,}" for worker in batch.workers)
            self.say(
                "batch",
                f"{number}/{self._expected}  {batch.rows:,} rows  {batch.rate:,.0f} rows/s  {batch.results:,} results  "
                f"load {loads}  state {batch.stored_rows:,} rows, {format_bytes(batch.stored_bytes)}  cpu {cpu} ms  "
                f"clock {format_clock(min(batch.clocks) - self._origin)}  late {batch.late:,}",
            )
        for decision in run.decisions[self._decided :]:
            self.say("adapts", str(decision))
        self._shown, self._decided = len(run.batches), len(run.decisions)


class LiveDisplay:
    """A block of lines on a terminal, redrawn in place."""

    def __init__(self, screen: TextIO, *, origin: int, color: bool) -> None:
        self._screen = screen
        self._origin = origin
        self._color = color
        self.begin(0)

    def begin(self, expected: int) -> None:
        self._expected = expected
        self._drawn = 0

    def say(self, label: str, text: str, color: str = "") -> None:
        """Write a line; the block, if any, stays above it unchanged."""
        self._drawn = 0
        print(self._line(label, self._paint(text, color)), file=self._screen, flush=True)

    def show(self, run: Run) -> None:
        lines = self._block(run)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        self._drawn = len(lines)
        # A line that wraps would count as two and break the redrawing, so wrapping is off meanwhile (DECAWM).
        text = "".join(f"\x1b[2K{line}\n" for line in lines)
        self._screen.write(f"{up}\x1b[?7l{text}\x1b[?7h")
        self._screen.flush()

    def _block(self, run: Run) -> list[str]:
        batches = run.batches
        done = bar(len(batches) / self._expected, _BAR)
        count = f"{len(batches)} of {self._expected}   {run.elapsed:.0f} s"
        lines = [self._line("batch", self._paint(done, "34"), count)]
        if not batches:
            return [*lines, self._line("", "waiting for the first batch: Spark starts its Python workers")]
        last = batches[-1]
        rates = [batch.rate for batch in batches]
        lines += [
            self._line("rows/s", self._paint(f"{sparkline(rates[-_BAR:]):<{_BAR}}", "34"), f"{last.rate:,.0f}"),
            self._line("rows", f"{run.rows:,} in, {last.results:,} joined"),
            self._line("clock", f"{format_clock(min(last.clocks) - self._origin)}, {last.late:,} late rows"),
        ]
        most = max(batch.imbalance for batch in batches)
        for number, worker in enumerate(last.workers):
            filled = self._paint(bar(worker.load / max(most, 1), _BAR), _WORKER_COLORS[number % len(_WORKER_COLORS)])
            state = f"{worker.stored_rows:>9,} rows {format_bytes(worker.stored_bytes):>8} {worker.cpu_ms:>6,} cpu ms"
            lines.append(self._line(f"worker {number}", filled, f"load {worker.load:.2f}", state))
        for decision in run.decisions[-_MOST_DECISIONS:]:
            lines.append(self._line("adapts", self._paint(str(decision), _DECISION)))
        return lines

    def _line(self, label: str, *parts: str) -> str:
        return f"  {self._paint(f'{label:<9}', '2')} {'  '.join(parts)}"

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color and code else text


def bar(share: float, width: int) -> str:
    """Draw a share of a width in eighths of a character.

    >>> bar(0.55, 8)
    '████▍   '
    """
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[rest] * (rest > 0)).ljust(width)


def sparkline(values: Sequence[float]) -> str:
    """Draw numbers as blocks of that height.

    >>> sparkline([1, 4, 8])
    '▁▄█'
    """
    most = max(values, default=0) or 1
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * value / most - 1e-9))] for value in values)


def format_bytes(count: float) -> str:
    """Return a readable number of bytes.

    >>> format_bytes(1_234_567)
    '1.2 MB'
    """
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def format_clock(micros: int) -> str:
    """Return a time since the start of the streams.

    >>> format_clock(83_500_000)
    '1:23.5'
    """
    tenths = max(micros, 0) // 100_000
    return f"{tenths // 600}:{tenths % 600 // 10:02d}.{tenths % 10}"
