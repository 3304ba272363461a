"""A join's state: which runs of each stream are stored, how they are merged, what expires."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError
from braided.join.runs import Run, RunInfo, describe, digest_of, encode_runs, merge_runs
from braided.order.clocks import MAX_TIME
from braided.routing.routes import split_tags, tagged_schema
from braided.runtime.operator import Json
from braided.runtime.store import Store

# A slice is a sixth of the time a row stays, so that at most about a sixth of what is kept can be
# expired rows waiting for their slice; a sixteenth of the span bounds the cuts of one batch.
_SLICES = 6
_MOST_CUTS = 16
# So many sequences of one size class are merged into one of the next; a class spans a factor of this too. With
# filters a look-up in another sequence is cheap, so that four beats two: half the rewriting.
_FANOUT = 4
# A closed slice is merged into one, but not again for stragglers of less than a sixteenth.
_CLOSED_RATIO = 16
# Sequences beyond this size are not merged further: merging holds them in memory.
_MERGE_BYTES = 64 << 20

Sequence_ = list[RunInfo]


class StoredWindow(Protocol):
    """What is asked of a time condition: `Window` of two streams, `Span` of many."""

    @property
    def lateness(self) -> tuple[int, ...]:
        """Each stream's lateness."""

    def meets(self, side: int) -> tuple[int, int]:
        """Return how far from a probe's time stored rows of this side may be."""

    def retention(self, side: int) -> int:
        """Return how far behind other clocks a stored row of this side may be."""

    def horizon(self, side: int, clocks: tuple[int | None, ...]) -> int:
        """Return the oldest time at which a stored row of this side can still match."""


