"""The router's part of a batch: admit rows, split them by worker, and pack them into blocks of bounded size.

The output of a task depends only on its input and the routing table, including cuts, order and bytes. It uses no clock,
no random numbers and no process-dependent hash, so a task that runs again has exactly the same output.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import BraidedError
from braided.routing.routes import append_tags
from braided.routing.sketch import HeavyHitters
from braided.routing.sorting import build_directory, directory_shift, sort_order
from braided.routing.table import RoutingTable
from braided.runtime.contract import Admitted, Json, Operator, keeps_untimed, stores_by_hash
from braided.runtime.input_parts import Parts
from braided.storage.topic_progress import Progress
from braided.time.clocks import MIN_TIME, late_in_task
from braided.time.learning.delays import Delays
from braided.time.learning.learner import new_summary
from braided.time.learning.next_delays import NextDelays
from braided.time.propagated_delay import DelayColumn
from braided.time.stream_clock import jump_of
from braided.time.trust import Cluster, clusters_of, in_largest, largest, merge_clusters
from braided.version import __version__

FORMAT = 9
PIECE_BYTES = 8 << 20
PIECE_ROWS = 1 << 18
# If rows may have more copies than this, pieces are smaller in proportion, because all copies of a piece are in memory.
_COPIES = 8
# A sketch of 128 keys finds every key that has 1% of a task's rows; the 24 heaviest are sent to the driver.
_WATCHED_KEYS = 128
_REPORTED_KEYS = 24
_LABELS = 8
_LABEL_LENGTH = 64


@dataclass(frozen=True)
class Packet:
    """One row of the shuffle: a block of rows for a worker, or (seq -1) the task's summary for it."""

    worker: int
    side: int
    task: int
    seq: int
    late: int
    copies: int
    kind: int
    note: str | None
    block: pa.Buffer | None
    path: Path | None = None
    """At the worker: the file in which the block was sent through the shuffle."""


# The bits of a packet's kind: 0, its rows only probe; 1, the last column has each row's tag; 2, its rows have no time;
# 3, in the shuffle the block is in a file, and the packet has the file's name.
PROBE, TAGGED, UNTIMED, IN_FILE = 1, 2, 4, 8


@dataclass
class RouterReport:
    """The report of a router task to the driver, outside of the shuffle; with its heaviest keys if it is watched."""

    side: int
    task: int
    rows: int = 0
    cpu_ms: int = 0
    bytes: int = 0
    copies: int = 0
    keys: list[tuple[str, int]] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Watch:
    """How routers report keys; if redacted, they report only hashes of keys and no values."""

    redact: bool = False


