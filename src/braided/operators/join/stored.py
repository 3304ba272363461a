"""A join's state: which runs of each stream are stored, how they are merged, and when rows expire.

Rows whose time is doubted (`braided.time.quarantine`) are stored apart. They are joined like all others. They are
removed when they are discarded, and stored with the others once they are trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.runs import (
    Run,
    RunInfo,
    Settled,
    Tags,
    encode_runs,
    indexes_of,
    info_of,
    kind_of,
    merge_runs,
)
from braided.routing.routes import split_tags, tagged_schema
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, Work, stream_labels
from braided.storage.topic_progress import Progress
from braided.time.clocks import MAX_TIME, MIN_TIME, clamp
from braided.time.lateness import Lateness
from braided.time.quarantine import Quarantine, StreamProgress
from braided.time.stream_clock import StreamClock, update_all

# A slice is a sixth of the time that a row stays, so that at most about a sixth of the stored rows can be
# expired rows that wait for the end of their slice; a sixteenth of the span bounds the cuts of one batch.
_SLICES = 6
_MOST_CUTS = 16
# The number of sequences of one size class that are merged into one of the next class, and the factor between classes.
# With filters a look-up in another sequence is cheap, so four is better than two: it halves the rewriting.
_FANOUT = 4
# A closed slice is merged into one, but not again for stragglers of less than a sixteenth.
_CLOSED_RATIO = 16
# Sequences beyond this size are not merged further: merging holds them in memory.
_MERGE_BYTES = 64 << 20

Sequence_ = list[RunInfo]
# An item to merge: a stored sequence; or new rows, in one run or in the files that are adopted in a batch.
Item = Sequence_ | tuple[Run, ...]


class StoredWindow(Protocol):
    """What a time condition must provide: `Window` of two streams, `Span` of many."""

    @property
    def lateness(self) -> tuple[int, ...]:
        """Each stream's lateness."""

    @property
    def span(self) -> int:
        """How far apart the times of the rows that one row meets may be."""

    def meets(self, side: int) -> tuple[int, int]:
        """Return how far from a probe's time stored rows of this side may be."""

    def retention(self, side: int) -> int:
        """Return how far behind other clocks a stored row of this side may be."""

    def patience(self, side: int) -> int:
        """Return how far a stream goes on before a doubted row of it is discarded."""

    def horizon(self, side: int, clocks: tuple[int | None, ...]) -> int:
        """Return the oldest time at which a stored row of this side can still match."""

    def watermark_reach(self, side: int) -> int:
        """Return how much older than a newly arrived row of this side another row of a result may be."""


