"""The upkeep of a writer in the background: it compacts small files and deletes old ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from braided.errors import TopicError
from braided.storage.topic import Topic

_log = logging.getLogger("braided")

# Enough batches that a compaction is worth its cost, and few enough that a late reader opens at most hundreds of files.
_EVERY = 50


class Rounds:
    """Calls `work` in a background thread after every `every` batches; None does nothing."""

    def __init__(self, name: str, work: Callable[[], object] | None, every: int = _EVERY) -> None:
        self._name = name
        self._work = work
        self._every = every
        self._batches = 0
        self._running: threading.Thread | None = None

    def after_batch(self) -> None:
        """Start a round if it is due and none is running. The batch does not wait for it."""
        if self._work is None:
            return
        self._batches += 1
        if self._batches < self._every or (self._running is not None and self._running.is_alive()):
            return
        self._batches = 0
        self._running = threading.Thread(target=self._round, name="braided-upkeep", daemon=True)
        self._running.start()

    def wait(self) -> None:
        """Return when no round is running."""
        if self._running is not None:
            self._running.join()

    def _round(self) -> None:
        try:
            assert self._work is not None
            self._work()
        except Exception as error:
            # The rows are safe and the query continues; the next round tries again.
            _log.warning("%s: not compacted, the next round tries again: %s", self._name, error)


class Upkeep(Rounds):
    """Compacts a topic, and deletes all but its newest entries."""

    def __init__(self, topic: Topic, *, compact: bool, keep: int | None, every: int = _EVERY) -> None:
        if keep is not None and (type(keep) is not int or keep < 1):
            raise TopicError(
                f"keep={keep!r}: not a number of entries; write how many of the newest to keep, 1 or more; None keeps "
                "all"
            )
        self._topic = topic
        self._compact = compact
        self._keep = keep
        super().__init__(topic.location, self._tidy if compact or keep is not None else None, every)

    def _tidy(self) -> None:
        if self._keep is not None:
            self._topic.retain(self._keep)
        if self._compact:
            self._topic.compact()
