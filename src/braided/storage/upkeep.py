"""What a writer has done beside its batches: small files made large, old ones let go."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from braided.errors import TopicError
from braided.storage.topic import Topic

_log = logging.getLogger("braided")

# Enough that a compaction is worth its start, few enough that a reader who comes late opens hundreds of files at most.
_EVERY = 50


class Rounds:
    """Runs something beside the batches, in a thread of its own, after every so many of them; None runs nothing."""

    def __init__(self, name: str, work: Callable[[], object] | None, every: int = _EVERY) -> None:
        self._name = name
        self._work = work
        self._every = every
        self._batches = 0
        self._running: threading.Thread | None = None

    def after_batch(self) -> None:
        """Start a round if it is time for one, and none is under way. The batch does not wait for it."""
        if self._work is None:
            return
        self._batches += 1
        if self._batches < self._every or (self._running is not None and self._running.is_alive()):
            return
        self._batches = 0
        self._running = threading.Thread(target=self._round, name="braided-upkeep", daemon=True)
        self._running.start()

    def wait(self) -> None:
        """Return when no round is under way."""
        if self._running is not None:
            self._running.join()

    def _round(self) -> None:
        try:
            assert self._work is not None
            self._work()
        except Exception as error:
            # The rows are safe and the query goes on; the next round tries again.
            _log.warning("%s: was not compacted: %s", self._name, error)


class Upkeep(Rounds):
    """Compacts a topic, and deletes what is older than its newest entries."""

    def __init__(self, topic: Topic, *, compact: bool, keep: int | None, every: int = _EVERY) -> None:
        if keep is not None and (type(keep) is not int or keep < 1):
            raise TopicError(f"keep={keep!r}: write how many of the newest entries to keep, 1 or more; None keeps all")
        self._topic = topic
        self._compact = compact
        self._keep = keep
        super().__init__(topic.location, self._tidy if compact or keep is not None else None, every)

    def _tidy(self) -> None:
        if self._keep is not None:
            self._topic.retain(self._keep)
        if self._compact:
            self._topic.compact()