class StoredStreams(Protocol):
    """What is asked of an operator whose rows are stored."""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """The schema of each stream's stored rows."""

    @property
    def window(self) -> StoredWindow:
        """The time condition."""

    def times_of(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the event time of each row."""

    def hashes(
        self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.uint64]:
        """Return the key hash of each row."""


class JoinState:
    """The stored runs of all streams and the clocks, between load and save of one batch."""

    def __init__(self, join: StoredStreams, store: Store) -> None:
        self._join = join
        self._store = store
        self._next = 0
        self.clocks: tuple[int | None, ...] = (None,) * len(join.inputs)
        self.sides: list[list[Sequence_]] = [[] for _ in join.inputs]

    @classmethod
    def restore(cls, join: StoredStreams, state: Json | None, store: Store) -> JoinState:
        """Read the state as `to_json` left it."""
        self = cls(join, store)
        if state is not None:
            self._next = state["next"]
            self.clocks = tuple(state["clocks"])
            self.sides = [[[RunInfo(*info) for info in sequence] for sequence in side] for side in state["sides"]]
        return self

    def to_json(self) -> Json:
        """Return the bookkeeping: small, whatever the state's size."""
        return {
            "next": self._next,
            "clocks": list(self.clocks),
            "sides": self.sides,
        }

    def levels(self) -> dict[str, int]:
        """Return how much is stored."""
        infos = [info for side in range(len(self.sides)) for info in self.infos(side)]
        return {
            "stored_rows": sum(info.rows for info in infos),
            "stored_bytes": sum(info.bytes for info in infos),
            "runs": len(infos),
        }

    def runs_for(self, probe: Run, side: int) -> Iterator[Run]:
        """Yield the stored runs of one side that rows of the other side could match, one at a time."""
        if not len(probe.times):
            return
        low, high = self._join.window.meets(side)
        times = int(probe.times.min()) + low, int(probe.times.max()) + high
        for info in self.infos(side):
            if info.overlaps(times, (int(probe.hashes[0]), int(probe.hashes[-1]))):
                yield self.load(side, info)

    def infos(self, side: int) -> list[RunInfo]:
        """Return what is known of the stored runs of one side."""
        return [info for sequence in self.sides[side] for info in sequence]

    def absorb(self, side: int, new: Sequence[Run]) -> None:
        """Store the new rows that can still match, drop what has expired, merge what belongs together."""
        horizon = self._join.window.horizon(side, self.clocks)
        kept: list[Sequence_] = []
        for sequence in self.sides[side]:
            for info in sequence:
                if info.last_time < horizon:
                    self._delete(info)
            live = [info for info in sequence if info.last_time >= horizon]
            if live:
                kept.append(live)
        fresh = [run for piece in new for run in self._slices(side, merge_runs([piece], horizon))]
        self.sides[side] = self._merge(side, kept, fresh, horizon)
        self._compact(side, horizon)

    def _width(self, side: int, span: int) -> int:
        return max(self._join.window.retention(side) // _SLICES, span // _MOST_CUTS, 1)

    def _slices(self, side: int, run: Run) -> Iterator[Run]:
        """Cut new rows at slice borders; a few stragglers of an older slice stay with the next."""
        if not len(run.times):
            return
        first, last = int(run.times.min()), int(run.times.max())
        width = self._width(side, last - first)
        if first // width == last // width:
            yield run
            return
        slices = run.times // width
        present, counts = np.unique(slices, return_counts=True)
        threshold = len(run.times) // _SLICES
        bounds, waiting = [], 0
        for number, count in zip(present.tolist(), counts.tolist(), strict=True):
            waiting += count
            if waiting > threshold:
                bounds.append(number)
                waiting = 0
        if waiting and bounds:
            bounds[-1] = int(present[-1])
        low = int(present[0])
        for high in bounds or [int(present[-1])]:
            yield run.take(np.flatnonzero((slices >= low) & (slices <= high)))
            low = high + 1

    def _merge(self, side: int, kept: list[Sequence_], fresh: list[Run], horizon: int) -> list[Sequence_]:
        """Merge sequences of one slice and size class, and all of a slice into one once it is closed."""
        groups: dict[int, list[Sequence_ | Run]] = {}
        times = [(min(i.first_time for i in s), max(i.last_time for i in s)) for s in kept]
        times += [(int(run.times.min()), int(run.times.max())) for run in fresh]
        span = max((last for _, last in times), default=0) - horizon
        # The horizon is MIN_TIME until the other stream has a clock; then only the retention counts.
        width = self._width(side, 0 if span > MAX_TIME // 2 else span)
        items: list[Sequence_ | Run] = [*kept, *fresh]
        for (_, last), item in zip(times, items, strict=True):
            groups.setdefault(last // width, []).append(item)
        clock = self.clocks[side]
        late = self._join.window.lateness[side]
        merged: list[Sequence_] = []
        for number in sorted(groups):
            closed = clock is not None and (number + 1) * width <= clock - late
            merged += self._merge_slice(side, groups[number], closed, horizon)
        return merged

    def _merge_slice(self, side: int, items: list[Sequence_ | Run], closed: bool, horizon: int) -> list[Sequence_]:
        ordered = sorted(items, key=_rows, reverse=True)
        if closed and sum(map(_rows, ordered[1:])) * _CLOSED_RATIO >= _rows(ordered[0]) and _fits(ordered):
            groups = [ordered]
        else:
            groups = _size_classes(ordered)
        out: list[Sequence_] = []
        for group in groups:
            if len(group) == 1 and isinstance(group[0], list):
                out.append(group[0])
                continue
            runs = []
            for item in group:
                if isinstance(item, list):
                    runs += [self.load(side, info) for info in item]
                else:
                    runs.append(item)
            written = self._write(merge_runs(runs, horizon))
            for item in group:
                if isinstance(item, list):
                    for info in item:
                        self._delete(info)
            if written:
                out.append(written)
        return out

    def _compact(self, side: int, horizon: int) -> None:
        """Rewrite runs that straddle the horizon once expired rows exceed a quarter of the live ones."""
        infos = self.infos(side)
        total = sum(info.rows for info in infos)
        straddling = sum(info.rows for info in infos if info.first_time < horizon)
        if straddling * 4 <= total - straddling:
            return
        expired: dict[int, int] = {}
        for sequence in self.sides[side]:
            for info in sequence:
                if info.first_time < horizon:
                    expired[info.id] = int(np.count_nonzero(self.load(side, info).times < horizon))
        dead = sum(expired.values())
        if dead * 4 <= total - dead:
            return
        rewritten: list[Sequence_] = []
        for sequence in self.sides[side]:
            infos = []
            for info in sequence:
                if expired.get(info.id):
                    infos += self._write(merge_runs([self.load(side, info)], horizon))
                    self._delete(info)
                else:
                    infos.append(info)
            if infos:
                rewritten.append(infos)
        self.sides[side] = rewritten

    def _write(self, run: Run) -> Sequence_:
        infos = []
        for piece, content in encode_runs(run):
            info = describe(piece, content, self._next)
            self._next += 1
            self._store.put(info.id, content)
            self._store.cache.put(info.digest, _buffers(content, piece))
            infos.append(info)
        return infos

    def _delete(self, info: RunInfo) -> None:
        self._store.delete(info.id)
        self._store.cache.drop(info.digest)

    def load(self, side: int, info: RunInfo) -> Run:
        """Return a stored run, from the host's cache or else from the state store."""
        schema = self._join.inputs[side]
        buffers = self._store.cache.get(info.digest)
        content = self._store.get(info.id) if buffers is None else buffers[0]
        if buffers is None and digest_of(content) != info.digest:
            raise BraidedError(f"stored run {info.id} is damaged; restore the checkpoint from a copy")
        tags = None
        rows = pa.ipc.read_record_batch(pa.py_buffer(content), tagged_schema(schema) if info.tagged else schema)
        if info.tagged:
            rows, tags = split_tags(rows)
        times = self._join.times_of(side, rows)
        if buffers is None:
            run = Run.of(rows, self._join.hashes(side, rows, tags), times, tags)
            self._store.cache.put(info.digest, _buffers(content, run))
        else:
            index = zip(buffers[1:], (np.uint64, np.int32, np.uint8), strict=True)
            hashes, directory, filter_ = (np.frombuffer(buffer, kind) for buffer, kind in index)
            run = Run(rows, hashes, times, directory, filter_, tags)
        return run


def _buffers(content: bytes, run: Run) -> list[pa.Buffer]:
    return [pa.py_buffer(content), *map(pa.py_buffer, (run.hashes, run.directory, run.filter))]


def _size_classes(items: list[Sequence_ | Run]) -> list[list[Sequence_ | Run]]:
    """Group items to merge: _FANOUT of a size class become one, which may complete the next class."""
    classes: dict[int, list[list[Sequence_ | Run]]] = {}
    for item in items:
        classes.setdefault(_size_class([item]), []).append([item])
    for number in range(max(classes, default=0) + _FANOUT):
        groups = classes.get(number, [])
        together = [item for group in groups for item in group]
        if len(groups) >= _FANOUT and _fits(together):
            del classes[number]
            # The sum of four may still be of the same class.
            classes.setdefault(max(number + 1, _size_class(together)), []).append(together)
    return [group for number in sorted(classes, reverse=True) for group in classes[number]]


def _size_class(items: list[Sequence_ | Run]) -> int:
    return int(math.log(max(1, sum(map(_rows, items))), _FANOUT))


def _fits(items: list[Sequence_ | Run]) -> bool:
    return sum(map(_bytes, items)) <= _MERGE_BYTES


def _rows(item: Sequence_ | Run) -> int:
    return sum(info.rows for info in item) if isinstance(item, list) else len(item.times)


def _bytes(item: Sequence_ | Run) -> int:
    return sum(info.bytes for info in item) if isinstance(item, list) else int(item.rows.nbytes)
