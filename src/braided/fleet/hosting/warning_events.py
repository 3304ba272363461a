"""Turns warnings of Braided on a peer's driver, such as about late rows, into events of the fleet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator


class _Handler(logging.Handler):
    def __init__(self, note: Callable[[str, str], object]) -> None:
        super().__init__(logging.WARNING)
        self._note = note
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on a warning; `query` is the name of its job, if the logger sets it."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            job = str(getattr(record, "query", ""))
            self._loop.call_soon_threadsafe(self._note, job, f"{record.levelname.lower()}: {record.getMessage()}")


@contextlib.contextmanager
def warnings_noted(note: Callable[[str, str], object]) -> Iterator[None]:
    """Within the block, call a function on the running loop with the job and the text of every logged warning."""
    handler, logger = _Handler(note), logging.getLogger("braided")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