def route_task(
    operator: Operator,
    fingerprint: str,
    table: RoutingTable,
    side: int,
    task: int,
    workers: int,
    batches: Iterable[pa.RecordBatch],
    watch: Watch | None = None,
    least: int | None = None,
    promise: Callable[[], Progress | None] | None = None,
) -> Iterator[list[Packet] | RouterReport]:
    """Turn one task's rows into packets, one list per piece of input; then yield the summaries; then the report.

    Blocks of `least` bytes and more are sent through the shuffle in files; with None, no block is. A worker may adopt
    such a file unchanged (`braided.operators.join.arrivals`), so if rows are stored by hash, a task with only one piece
    sorts its rows in this way. `promise` is called after the last row, and returns the progress of the input if its
    writer reports it.
    """
    started = time.process_time()
    seen = _InputSummary.of(operator, side)
    report = RouterReport(side, task)
    heavy = HeavyHitters(capacity=_WATCHED_KEYS)
    running_max = MIN_TIME
    shrink = -(-table.most_copies[min(side, 1)] // _COPIES)
    delay_column, parts = DelayColumn(), Parts()
    sorts = least is not None and stores_by_hash(operator)
    pieces = _pieces(parts.take(delay_column.take(batches)), operator.inputs[side], shrink)
    for seq, (piece, alone) in enumerate(_alone(pieces)):
        seen.rows += piece.num_rows
        starts = parts.starts(piece.num_rows)
        timed = piece
        if piece.column(operator.times[side]).null_count:
            valid = piece.column(operator.times[side]).is_valid()
            timed = piece.filter(valid)
            starts = np.append(0, np.cumsum(valid.to_numpy(zero_copy_only=False)))[starts]
            seen.null_times += piece.num_rows - timed.num_rows
            if keeps_untimed(operator, side):
                untimed = piece.filter(pc.invert(valid)).serialize()
                yield [Packet((task + seq) % workers, side, task, seq, 0, 0, UNTIMED, None, untimed)]
        top = seen.times(timed, _times(timed, operator.times[side]), starts)
        admitted = operator.admit(side, timed, table)
        seen.null_keys += admitted.null_keys
        seen.shed += admitted.shed
        late = None
        if seen.fixed is not None:
            late, running_max = late_in_task(admitted.times, running_max, seen.fixed, top)
        report.bytes += piece.nbytes
        report.copies += len(admitted.routes.workers)
        if watch is not None and admitted.hashes is not None:
            heavy.update(admitted.hashes)
            if not watch.redact:
                _label(operator, side, admitted, heavy, report)
        packets = list(_pack(admitted, late, workers, (side, task, seq), least if sorts and alone else None))
        if packets:
            yield packets
    promised = None if promise is None else promise()
    header = {
        "format": FORMAT,
        "version": __version__,
        "workers": workers,
        "options": fingerprint,
        "table": [table.version, table.digest],
        "handed": delay_column.delay,
        "promise": None if promised is None else asdict(promised),
        **seen.to_json(),
    }
    note = json.dumps(header, separators=(",", ":"))
    yield [Packet(worker, side, task, -1, 0, 0, 0, note, None) for worker in range(workers)]
    report.rows = seen.rows
    report.cpu_ms = round(1000 * (time.process_time() - started))
    report.keys = [(f"{key:016x}", weight) for key, weight in heavy.top(_REPORTED_KEYS)]
    report.labels = {key: report.labels[key] for key, _ in report.keys if key in report.labels}
    yield report


@dataclass
class _InputSummary:
    """A task's summary of its input: how many rows, and their times."""

    jump: int
    fixed: int | None
    """The lateness if it is not learned."""
    delays: Delays | NextDelays | None
    clock_rows: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]] | None = None
    """Which rows set the clock; None means all."""
    rows: int = 0
    null_times: int = 0
    null_keys: int = 0
    shed: int = 0
    clusters: list[Cluster] = field(default_factory=list)
    top: int | None = None

    @classmethod
    def of(cls, operator: Operator, side: int) -> _InputSummary:
        lateness = operator.lateness[side]
        if isinstance(lateness, int):
            return cls(jump_of(lateness), lateness, None)
        return cls(jump_of(lateness), None, new_summary(lateness), lateness.clock_rows)

    def times(self, rows: pa.RecordBatch, times: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]) -> int:
        """Add the times of a piece, in which parts begin at `starts`; return the last time of its largest cluster."""
        clusters = clusters_of(times, self.jump)
        if clusters:
            self.top = clusters[-1].last if self.top is None else max(self.top, clusters[-1].last)
        setting = None if self.clock_rows is None else _mask(self.clock_rows(rows), rows.num_rows)
        moving = clusters if setting is None else clusters_of(times[setting], self.jump)
        self.clusters = merge_clusters([*self.clusters, *moving], self.jump)
        if self.delays is not None:
            crowd = in_largest(times, clusters)
            for part, (first, stop) in enumerate(pairwise([0, *starts.tolist(), len(times)])):
                if part:
                    self.delays.begin_part()
                chosen = slice(first, stop) if isinstance(crowd, slice) else first + np.flatnonzero(crowd[first:stop])
                if isinstance(self.delays, NextDelays):
                    self.delays.add(times[chosen], None if setting is None else setting[chosen])
                else:
                    self.delays.add(times[chosen])
        return largest(clusters).last if clusters else MIN_TIME

    def to_json(self) -> Json:
        return {
            "rows": self.rows,
            "null_times": self.null_times,
            "null_keys": self.null_keys,
            "shed": self.shed,
            "clusters": self.clusters,
            "top": self.top,
            "delays": None if self.delays is None or not self.delays.rows else self.delays.to_json(),
        }


def _mask(value: Any, rows: int) -> npt.NDArray[np.bool_]:
    """Return the result of a predicate as a mask; null counts as False."""
    mask = np.asarray(value, np.bool_)
    if mask.shape != (rows,):
        raise BraidedError(
            f"clock_rows=: the function returned {mask.size} values for {rows} rows; return one boolean per row"
        )
    return mask


def _label(operator: Operator, side: int, admitted: Admitted, heavy: HeavyHitters, report: RouterReport) -> None:
    assert admitted.hashes is not None
    for key, weight in heavy.top(_LABELS):
        text = f"{key:016x}"
        if text not in report.labels and weight * _WATCHED_KEYS > heavy.total:
            at = np.flatnonzero(admitted.hashes == np.uint64(key))
            if len(at):
                report.labels[text] = operator.label(side, admitted.rows.slice(int(at[0]), 1))[:_LABEL_LENGTH]


