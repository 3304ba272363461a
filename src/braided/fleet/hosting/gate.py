"""The gate that every batch of a query passes: closed, it lets none in, so that the query ends between two batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from braided.errors import PeerError


class Gate:
    """Open until somebody closes it; who closes it can wait for the batch that is inside."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_inside = False
        self.last: int | None = None
        """The last batch that came out whole."""

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Let a batch through; `PeerError` if the gate is closed, which ends the query."""
        with self._changed:
            if self._is_closed:
                raise PeerError(f"batch {number} was not run here: the query is about to stop")
            self._is_inside = True
        try:
            yield
            self.last = number
        finally:
            with self._changed:
                self._is_inside = False
                self._changed.notify_all()

    def close(self, seconds: float = 0.0) -> bool:
        """Let no batch in any more; wait for one that is inside, and return whether none is."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._is_inside, seconds)
