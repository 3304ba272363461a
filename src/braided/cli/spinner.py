"""A text and the elapsed seconds on a terminal during a long step, removed afterwards."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_FIRST, _EVERY = 0.5, 0.2
_TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@contextmanager
def waiting(words: str, screen: TextIO | None = None) -> Iterator[None]:
    """Show `words` and the seconds on a terminal, by default that of stderr, from half a second on; nothing elsewhere.

    Code inside the block must not write to the same terminal.
    """
    screen = sys.stderr if screen is None else screen
    if not screen.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    ended = threading.Event()
    drawing = threading.Thread(target=_draw, args=(words, screen, ended), daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()


def _draw(words: str, screen: TextIO, ended: threading.Event) -> None:
    began, turn = time.monotonic(), 0
    pause = _FIRST
    while not ended.wait(pause):
        pause = _EVERY
        # No wrapping: a text that takes two lines could not be removed.
        screen.write(f"\r\x1b[K\x1b[?7l{_TURNS[turn % len(_TURNS)]} {words}, {time.monotonic() - began:.0f} s\x1b[?7h")
        screen.flush()
        turn += 1
    if turn:
        screen.write("\r\x1b[K")
        screen.flush()
