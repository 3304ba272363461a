"""What an operator is: a deterministic function of its input and state, with no Spark in it.

A router admits rows of one input and names each row's worker; a worker turns its state and the blocks of
one batch into results and a new state. Both runtimes, Spark and local, drive the same objects.
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
from braided.storage.progress import Progress
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
    """Return what reports call the inputs of an operator."""
    return ("left", "right") if inputs == 2 else tuple(f"stream {number + 1}" for number in range(inputs))


@dataclass
class Admitted:
    """The rows of a piece of input that the operator wants, where they go, and the time of each."""

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
    """A file that has some rows and nothing else, as they crossed the shuffle: the rows, their bytes and its path."""

    rows: pa.RecordBatch
    content: pa.Buffer
    path: Path


@dataclass(frozen=True)
class Block:
    """Rows of one input for one worker: counted here, then late within their router task, then further copies.

    ```
     [ on time ......... | late ... | copies counted elsewhere ... ]
    ```

    Rows of a block that is not `stored` only probe, and none of them is counted. `tags` holds each row's grid. Rows of
    a block that is not `timed` have no time: only an operator that `keeps_untimed` gets some. Where the rows crossed
    the shuffle in a file, `file` is that one; of a block with other rows by now it says nothing.
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
        """The file with the rows of this block, just so, and without tags; None where there is none."""
        return self.file if self.file is not None and self.file.rows is self.rows and self.tags is None else None

    @property
    def on_time(self) -> int:
        """How many rows, from the first, are counted here and were not late within their task."""
        return self.rows.num_rows - self.late - self.copies if self.stored else 0


@dataclass
class Work:
    """Everything one worker gets in one batch; blocks are in an order that every re-run repeats.

    Where `watched`, a controller wants to know the load in detail. Where `final`, no batch comes after this one.
    `moment` is when the batch ran, in microseconds, the same for every re-run; None where the operator does not ask.
    """

    worker: int
    blocks: Sequence[Block]
    streams: Sequence[StreamTime]
    watched: bool = False
    final: bool = False
    moment: int | None = None


@dataclass
class Outcome:
    """A worker's new state and what its report says: counts of this batch, levels after it, and its load in detail."""

    state: Json
    load: Json = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    levels: dict[str, int] = field(default_factory=dict)
    streams: list[Json] = field(default_factory=list)
    recall: list[list[float]] | None = None
    """The sums from which recall is estimated, in total and recently, for operators that lose results."""
    progress: Sequence[Progress] | None = None
    """Of the times that results take from each input, how far they have come; None where nothing can be promised."""
    detectors: list[Json] | None = None
    """What a hierarchy of detectors says of each of them."""


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
        """After how many microseconds of silence an input holds the others back no longer; None: never."""


class Operator(TimedStreams, Protocol):
    """The contract of every stateful operator."""

    @property
    def output(self) -> pa.Schema:
        """The Arrow schema of the results."""

    @property
    def options(self) -> Json:
        """Everything that gives stored state its meaning, as plain JSON; a checkpoint accepts no other."""

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Choose the rows to keep and where they go. Rows with a null time are not among them."""

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key as people would write it."""

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Yield results in pieces of bounded size, write blocks, return the new state."""


def keeps_untimed(operator: Operator, side: int) -> bool:
    """Whether the rows of an input that have no time go to a worker, where all operators else have them dropped.

    An operator that must give such rows back, as a left join must, has `untimed`, the numbers of those inputs. It gets
    them in blocks of their own, on any worker; they are counted as rows with a null time in any case.
    """
    return side in getattr(operator, "untimed", ())


def stores_by_hash(operator: Operator) -> bool:
    """Whether an operator stores its rows sorted by (key hash, time): then routers sort large blocks so.

    Such an operator has `by_hash`, and says in `Admitted` the hash of each row as its runs have it.
    """
    return bool(getattr(operator, "by_hash", False))
