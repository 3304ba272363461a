"""Runs: immutable blocks of stored rows, sorted by (key hash, time) and searched through a directory.

Sequences of runs are merged as in a log-structured merge tree, but only within a slice of time, so that
rows that expire together are stored together:

```
 time ->   | slice | slice | slice | open slice |
 left      [======][======][======][====][==][]      closed slices: one sequence each
                                                      open slice: sizes halve, so log2(batches) sequences
```

A sequence is sorted as a whole and cut into runs of at most RUN_BYTES; each run knows its span of hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.pair_kernels import (
    Directory,
    Filter,
    Times,
    UInt64s,
    build_filter,
)
from braided.routing.routes import append_tags
from braided.routing.sorting import build_directory, directory_shift, sort_order
from braided.runtime.blocks import BLOCK_BYTES, Stored, parts_of
from braided.runtime.buffer_file import checksum
from braided.runtime.contract import BlockFile

RUN_BYTES = BLOCK_BYTES

Tags = npt.NDArray[np.int32]
Settled = npt.NDArray[np.bool_]


@dataclass
class Run:
    """A decoded run: its rows with their hashes, times and tags, and the directory and filter over the hashes.

    Without tags no row belongs to a grid. `settled` marks rows that cannot be returned without a match any more,
    for joins that must know which rows match nothing (`braided.operators.join.outer_join`).
    """

    rows: pa.RecordBatch
    hashes: UInt64s
    times: Times
    directory: Directory
    filter: Filter
    tags: Tags | None = None
    known_span: tuple[int, int] | None = None
    settled: Settled | None = None
    file: BlockFile | None = None
    """A file that already has exactly these rows."""

    @classmethod
    def of(
        cls, rows: pa.RecordBatch, hashes: UInt64s, times: Times, tags: Tags | None, settled: Settled | None = None
    ) -> Run:
        """Index rows that are sorted by (hash, time)."""
        shift = directory_shift(len(hashes))
        directory, filter_ = build_directory(hashes, shift), build_filter(hashes, shift)
        return cls(rows, hashes, times, directory, filter_, tags, settled=settled)

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last time of its rows. Precondition: there are rows."""
        if self.known_span is None:
            self.known_span = int(self.times.min()), int(self.times.max())
        return self.known_span

    @property
    def shift(self) -> int:
        """The shift from a hash to its directory entry."""
        return 65 - len(self.directory).bit_length()

    def slice(self, start: int, stop: int) -> Run:
        """Return a part of the sorted rows as a separate run."""
        part = slice(start, stop)
        tags = None if self.tags is None else self.tags[part]
        settled = None if self.settled is None else self.settled[part]
        return Run.of(self.rows.slice(start, stop - start), self.hashes[part], self.times[part], tags, settled)

    def take(self, index: npt.NDArray[Any]) -> Run:
        """Return the rows at ascending positions as a separate run."""
        tags = None if self.tags is None else self.tags[index]
        settled = None if self.settled is None else self.settled[index]
        return Run.of(self.rows.take(pa.array(index)), self.hashes[index], self.times[index], tags, settled)


def all_meet(probe: Run, stored: Run, low: int, high: int) -> bool:
    """Whether every stored row is in the window of every probe row, as in most long windows."""
    return stored.span[0] >= probe.span[1] + low and stored.span[1] <= probe.span[0] + high


def sorted_run(
    rows: pa.RecordBatch, hashes: UInt64s, times: Times, tags: Tags | None = None, settled: Settled | None = None
) -> Run:
    """Sort rows into a run; ties keep their order, so the same rows in the same order give the same bytes."""
    shift = directory_shift(len(hashes))
    directory = build_directory(hashes, shift)
    order = sort_order(hashes, times, directory, shift)
    hashes = hashes[order]
    tags = None if tags is None else tags[order]
    settled = None if settled is None else settled[order]
    filter_ = build_filter(hashes, shift)
    return Run(rows.take(pa.array(order)), hashes, times[order], directory, filter_, tags, settled=settled)


def sorted_block(rows: pa.RecordBatch, hashes: UInt64s, times: Times, file: BlockFile) -> Run | None:
    """Return the rows of a router's block as a run; None if they are not in order."""
    before, after = hashes[:-1], hashes[1:]
    if (before > after).any() or ((before == after) & (times[:-1] > times[1:])).any():
        return None
    run = Run.of(rows, hashes, times, None)
    run.file = file
    return run


def merge_runs(runs: Sequence[Run], horizon: int) -> Run:
    """Merge runs into one without the rows older than the horizon."""
    live = [run if not len(run.times) or run.span[0] >= horizon else _unexpired(run, horizon) for run in runs]
    if len(live) == 1:
        return live[0]
    rows = pa.concat_batches([run.rows for run in live])
    tags = settled = None
    if any(run.tags is not None for run in live):
        tags = np.concatenate([np.zeros(len(run.times), np.int32) if run.tags is None else run.tags for run in live])
    if live[0].settled is not None:  # then all have them
        settled = np.concatenate([run.settled for run in live if run.settled is not None])
    hashes, times = (np.concatenate([getattr(run, name) for run in live]) for name in ("hashes", "times"))
    return sorted_run(rows, hashes, times, tags, settled)


def _unexpired(run: Run, horizon: int) -> Run:
    return run.take(np.flatnonzero(run.times >= horizon))


class RunInfo(NamedTuple):
    """The entry of a stored run in the bookkeeping, enough to skip the run without reading it."""

    number: int
    bytes: int
    rows: int
    first_time: int
    last_time: int
    first_hash: int
    last_hash: int
    tagged: bool
    bits: int = -1
    """The block with a bit per row, set if the row is settled; -1 if no row is."""

    def overlaps(self, times: tuple[int, int], hashes: tuple[int, int]) -> bool:
        """Whether rows within these times (first, last) and hashes (first, last) may be in the run."""
        return (
            self.first_time <= times[1]
            and self.last_time >= times[0]
            and self.first_hash <= hashes[1]
            and self.last_hash >= hashes[0]
        )


def encode_runs(run: Run) -> Iterator[tuple[Run, bytes | pa.Buffer, Path | None]]:
    """Cut a sorted run into pieces of at most about RUN_BYTES, each with its stored bytes, and the file that has them.

    A run that is a router's block is not cut: such blocks are smaller.
    """
    if run.file is not None:
        yield run, run.file.content, run.file.path
        return
    for start, stop in parts_of(run.rows, RUN_BYTES):
        piece = run if stop - start == run.rows.num_rows else run.slice(start, stop)
        stored = piece.rows if piece.tags is None else append_tags(piece.rows, piece.tags)
        yield piece, stored.serialize().to_pybytes(), None


def indexes_of(run: Run) -> list[pa.Buffer]:
    """Return the indexes that are derived from a run's rows and stored beside them."""
    return [pa.py_buffer(part) for part in (run.hashes, run.directory, run.filter)]


def kind_of(run: Run) -> str:
    """Return what distinguishes a run's indexes from those of the same rows in a join on another key."""
    return f"{checksum(run.hashes, np.uint64(0)):016x}"


def info_of(run: Run, stored: Stored) -> RunInfo:
    """Return the bookkeeping entry of a stored run."""
    return RunInfo(
        *stored,
        run.rows.num_rows,
        *run.span,
        int(run.hashes[0]),
        int(run.hashes[-1]),
        run.tags is not None,
    )
