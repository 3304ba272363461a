"""The contract of an operator: a deterministic function of its input and state, without Spark.

A router admits rows of one input and chooses each row's worker; a worker makes results and a new state from its state
and the blocks of one batch. Both runtimes, Spark and local, use the same objects.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.routing.routes import Routes
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.storage.topic_progress import Progress
from braided.time.lateness import Lateness
from braided.time.stream_clock import StreamTime

Json = dict[str, Any]

__all__ = [
    "Admitted",
    "Block",
    "BlockFile",
    "Json",
    "Operator",
    "Outcome",
    "StreamTime",
    "TimedStreams",
    "Work",
    "keeps_untimed",
    "stream_labels",
]


def stream_labels(inputs: int) -> tuple[str, ...]:
    """Return the names of an operator's inputs in reports."""
    return ("left", "right") if inputs == 2 else tuple(f"stream {number + 1}" for number in range(inputs))


@dataclass
class Admitted:
    """The rows of a piece of input that the operator needs, their routes, and the time of each."""

    rows: pa.RecordBatch
    routes: Routes
    times: npt.NDArray[np.int64]
    null_keys: int
    hashes: npt.NDArray[np.uint64] | None = None
    """Key hashes, for operators that have keys."""
    shed: int = 0
    """Rows that were dropped at random."""


@dataclass(frozen=True)
class BlockFile:
    """A file with exactly the rows of a block, as sent through the shuffle: the rows, their bytes and its path."""

    rows: pa.RecordBatch
    content: pa.Buffer
    path: Path


@dataclass(frozen=True)
class Block:
    """Rows of one input for one worker: on-time rows, then rows late within their router task, then further copies.

    ```
     [ on time ......... | late ... | copies counted elsewhere ... ]
    ```

    Rows of a block that is not `stored` only probe, and none of them is counted. `tags` has the grid of each row. Rows
    of a block that is not `timed` have no time; only an operator that `keeps_untimed` gets such blocks. If the rows
    were sent through the shuffle in a file, `file` is this file; it does not apply if `rows` was changed since.
    """

    side: int
    rows: pa.RecordBatch
    late: int
    copies: int = 0
    stored: bool = True
    tags: npt.NDArray[np.int32] | None = None
    timed: bool = True
    file: BlockFile | None = None

    @property
    def own_file(self) -> BlockFile | None:
        """The file with exactly the rows of this block, without tags; None if there is none."""
        return self.file if self.file is not None and self.file.rows is self.rows and self.tags is None else None

    @property
    def on_time(self) -> int:
        """The number of leading rows that are counted here and were not late within their task."""
        return self.rows.num_rows - self.late - self.copies if self.stored else 0


@dataclass
class Work:
    """The input of one worker in one batch; the order of blocks is the same in every re-run.

    If `watched`, a controller needs the load in detail. If `final`, this is the last batch. `moment` is when the batch
    ran, in microseconds, the same in every re-run; None if the operator does not need it.
    """

    worker: int
    blocks: Sequence[Block]
    streams: Sequence[StreamTime]
    watched: bool = False
    final: bool = False
    moment: int | None = None


@dataclass
class Outcome:
    """A worker's new state, and the values for its report: counts of this batch, levels after it, and its load."""

    state: Json
    load: Json = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    streams: list[Json] = field(default_factory=list)
    recall: list[list[float]] | None = None
    """The sums for estimating recall, in total and for recent rows, for operators that lose results."""
    progress: Sequence[Progress] | None = None
    """For each input, the progress of the times that results take from it; None if nothing can be promised."""
    detectors: list[Json] | None = None
    """The report of each detector of a hierarchy."""


class TimedStreams(Protocol):
    """Streams with event times, and how late their rows may be."""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """The Arrow schema of each input's rows."""

    @property
    def times(self) -> tuple[str, ...]:
        """The event-time column of each input."""

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """Each input's lateness in microseconds, or how it is learned."""

    @property
    def idle(self) -> int | None:
        """After how many microseconds of silence other inputs do not wait for an input any longer; None means never."""


class Operator(TimedStreams, Protocol):
    """The contract of every stateful operator."""

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the results."""

    @property
    def options(self) -> Json:
        """All options that affect the meaning of stored state, as plain JSON; a checkpoint accepts no others."""

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Choose the rows to keep, and route them. Rows with a null time are not passed."""

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key as text for people."""

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Yield results in pieces of bounded size, write blocks, and return the new state."""


def keeps_untimed(operator: Operator, side: int) -> bool:
    """Whether rows without a time of an input are sent to a worker; for other operators they are dropped.

    An operator that must return such rows, for example a left join, has `untimed`, the numbers of these inputs. It gets
    them in separate blocks, on any worker. In any case they are counted as rows with a null time.
    """
    return side in getattr(operator, "untimed", ())


def stores_by_hash(operator: Operator) -> bool:
    """Whether an operator stores its rows sorted by (key hash, time), so that routers sort large blocks in this order.

    Such an operator has `by_hash`, and returns in `Admitted` the same hashes as in its runs.
    """
    return bool(getattr(operator, "by_hash", False))