def _pack(
    admitted: Admitted,
    late: npt.NDArray[np.bool_] | None,
    workers: int,
    at: tuple[int, int, int],
    sort_from: int | None,
) -> Iterator[Packet]:
    """Sort copies by worker and purpose, and cut them into one block to store and one block to probe per worker.

    Blocks of about `sort_from` bytes and more are sorted by (key hash, time) if all their rows are on time, are counted
    here and are in no grid.
    """
    routes = admitted.routes
    # Purposes: 0 stored and counted here, 1 the same but late, 2 stored and counted elsewhere, 3 probing only.
    purposes = 1 if late is None and routes.rows is None else 4
    group = routes.workers.astype(np.int64) * purposes
    if routes.rows is not None:
        assert routes.stored is not None
        assert routes.primary is not None
        group += np.where(routes.stored, np.where(routes.primary, 0, 2), 3)
        if late is not None:
            group += routes.primary & late[routes.rows]
    elif late is not None:
        group += late
    rows, tags = admitted.rows, routes.tags if routes.tags is not None and routes.tags.any() else None
    picks: npt.NDArray[np.int64] | None = None
    if routes.rows is not None or (group[1:] < group[:-1]).any():
        small = np.uint16 if workers * purposes < 1 << 16 else np.int64  # 16 bits: numpy sorts by radix
        order = np.argsort(group.astype(small), kind="stable")
        group = group[order]
        picks = order if routes.rows is None else routes.rows[order]
        tags = None if tags is None else tags[order]
    bounds = np.searchsorted(group, np.arange(workers * purposes + 1)).tolist()
    if sort_from is not None and admitted.hashes is not None:
        picks = np.arange(rows.num_rows) if picks is None else picks
        least_rows = max(1, sort_from * rows.num_rows // max(1, rows.nbytes))
        for first in range(0, workers * purposes, purposes):
            start, stop = bounds[first], bounds[first + 1]
            is_plain = purposes == 1 or stop == bounds[first + 3]  # neither late rows nor copies
            if is_plain and stop - start >= least_rows and (tags is None or not tags[start:stop].any()):
                picks[start:stop] = _by_hash(admitted, picks[start:stop])
    rows = rows if picks is None else rows.take(pa.array(picks))
    side, task, seq = at
    for worker in range(workers):
        ends = bounds[worker * purposes : (worker + 1) * purposes + 1]
        stored_end = ends[-2] if purposes == 4 else ends[-1]
        counts = (ends[2] - ends[1], ends[3] - ends[2]) if purposes == 4 else (0, 0)
        for start, stop, kind, (late_rows, copies) in (
            (ends[0], stored_end, 0, counts),
            (stored_end, ends[-1], PROBE, (0, 0)),
        ):
            if start < stop:
                block = rows.slice(start, stop - start)
                if tags is not None and tags[start:stop].any():
                    kind |= TAGGED  # noqa: PLW2901
                    block = append_tags(block, tags[start:stop])
                yield Packet(worker, side, task, seq, late_rows, copies, kind, None, block.serialize())


def _by_hash(admitted: Admitted, picks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return positions of rows in the order of (key hash, time)."""
    assert admitted.hashes is not None
    hashes, times, shift = admitted.hashes[picks], admitted.times[picks], directory_shift(len(picks))
    ordered: npt.NDArray[np.int64] = picks[sort_order(hashes, times, build_directory(hashes, shift), shift)]
    return ordered


def _alone(pieces: Iterator[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yield each piece, and whether it is the only one."""
    piece, is_first = next(pieces, None), True
    while piece is not None:
        following = next(pieces, None)
        yield piece, is_first and following is None
        piece, is_first = following, False


def _pieces(batches: Iterable[pa.RecordBatch], schema: pa.Schema, shrink: int) -> Iterator[pa.RecordBatch]:
    """Merge small input batches, and cut large ones, into pieces of bounded size with the given schema."""
    most_bytes, most_rows = max(1, PIECE_BYTES // shrink), max(1, PIECE_ROWS // shrink)
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        conformed = conform(batch, schema)
        parts = max(1, -(-conformed.nbytes // most_bytes), -(-conformed.num_rows // most_rows))
        step = max(1, -(-conformed.num_rows // parts))
        for start in range(0, conformed.num_rows, step):
            part = conformed.slice(start, step)
            if waiting and (rows + part.num_rows > most_rows or size + part.nbytes > most_bytes):
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows += part.num_rows
            size += part.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to the operator's schema (time zones and widths may differ by session settings)."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _times(rows: pa.RecordBatch, time_column: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    times: np.ndarray[tuple[int], np.dtype[np.int64]] = rows.column(time_column).view(pa.int64()).to_numpy()
    return times


def read_header(note: str) -> Json:
    """Read the summary that `route_task` sent."""
    header: Json = json.loads(note)
    return header
