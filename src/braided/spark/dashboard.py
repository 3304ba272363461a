"""`braided.dashboard`: the page of a session's queries, served from its driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from braided.errors import OptionError
from braided.runtime.contract import Json
from braided.spark.catalyst import is_classic
from braided.spark.sessions import is_connect
from braided.spark.watching import Watch
from braided.ui.dashboard_page import whole_page
from braided.ui.history import History
from braided.ui.history_files import HistoryWriter
from braided.ui.history_summary import summarize, write_text
from braided.ui.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Closes(Protocol):
    """Something that runs until it is closed."""

    def close(self) -> None:
        """End it."""


Beside: TypeAlias = Callable[[Callable[[Json], None]], Closes]
"""Starts something that adds its own events to a page."""


class Dashboard:
    """A page that is served until `close`; it outlives the queries, and the session too. `url` is its address."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        host: str,
        port: int,
        token: str | None,
        redact: bool,
        history: str | os.PathLike[str] | None,
        beside: Beside | None = None,
    ) -> None:
        if not is_classic(spark) and not is_connect(spark):
            raise OptionError(f"spark={type(spark).__name__}: give a SparkSession")
        self._history = History()
        self._writer = None if history is None else HistoryWriter(Path(history))
        self._server = Server(self._history, host=host, port=port, token=token)
        self.url = self._server.url
        self._watch = Watch(spark, self._add, redact=redact)
        self._watch.begin()
        self._beside = None if beside is None else beside(self._add)

    def _add(self, event: Json) -> None:
        self._history.add(event)
        if self._writer is not None:
            self._writer.add(event)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what the page shows now into one HTML file, which loads nothing else."""
        events = self._history.events()
        Path(path).write_text(whole_page(events, write_text(summarize(events))), encoding="utf-8")

    def close(self) -> None:
        """Stop serving the page; the queries go on."""
        if self._beside is not None:
            self._beside.close()
        self._watch.end()
        self._server.close()
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"dashboard at {self.url}"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}" target="_blank" rel="noopener">braided dashboard</a>'
