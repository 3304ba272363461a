"""Warnings of Braided on a peer's driver, as of rows that come too late, become events of the fleet."""

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
        """Pass a warning on; `query` is the name of the job that it is about, where its logger says so."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            job = str(getattr(record, "query", ""))
            self._loop.call_soon_threadsafe(self._note, job, f"{record.levelname.lower()}: {record.getMessage()}")


@contextlib.contextmanager
def warnings_noted(note: Callable[[str, str], object]) -> Iterator[None]:
    """Call a function, on the running loop, with the job and the text of every warning that is logged meanwhile."""
    handler, logger = _Handler(note), logging.getLogger("braided")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