class StoredStreams(Protocol):
    """What an operator must provide whose rows are stored."""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """The schema of each stream's stored rows."""

    @property
    def window(self) -> StoredWindow:
        """The time condition."""

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        """Each stream's lateness, or how it is learned."""

    @property
    def idle(self) -> int | None:
        """After how much silence the other streams no longer wait for a stream."""

    @property
    def preserved(self) -> tuple[int, ...]:
        """The inputs for which settled rows are recorded."""

    def times_of(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the event time of each row."""

    def hashes(
        self, side: int, rows: pa.RecordBatch, tags: npt.NDArray[np.int32] | None = None
    ) -> npt.NDArray[np.uint64]:
        """Return the key hash of each row."""


class JoinState:
    """The stored runs of all streams and the clocks, between load and save of one batch."""

    def __init__(self, join: StoredStreams, blocks: Blocks) -> None:
        self._join = join
        self._blocks = blocks
        span = join.window.span
        self.streams = [StreamClock(lateness, span, join.idle) for lateness in join.lateness]
        self.sides: list[list[Sequence_]] = [[] for _ in join.inputs]
        self.apart: list[list[tuple[StreamProgress, Sequence_]]] = [[] for _ in join.inputs]
        """Doubted runs, each group with the position of its stream when the group came."""
        self._quarantine = Quarantine(self.streams)
        self.expired = [MIN_TIME for _ in join.inputs]
        """The latest time of the rows of each stream that have expired and are no longer there."""
        self._discarded = [0 for _ in join.inputs]
        self._settled: dict[int, tuple[Settled, int]] = {}
        """For each loaded run, which rows are settled, and how many were settled before this batch."""

    @classmethod
    def restore(cls, join: StoredStreams, state: Json | None, blocks: Blocks) -> JoinState:
        """Read the state that `to_json` returned."""
        self = cls(join, blocks)
        if state is not None:
            for stream, known in zip(self.streams, state["streams"], strict=True):
                stream.restore(known)
            self.sides = [[_infos(sequence) for sequence in side] for side in state["sides"]]
            self.apart = [[(StreamProgress(*since), _infos(infos)) for since, infos in side] for side in state["apart"]]
            self.expired = [
                MIN_TIME if time is None else time for time in state.get("expired") or [None] * len(self.sides)
            ]
        return self

    def to_json(self) -> Json:
        """Return the bookkeeping: small, whatever the state's size."""
        return {
            "streams": [stream.to_json() for stream in self.streams],
            "sides": self.sides,
            "apart": self.apart,
            "expired": [None if time == MIN_TIME else time for time in self.expired],
        }

    @property
    def window(self) -> StoredWindow:
        """The join's window with the current lateness."""
        window: StoredWindow = replace(
            self._join.window,  # type: ignore[type-var]
            lateness=tuple(stream.lateness for stream in self.streams),
        )
        return window

    @property
    def clocks(self) -> tuple[int | None, ...]:
        """The clock of each stream; an idle stream counts as far as the furthest one."""
        furthest = max((stream.counted for stream in self.streams if stream.counted is not None), default=None)
        return tuple(furthest if stream.idle else stream.counted for stream in self.streams)

    def advance(self, work: Work) -> None:
        """Move the clocks, after the batch has probed."""
        update_all(self.streams, work.streams, work.moment)
        self._quarantine = Quarantine(self.streams)

    @property
    def known_safe(self) -> list[int]:
        """The time, per stream, before which every further row is late."""
        known = zip(self.clocks, self.streams, strict=True)
        return [MIN_TIME if clock is None else clamp(clock - stream.lateness) for clock, stream in known]

    def progress(self) -> list[Progress]:
        """Return the promised progress of the times that results take from each stream.

        A further result has at least one row that is still to come. Its other rows are older by what the window allows
        at most.
        """
        window, safe = self.window, self.known_safe
        spread = max(stream.spread for stream in self.streams)
        reach = [window.watermark_reach(side) for side in range(len(safe))]
        out = []
        for side, own in enumerate(safe):
            older = [clamp(safe[other] - reach[other]) for other in range(len(safe)) if other != side]
            most = max(reach[other] for other in range(len(safe)) if other != side)
            out.append(Progress(min([own, *older]), spread, most))
        return out

    def levels(self) -> dict[str, int]:
        """Return how much is stored."""
        infos = [info for side in range(len(self.sides)) for info in self.infos(side)]
        labels = stream_labels(len(self.sides))
        apart = [sum(info.rows for _, group in side for info in group) for side in self.apart]
        return {
            "stored_rows": sum(info.rows for info in infos),
            "stored_bytes": sum(info.bytes for info in infos),
            "runs": len(infos),
            **{f"quarantined:{label}": rows for label, rows in zip(labels, apart, strict=True)},
        }

    def counts(self, late: list[int], lost: list[int] | None = None) -> dict[str, int]:
        """Return the counts of a batch per stream: the given late and lost rows, and the quarantined rows discarded."""
        labels = stream_labels(len(self.sides))
        return {
            **{f"late:{label}": rows for label, rows in zip(labels, late, strict=True)},
            **{f"lost:{label}": rows for label, rows in zip(labels, lost or (), strict=lost is not None)},
            **{f"discarded:{label}": rows for label, rows in zip(labels, self._discarded, strict=True)},
        }

    def runs_for(self, probe: Run, side: int) -> Iterator[Run]:
        """Yield the stored runs of one side that rows of the other side could match, one at a time."""
        if not len(probe.times):
            return
        low, high = self._join.window.meets(side)
        times = probe.span[0] + low, probe.span[1] + high
        for info in self.infos(side):
            if info.overlaps(times, (int(probe.hashes[0]), int(probe.hashes[-1]))):
                yield self.load(side, info)

    def infos(self, side: int) -> list[RunInfo]:
        """Return the bookkeeping of the stored runs of one side."""
        groups = [*self.sides[side], *(infos for _, infos in self.apart[side])]
        return [info for group in groups for info in group]

    def horizon(self, side: int) -> int:
        """Return the oldest time at which a stored row of this side can still match."""
        return self.window.horizon(side, self.clocks)

    def absorb(self, side: int, new: Sequence[Run]) -> None:
        """Store the new rows that can still match, drop expired rows, and merge runs that belong together."""
        horizon, limit = self.horizon(side), self._quarantine.limit
        remaining: list[Sequence_] = []
        taken_back: list[Run] = []
        for sequence in self.sides[side]:
            live = []
            for info in sequence:
                if info.last_time >= horizon and info.last_time <= limit:
                    live.append(info)
                    continue
                if info.last_time > limit:  # the clock had started with a wrong row, and was reset
                    taken_back.append(self.load(side, info))
                else:
                    self.expired[side] = max(self.expired[side], info.last_time)
                self._delete([info])
            if live:
                remaining.append(live)
        trusted = [self._live(side, [piece], horizon) for piece in self._believed(side, new, taken_back)]
        fresh = [run for piece in trusted for run in self._slices(side, piece)]
        self.sides[side] = self._merge(side, remaining, fresh, horizon)
        self._compact(side, horizon)

    def _believed(self, side: int, new: Sequence[Run], taken_back: list[Run]) -> list[Run]:
        """Store doubted rows apart; return the other rows, and those that are trusted by now.

        A row's mark is never later than the batch that stored it: by the progress of that batch the controller judges
        whether a row under an old assignment may still be trusted.
        """
        rule, limit = self._quarantine, self._quarantine.limit
        doubted = any(len(run.times) and run.span[1] > limit for run in new)
        if not self.apart[side] and not doubted and not taken_back:
            return list(new)
        now, patience = rule.since(side), self.window.patience(side)
        apart: list[tuple[StreamProgress, Sequence_]] = []
        opened: dict[StreamProgress, list[Run]] = {StreamProgress(): taken_back}
        mark, arrived = now, list(new)
        for since, infos in self.apart[side]:
            verdict = rule.judge(side, min(info.first_time for info in infos), since, patience)
            if verdict == "discarded":
                self._discarded[side] += sum(info.rows for info in infos)
            elif doubted and rule.same(side, since, patience):
                mark = min(mark, since)
                arrived += [self.load(side, info) for info in infos]
            elif verdict == "believed":
                opened.setdefault(since, []).extend(self.load(side, info) for info in infos)
            else:
                apart.append((since, infos))
                continue
            self._delete(infos)
        opened.setdefault(mark, []).extend(arrived)
        believed = []
        for since, runs in opened.items():
            if runs:
                together = merge_runs(runs, MIN_TIME)
                ahead = together.times > limit
                believed.append(together if not ahead.any() else together.take(np.flatnonzero(~ahead)))
                if not ahead.any():
                    continue
                # Others of their group may be trusted: the controller assumes that each row is judged by itself.
                if rule.judge(side, limit + 1, since, patience) == "discarded":
                    self._discarded[side] += int(np.count_nonzero(ahead))
                else:
                    apart.append((since, self.write(together.take(np.flatnonzero(ahead)))))
        self.apart[side] = apart
        return believed

    def _width(self, side: int, span: int) -> int:
        return max(self.window.retention(side) // _SLICES, span // _MOST_CUTS, 1)

    def _slices(self, side: int, run: Run) -> Iterator[Run]:
        """Cut new rows at slice borders; a few stragglers of an older slice stay with the next."""
        if not len(run.times):
            return
        first, last = run.span
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

    def _merge(self, side: int, live: list[Sequence_], fresh: list[Run], horizon: int) -> list[Sequence_]:
        """Merge sequences of one slice and size class, and all of a slice into one once it is closed."""
        groups: dict[int, list[Item]] = {}
        times = [(min(i.first_time for i in s), max(i.last_time for i in s)) for s in live]
        times += [run.span for run in fresh]
        span = max((last for _, last in times), default=0) - horizon
        # The horizon is MIN_TIME until the other stream has a clock; until then only the retention counts.
        width = self._width(side, 0 if span > MAX_TIME // 2 else span)
        items: list[Item] = [*live, *((run,) for run in fresh)]
        for (_, last), item in zip(times, items, strict=True):
            groups.setdefault(last // width, []).append(item)
        clock = self.clocks[side]
        late = self.streams[side].lateness
        merged: list[Sequence_] = []
        for number in sorted(groups):
            closed = clock is not None and (number + 1) * width <= clock - late
            merged += self._merge_slice(side, _one_sequence(groups[number]), closed, horizon)
        return merged

    def _merge_slice(self, side: int, items: list[Item], closed: bool, horizon: int) -> list[Sequence_]:
        ordered = sorted(items, key=_rows, reverse=True)
        if closed and sum(map(_rows, ordered[1:])) * _CLOSED_RATIO >= _rows(ordered[0]) and _fits(ordered):
            groups = [ordered]
        else:
            groups = _size_classes(ordered)
        out: list[Sequence_] = []
        for group in groups:
            if len(group) == 1:
                [item] = group
                if isinstance(item, tuple):
                    item = [info for run in item for info in self.write(self._live(side, [run], horizon))]
                if item:
                    out.append(item)
                continue
            runs: list[Run] = []
            for item in group:
                runs += [self.load(side, info) for info in item] if isinstance(item, list) else item
            written = self.write(self._live(side, runs, horizon))
            for item in group:
                if isinstance(item, list):
                    self._delete(item)
            if written:
                out.append(written)
        return out

    def _compact(self, side: int, horizon: int) -> None:
        """Rewrite runs with rows on both sides of the horizon, once expired rows exceed a quarter of the live ones."""
        infos = self.infos(side)
        total = sum(info.rows for info in infos)
        straddling = sum(info.rows for info in infos if info.first_time < horizon)
        if straddling * 4 <= total - straddling:
            return
        expired: dict[int, int] = {}
        for sequence in self.sides[side]:
            for info in sequence:
                if info.first_time < horizon:
                    expired[info.number] = int(np.count_nonzero(self.load(side, info).times < horizon))
        dead = sum(expired.values())
        if dead * 4 <= total - dead:
            return
        rewritten: list[Sequence_] = []
        for sequence in self.sides[side]:
            infos = []
            for info in sequence:
                if expired.get(info.number):
                    infos += self.write(self._live(side, [self.load(side, info)], horizon))
                    self._delete([info])
                else:
                    infos.append(info)
            if infos:
                rewritten.append(infos)
        self.sides[side] = rewritten

    def _live(self, side: int, runs: Sequence[Run], horizon: int) -> Run:
        """Merge runs without the rows that have expired."""
        for run in runs:
            if len(run.times) and run.span[0] < horizon:
                self.expired[side] = max(self.expired[side], int(run.times[run.times < horizon].max()))
        return merge_runs(runs, horizon)

    def lost(self, side: int, earliest: int) -> int:
        """Return the time up to which a new row of a stream comes too late: rows of other streams have expired.

        earliest : the lowest distance from its time at which it meets rows of other streams.
        """
        gone = max(time for other, time in enumerate(self.expired) if other != side)
        return gone if gone == MIN_TIME else clamp(gone - earliest)

    def write(self, run: Run) -> Sequence_:
        """Store a run, in blocks of bounded size."""
        infos = []
        for piece, content, file in encode_runs(run):
            info = info_of(piece, self._blocks.write(content, indexes_of(piece), kind_of(piece), file))
            infos.append(info if piece.settled is None else self._with_bits(info, piece.settled))
        return infos

    def _with_bits(self, info: RunInfo, settled: Settled) -> RunInfo:
        """Store which rows of a run are settled, and replace what was stored before."""
        if info.bits >= 0:
            self._blocks.delete(info.bits)
        bits = self._blocks.write(np.packbits(settled).tobytes()).number if settled.any() else -1
        return info._replace(bits=bits)

    def _delete(self, infos: Iterable[RunInfo]) -> None:
        for info in infos:
            self._blocks.delete(info.number)
            if info.bits >= 0:
                self._blocks.delete(info.bits)

    def keep_settled(self) -> None:
        """Store which rows this batch settled, for the runs that stay."""

        def kept(infos: Sequence_) -> Sequence_:
            return [self._with_bits(info, self._settled[info.number][0]) if changed(info) else info for info in infos]

        def changed(info: RunInfo) -> bool:
            settled, before = self._settled.get(info.number, (None, 0))
            return settled is not None and int(np.count_nonzero(settled)) != before

        for side in self._join.preserved:
            self.sides[side] = [kept(infos) for infos in self.sides[side]]
            self.apart[side] = [(since, kept(infos)) for since, infos in self.apart[side]]

    def load(self, side: int, info: RunInfo) -> Run:
        """Return a stored run, from the host's cache or else from the state store."""
        content, *indexes = self._blocks.read(
            info.number, lambda content: indexes_of(self._indexed(side, info, content))
        )
        rows, tags = self._decoded(side, info, content)
        hashes, directory, filter_ = (
            np.frombuffer(index, kind) for index, kind in zip(indexes, (np.uint64, np.int32, np.uint8), strict=True)
        )
        times = self._join.times_of(side, rows)
        settled = self._settled_of(info) if side in self._join.preserved else None
        return Run(rows, hashes, times, directory, filter_, tags, (info.first_time, info.last_time), settled)

    def _settled_of(self, info: RunInfo) -> Settled:
        """Return which rows of a run are settled now; everything that loads the run shares this array."""
        if info.number not in self._settled:
            settled = np.zeros(info.rows, np.bool_)
            if info.bits >= 0:
                bits = np.frombuffer(self._blocks.read(info.bits)[0], np.uint8)
                settled = np.unpackbits(bits, count=info.rows).view(np.bool_)
            self._settled[info.number] = settled, int(np.count_nonzero(settled))
        return self._settled[info.number][0]

    def _indexed(self, side: int, info: RunInfo, content: pa.Buffer) -> Run:
        rows, tags = self._decoded(side, info, content)
        return Run.of(rows, self._join.hashes(side, rows, tags), self._join.times_of(side, rows), tags)

    def _decoded(self, side: int, info: RunInfo, content: pa.Buffer) -> tuple[pa.RecordBatch, Tags | None]:
        schema = self._join.inputs[side]
        if not info.tagged:
            return pa.ipc.read_record_batch(content, schema), None
        return split_tags(pa.ipc.read_record_batch(content, tagged_schema(schema)))


def _infos(stored: list[list[Any]]) -> Sequence_:
    return [RunInfo(*info) for info in stored]


def _one_sequence(items: list[Item]) -> list[Item]:
    """Put the files that a batch adopts into one item, so that several files are not merged earlier than one would be.

    Runs of one sequence have separate spans of hashes; those of these files overlap, and each file is searched.
    """
    files = [item for item in items if isinstance(item, tuple) and item[0].file is not None]
    if len(files) < 2:
        return items
    together = tuple(run for item in files for run in item)
    return [*(item for item in items if not any(item is file for file in files)), together]


def _size_classes(items: list[Item]) -> list[list[Item]]:
    """Group items to merge: _FANOUT of a size class become one, which may complete the next class."""
    classes: dict[int, list[list[Item]]] = {}
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


def _size_class(items: list[Item]) -> int:
    return int(math.log(max(1, sum(map(_rows, items))), _FANOUT))


def _fits(items: list[Item]) -> bool:
    return sum(map(_bytes, items)) <= _MERGE_BYTES


def _rows(item: Item) -> int:
    return sum(info.rows for info in item) if isinstance(item, list) else sum(len(run.times) for run in item)


def _bytes(item: Item) -> int:
    return sum(info.bytes for info in item) if isinstance(item, list) else sum(run.rows.nbytes for run in item)
