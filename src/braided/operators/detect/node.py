"""A detector as part of a hierarchy: what it receives, what it publishes, and how it is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from braided.errors import DetectorError
from braided.operators.detect.event_batches import Keys
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json
from braided.time.lateness import Lateness


class Turn(NamedTuple):
    """One run of a detector: the time up to which events were complete before it, and now; the number of its batch."""

    since: int
    until: int
    batch: int


class Memory(Protocol):
    """The state of a detector, between load and save of one batch."""

    def to_json(self) -> list[Json]:
        """Return the bookkeeping."""

    def levels(self) -> dict[str, int]:
        """Return how much is stored, by the names of reports."""


class Tactic(Protocol):
    """How a kind of detector is run."""

    def open(self, node: Node, blocks: Blocks, state: list[Json] | None) -> Memory:
        """Return the state that `to_json` returned."""

    def run(self, node: Node, memory: Memory, events: pa.RecordBatch, turn: Turn) -> Iterator[pa.RecordBatch]:
        """Yield what is published for events in order of time."""


def first_row(rows: pa.RecordBatch) -> str:
    """Return the first row as text; times outside Python's range of dates are numbers."""
    try:
        return str(rows.slice(0, 1).to_pylist()[0] if rows.num_rows else None)
    except (OverflowError, ValueError):
        columns = [c.view(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in rows.slice(0, 1).columns]
        return str({name: column[0].as_py() for name, column in zip(rows.schema.names, columns, strict=True)})


@dataclass(frozen=True)
class Node:
    """One detector of a hierarchy.

    name : its name in messages and reports.
    events : the columns that it receives. schema : those that it publishes, the key and ``at`` included.
    delay : D in microseconds, or how it is learned. forget : after how long without events a key is forgotten.
    """

    name: str
    publishes: str
    subscribes: tuple[str, ...]
    keys: Keys
    events: pa.Schema
    schema: pa.Schema
    delay: int | Lateness
    tactic: Tactic
    forget: int | None = None

    def failed(self, what: str, events: pa.RecordBatch, batch: int, why: BaseException | None = None) -> DetectorError:
        """Return an error with the facts that help to find its cause."""
        error = DetectorError(
            f"detector {self.name!r} {what}; in its batch {batch}, with {events.num_rows} events of which the first is "
            f"{first_row(events)}"
        )
        error.__cause__ = why
        return error
