#!/usr/bin/env python3
"""Runs a command in a terminal of its own and draws what happened there as an SVG that plays it, docs/demo_run.svg.

    python scripts/terminal.py braided demo

The last picture stays for a while; where the reader wants no motion it is the only one. What is understood is what the
demo writes: colours, and lines that are redrawn in place. Time is shortened: the run is played in `PLAYED` seconds.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TypeAlias

TARGET = Path(__file__).parent.parent / "docs" / "demo_run.svg"
COLUMNS, ROWS = 104, 28
PLAYED, HELD = 12.0, 8.0
MOST_FRAMES = 24
LINE, ADVANCE, LEFT, TOP = 17, 7.8, 16, 44
STYLE = """
text { font: 13px/1 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; fill: #d5dee7;
  white-space: pre }
.dim { fill: #7f90a1 } .c31 { fill: #ff8a8a } .c32 { fill: #5fd38a } .c33 { fill: #f2b35e } .c34 { fill: #6ea8ff }
.c35 { fill: #c9a2ff } .c36 { fill: #4cc9d8 } .bold { font-weight: 600 } .title { fill: #7f90a1 }
"""
Shown: TypeAlias = "tuple[tuple[tuple[str, str], ...], ...]"
"""The lines of a terminal, each of pieces of text with a style."""
_CODE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])")
_COLORS = {"31", "32", "33", "34", "35", "36"}


@dataclass
class Screen:
    """Lines of (text, style) pieces, and where the next text goes."""

    lines: list[list[tuple[str, str]]] = field(default_factory=lambda: [[]])
    at: int = 0
    style: str = ""

    def write(self, text: str) -> None:
        """Take some output."""
        while text:
            code = _CODE.match(text)
            if code:
                self._obey(code[1], code[2])
                text = text[code.end() :]
            elif text[0] == "\n":
                self.at += 1
                if self.at == len(self.lines):
                    self.lines.append([])
                text = text[1:]
            else:
                plain = re.match(r"[^\x1b\n]*", text)
                assert plain is not None
                piece = plain[0].replace("\r", "")
                if piece:
                    self.lines[self.at].append((piece, self.style))
                text = text[max(1, plain.end()) :]

    def _obey(self, numbers: str, letter: str) -> None:
        if letter == "A":
            self.at = max(0, self.at - int(numbers or 1))
        elif letter == "K":
            self.lines[self.at] = []
        elif letter == "m":
            parts = set(numbers.split(";"))
            names = {"1": "bold", "2": "dim", **{color: f"c{color}" for color in _COLORS}}
            self.style = " ".join(names[part] for part in sorted(parts & names.keys()))

    def shown(self) -> Shown:
        """Return the last lines, as many as the terminal has."""
        lines = self.lines[:-1] if not self.lines[-1] else self.lines
        return tuple(tuple(line) for line in lines[-ROWS:])


def record(command: list[str]) -> list[tuple[float, str]]:
    """Run a command in a terminal and return its output with the seconds at which it came."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began, found, rest = time.monotonic(), [], b""
    while True:
        try:
            content = os.read(terminal, 1 << 16)
        except OSError:  # Linux says so when the other side is closed
            content = b""
        if not content:
            break
        # What is cut within a letter or a code waits for the rest.
        whole = re.match(rb"(?s).*\n", rest + content)
        ready, rest = (whole[0], (rest + content)[whole.end() :]) if whole else (b"", rest + content)
        found.append((time.monotonic() - began, ready.decode()))
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{command[0]}: ended with {os.waitstatus_to_exitcode(status)}\n{''.join(text for _, text in found)}")
    return found


def frames_of(output: list[tuple[float, str]]) -> list[tuple[float, Shown]]:
    """Return what the screen showed, and from when on, at most `MOST_FRAMES` times."""
    screen = Screen()
    every = output[-1][0] / MOST_FRAMES
    frames: list[tuple[float, Shown]] = []
    for moment, text in output:
        screen.write(text)
        if frames and moment < frames[-1][0] + every:
            frames[-1] = (frames[-1][0], screen.shown())
        else:
            frames.append((moment, screen.shown()))
    return frames


def draw(title: str, frames: list[tuple[float, Shown]]) -> str:
    """Return the pictures as one SVG, each shown in its time."""
    width, height = round(2 * LEFT + COLUMNS * ADVANCE), TOP + ROWS * LINE + 8
    end = frames[-1][0]
    total = PLAYED + HELD
    rules, groups = [], []
    for number, (moment, lines) in enumerate(frames):
        start = 100 * PLAYED / total * moment / end if number else 0.0
        stop = 100 * PLAYED / total * frames[number + 1][0] / end if number + 1 < len(frames) else 100.0
        off = "" if number + 1 == len(frames) else f" {stop:.2f}% {{ opacity: 0 }}"
        rules.append(f"@keyframes f{number} {{ 0% {{ opacity: 0 }} {start:.2f}% {{ opacity: 1 }}{off} }}")
        rules.append(f".f{number} {{ animation: f{number} {total}s step-end infinite; opacity: {int(not off)} }}")
        texts = [draw_line(line, TOP + LINE * (row + 1)) for row, line in enumerate(lines) if line]
        groups.append(f'<g class="f{number}">\n' + "\n".join(texts) + "\n</g>")
    calm = "@media (prefers-reduced-motion: reduce) { g { animation: none !important } }"
    dots = "".join(f'<circle cx="{20 + 18 * i}" cy="18" r="5.5" fill="#3a4958"/>' for i in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)} in a terminal">\n'
        f"<style>{STYLE}{' '.join(rules)}\n{calm}</style>\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="#17202a"/>{dots}\n'
        f'<text class="title" x="{width / 2:g}" y="22" text-anchor="middle">$ {escape(title)}</text>\n'
        + "\n".join(groups)
        + "\n</svg>\n"
    )


def draw_line(pieces: tuple[tuple[str, str], ...], y: int) -> str:
    """Return a line of the screen; what is beyond its edge is cut, as a terminal does."""
    column, spans = 0, []
    for text, style in pieces:
        shown = text[: max(0, COLUMNS - column)]
        if shown.strip():
            # Letters of another width than ours would move what follows: every piece has its place.
            spans.append(f'<tspan class="{style}" x="{LEFT + column * ADVANCE:g}">{escape(shown)}</tspan>')
        column += len(text)
    return f'<text y="{y}" xml:space="preserve">{"".join(spans)}</text>'


def main() -> None:
    """Record and draw."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    picture = draw(" ".join(sys.argv[1:]), frames_of(record(sys.argv[1:])))
    TARGET.write_text(picture)
    print(f"{TARGET}: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
