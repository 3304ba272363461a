"""Rows that wait for their turn: runs sorted by (time, input, content) in the worker's store, left from the front.

```
 run 1   ..released..|######
 run 2        ..released..|##########        release(until): every run gives its rows before `until`,
 run 3                        ##########     and they are merged; a run is written once, or when many are merged
```
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError
from braided.operator.store import Store
from braided.routing.content import row_hashes
from braided.time.quarantine import Gone

Times = npt.NDArray[np.int64]
INPUT = "__braided_input"
_RUN_BYTES = 16 << 20
# Rows are merged and sent on in pieces of about this many.
_PIECE_ROWS = 1 << 18
# So many runs of one size class (a factor of eight) are merged into one.
_FANOUT = 8


@dataclass
class WaitingRun:
    """A stored run: its block, how many rows it has and how many have left, and its times.

    Of doubted rows `since` says how far their stream had gone on when they came.
    """

    block: int
    digest: str
    bytes: int
    rows: int
    left: int
    first: int
    last: int
    since: Gone

    @property
    def waiting(self) -> int:
        """How many rows are still here."""
        return self.rows - self.left


def in_order(rows: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
    """Return rows by (time, input, content), and their times. Content is hashed only where time and input tie.

    Nested columns are not part of the content; rows that differ only there stay as they came.
    """
    order = np.argsort(times, kind="stable") if (times[1:] < times[:-1]).any() else None
    ordered = times if order is None else times[order]
    tied = np.zeros(len(times), np.bool_)
    tied[1:] = ordered[1:] == ordered[:-1]
    tied[:-1] |= tied[1:]
    at = np.flatnonzero(tied)
    if len(at):
        order = np.arange(len(times)) if order is None else order
        among = rows.take(pa.array(order[at]))
        inputs = among.column(INPUT).to_numpy() if INPUT in among.schema.names else np.zeros(len(at), np.int8)
        order[at] = order[at][np.lexsort((row_hashes(among), inputs, ordered[at]))]
    return (rows if order is None else rows.take(pa.array(order))), ordered


class Waiting:
    """The runs of one worker between load and save of one batch."""

    def __init__(self, schema: pa.Schema, time: str, store: Store, state: list[list[Any]], next_block: int) -> None:
        self._schema, self._time, self._store = schema, time, store
        self.runs = [WaitingRun(*run) for run in state]
        for run in self.runs:
            run.since = Gone(*run.since)
        self.next_block = next_block

    def to_json(self) -> list[list[Any]]:
        """Return the bookkeeping."""
        return [list(vars(run).values()) for run in self.runs]

    def times(self, rows: pa.RecordBatch) -> Times:
        """Return the times of rows."""
        times: Times = rows.column(self._time).view(pa.int64()).to_numpy()
        return times

    def release(self, fresh: list[pa.RecordBatch], until: int) -> Iterator[pa.RecordBatch]:
        """Yield, in order and in pieces, all rows before `until`; store those of the fresh runs that wait on.

        Precondition: each fresh run is in order.
        """
        heads: list[tuple[pa.RecordBatch, Times]] = []
        for run in self.runs:
            if run.first < until:
                rows = self._load(run)
                times = self.times(rows)
                stop = int(np.searchsorted(times, until))
                heads.append((rows.slice(run.left, stop - run.left), times[run.left : stop]))
                run.left = stop
                run.first = int(times[stop]) if stop < run.rows else run.last
        for rows in fresh:
            times = self.times(rows)
            stop = int(np.searchsorted(times, until))
            heads.append((rows.slice(0, stop), times[:stop]))
            self.store(rows.slice(stop), Gone())
        yield from _merge([head for head in heads if len(head[1])])
        for run in [run for run in self.runs if not run.waiting]:
            self._delete(run)
        self.compact()

    def store(self, rows: pa.RecordBatch, since: Gone) -> None:
        """Write rows that are in order as runs."""
        pieces = max(1, -(-rows.nbytes // _RUN_BYTES))
        step = max(1, -(-rows.num_rows // pieces))
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            content = part.serialize().to_pybytes()
            digest = hashlib.sha256(content).hexdigest()[:32]
            times = self.times(part)
            self._store.put(self.next_block, content)
            self._store.cache.put(digest, [pa.py_buffer(content)])
            self.runs.append(
                WaitingRun(self.next_block, digest, len(content), len(times), 0, int(times[0]), int(times[-1]), since)
            )
            self.next_block += 1

    def take(self, run: WaitingRun) -> pa.RecordBatch:
        """Return the waiting rows of a run and forget it."""
        rows = self._load(run).slice(run.left)
        self._delete(run)
        return rows

    def compact(self) -> None:
        """Merge small runs, so that their number stays logarithmic in how many batches wait."""
        classes: dict[int, list[WaitingRun]] = {}
        for run in self.runs:
            classes.setdefault(max(1, run.waiting).bit_length() // 3, []).append(run)
        for runs in classes.values():
            if len(runs) >= _FANOUT and sum(run.bytes for run in runs) <= _RUN_BYTES:
                together = pa.concat_batches([self.take(run) for run in runs])
                self.store(in_order(together, self.times(together))[0], max(run.since for run in runs))

    def _load(self, run: WaitingRun) -> pa.RecordBatch:
        buffers = self._store.cache.get(run.digest)
        content = self._store.get(run.block) if buffers is None else buffers[0]
        if buffers is None:
            if hashlib.sha256(content).hexdigest()[:32] != run.digest:
                raise BraidedError(f"stored run {run.block} is damaged; restore the checkpoint from a copy")
            self._store.cache.put(run.digest, [pa.py_buffer(content)])
        return pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)

    def _delete(self, run: WaitingRun) -> None:
        self._store.delete(run.block)
        self._store.cache.drop(run.digest)
        self.runs.remove(run)


def _merge(heads: list[tuple[pa.RecordBatch, Times]]) -> Iterator[pa.RecordBatch]:
    """Merge runs piece by piece: cut all of them at the same times, sort each piece."""
    for cut in _cuts([times for _, times in heads]):
        parts, times = [], []
        for at, (rows, moments) in enumerate(heads):
            stop = int(np.searchsorted(moments, cut, side="right"))
            if stop:
                parts.append(rows.slice(0, stop))
                times.append(moments[:stop])
                heads[at] = rows.slice(stop), moments[stop:]
        if len(parts) == 1:
            yield parts[0]
        elif parts:
            yield in_order(pa.concat_batches(parts), np.concatenate(times))[0]


def _cuts(times: Iterable[Times]) -> Iterator[int]:
    """Yield times, ascending, with about a piece of rows up to each from the one before; the last covers all."""
    moments = list(times)
    if not moments:
        return
    total = sum(map(len, moments))
    if total > _PIECE_ROWS:
        everything = np.sort(np.concatenate(moments), kind="stable")
        yield from np.unique(everything[_PIECE_ROWS - 1 : -1 : _PIECE_ROWS]).tolist()
    yield max(int(moment[-1]) for moment in moments)
