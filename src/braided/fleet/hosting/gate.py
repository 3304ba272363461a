"""The gate that every batch of a query passes: once it is closed, no batch starts, and the query ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from braided.errors import PeerError


class Gate:
    """A gate that is open until it is closed; closing can wait for the current batch."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_inside = False
        self.last: int | None = None
        """The last batch that ended without an error."""

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Run a batch inside the gate; `PeerError` if the gate is closed, which ends the query."""
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
        """Let no further batch start; wait for the current one, and return whether it has ended."""
        with self._changed:
            self._is_closed = True
            return self._changed.wait_for(lambda: not self._is_inside, seconds)
