"""Tables of Delta and Iceberg as their own libraries read and write them, who know nothing of Braided."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pyarrow as pa


def read_delta(location: str, **options: Any) -> pa.Table:
    """Return all rows."""
    from deltalake import DeltaTable

    return DeltaTable(location, **options).to_pyarrow_table()


class ForeignWriter:
    """Appends one row again and again, in a thread, until its block ends; `done` counts its commits."""

    def __init__(self, append: Callable[[int], None]) -> None:
        self._append = append
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.done = 0
        self.error: BaseException | None = None

    def _run(self) -> None:
        while not self._over.wait(0.05):
            try:
                self._append(self.done)
            except Exception as error:
                if "commit" in str(error).lower():  # the other was first; a writer of this kind tries again
                    continue
                self.error = error
                return
            self.done += 1

    def __enter__(self) -> ForeignWriter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None and self.error is not None:
            raise self.error
