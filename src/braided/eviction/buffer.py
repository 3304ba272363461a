"""A bounded buffer of rows of several streams: what one worker keeps when the window does not fit in memory.

Preconditions: events come sorted by (time, stream, content hash), in calls of any size; keys are 64-bit hashes,
equal for equal keys. Where rows are cut into calls changes nothing, neither results nor state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from braided.errors import BraidedError, StateError
from braided.eviction.buffer_format import load, read_header, read_streams, save
from braided.eviction.buffer_kernel import kernel_of
from braided.eviction.policies.policy import Policy, Shape
from braided.eviction.records import Bytes, Ints, Reals, UInt64s, allocate
from braided.eviction.stored_rows import slots_by_age

__all__ = ["Buffer", "Events", "Progress", "Result", "sorted_events"]

MOST_STREAMS = 8
MOST_ROWS = 1 << 28
_NO_INTS = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.int8)
_NO_REALS = np.empty(0, np.float64)


Share = Literal["unified", "proportional"]
Results = Literal["pairs", "combinations"]


class BufferOptions(TypedDict, total=False):
    """Options of `Buffer`."""

    window: Required[tuple[int, int]]
    streams: int
    share: Share
    results: Results


class Outputs(TypedDict, total=False):
    """Arrays that `Buffer.step` writes to."""

    pair_event: Ints
    pair_row: Ints
    dropped_row: Ints
    drop_reason: Bytes


class Events(NamedTuple):
    """Rows as a policy sees them, in sequence: parallel arrays."""

    keys: UInt64s
    times: Ints
    streams: Bytes
    contents: UInt64s
    rows: Ints
    hints: Reals = _NO_REALS

    def part(self, start: int, end: int) -> Events:
        return self.pick(slice(start, end))

    def pick(self, which: slice | Ints | npt.NDArray[np.bool_]) -> Events:
        """Return the events at some positions; events without hints stay so."""
        hints = self.hints[which] if len(self.hints) else self.hints
        keys, times, streams = self.keys[which], self.times[which], self.streams[which]
        return Events(keys, times, streams, self.contents[which], self.rows[which], hints)


class Progress(NamedTuple):
    """How far a step came: the first event not finished, and what it wrote to each output."""

    event: int
    pairs: int
    drops: int


class Result(NamedTuple):
    """Pairs (event number, stored row id), and the ids of rows that went with why (`buffer_kernel.DROP_...`)."""

    pair_event: Ints
    pair_row: Ints
    dropped_row: Ints
    drop_reason: Bytes


def sorted_events(events: Events) -> Events:
    """Return the events in the sequence that a policy sees: by (time, stream, content).

    Cost: least for streams one after the other, each nearly in order of time; contents are compared where times agree.
    """
    streams = events.streams
    if (streams[1:] < streams[:-1]).any():
        return events.pick(np.lexsort((events.contents, streams, events.times)))
    order = np.argsort(events.times, kind="stable")
    times, streams = events.times[order], streams[order]
    same = (times[1:] == times[:-1]) & (streams[1:] == streams[:-1])
    if same.any():
        tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
        among = order[tied]
        order[tied] = among[np.lexsort((events.contents[among], events.streams[among], events.times[among]))]
    return events.pick(order)


class Buffer:
    """Keep at most `capacity` rows, and join each event with those of the other streams that are kept.

    capacity : rows stored at most, of all streams together.
    policy : which row gives way when the buffer is full, such as ``GDJ(initial=0.99)``.
    window : (lo, hi) in microseconds. With two streams, 0 the left and 1 the right, a pair has
        lo <= right time - left time <= hi; with more, lo = -hi and any two rows are at most hi apart.
    streams : how many, 2 to 8.
    share : ``"unified"``: all streams compete for the whole buffer (section 4.3). ``"proportional"``: each stream
        has room in proportion to its recent arrivals, and rows compete within it (section 5.3.3).
    results : what counts as a result, and raises credits: ``"pairs"``, or ``"combinations"`` of a row of each stream.

    Cost: 172 to 188 bytes a row of capacity, 490 with PROB's exact counts, none of it growing with the stream;
    12 to 22 bytes a stored row when saved, and for PROB 8 to 9 a counted key.

    >>> from braided.eviction.policies.fifo import FIFO
    >>> buffer = Buffer(2, FIFO(), window=(-10, 10))
    >>> keys = np.array([7, 7, 7, 7], np.uint64)
    >>> events = Events(keys, np.arange(4), np.array([0, 0, 0, 1], np.int8), keys, np.arange(100, 104))
    >>> result = buffer.run(events)
    >>> result.pair_event.tolist(), result.pair_row.tolist(), result.dropped_row.tolist()
    ([3, 3], [101, 102], [100, 101])
    """

    def __init__(
        self,
        capacity: int,
        policy: Policy,
        *,
        window: tuple[int, int],
        streams: int = 2,
        share: Share = "unified",
        results: Results = "pairs",
    ) -> None:
        if isinstance(capacity, bool) or not isinstance(capacity, int) or not 1 <= capacity <= MOST_ROWS:
            raise BraidedError(f"{capacity=}: write the number of rows to keep, 1 to {MOST_ROWS}")
        if not 2 <= streams <= MOST_STREAMS:
            raise BraidedError(f"{streams=}: write a number of streams from 2 to {MOST_STREAMS}")
        if share not in ("unified", "proportional"):
            raise BraidedError(f"{share=}: write 'unified' or 'proportional'")
        if share == "proportional" and capacity < streams:
            raise BraidedError(f"{capacity=}: too small to share among {streams} streams; write at least {streams}")
        lo, hi = window
        if lo > hi:
            raise BraidedError(f"{window=}: its lower bound is above its upper bound")
        if streams > 2 and lo != -hi:
            raise BraidedError(f"{window=}: with {streams} streams a window is (-w, w)")
        self.capacity, self.policy, self.share, self.results = capacity, policy, share, results
        self.window = (int(lo), int(hi))
        ages: Sequence[tuple[int, int]] = [(lo, hi), (-hi, -lo)] if streams == 2 else [(lo, hi)] * streams
        pools = streams if share == "proportional" else 1
        self.shape = Shape(capacity, streams, pools, tuple(int(retention) for _, retention in ages))
        self.state = allocate(capacity, streams, pools)
        self.learned = policy.learned(self.shape)
        self.state.settings["room"] = capacity
        self.state.settings["combining"] = results == "combinations" and streams > 2
        self.state.streams["soonest"], self.state.streams["retention"] = np.array(ages).T
        self.state.totals["alike"] = policy.alike
        self._step = kernel_of(policy.hooks)
        self.last_time: int | None = None
        self.rows_elsewhere = False
        self._unread: tuple[dict[str, Any], bytes, int] | None = None

    @property
    def rows(self) -> int:
        return int(self.state.totals["rows"][0])

    @property
    def counts(self) -> dict[str, int]:
        """Totals since the start: events, pairs, results, and rows expired, evicted, refused and too large."""
        names = ("events", "pairs", "results", "expired", "evicted", "refused", "too_large")
        counts = {name: int(self.state.totals[name][0]) for name in names}
        return counts if self.state.settings["combining"][0] else {**counts, "results": counts["pairs"]}

    def step(
        self,
        events: Events,
        start: int,
        *,
        pair_event: Ints | None = None,
        pair_row: Ints | None = None,
        dropped_row: Ints | None = None,
        drop_reason: Bytes | None = None,
    ) -> Progress:
        """Process events from `start`; stop early when an output is full, to be called again from there.

        Without `pair_row` pairs are only counted; without `dropped_row` rows that go are. Pairs are written as
        (number of the event in `events`, id of the stored row).
        """
        self._check(events, start)
        counting, reporting = pair_row is None, dropped_row is None
        if not counting and (pair_event is None or len(pair_event) != len(pair_row) or not len(pair_row)):  # type: ignore[arg-type]
            raise BraidedError("pair_event, pair_row: give two arrays of one length, at least 1")
        if not reporting and (drop_reason is None or len(drop_reason) != len(dropped_row) or not len(dropped_row)):  # type: ignore[arg-type]
            raise BraidedError("dropped_row, drop_reason: give two arrays of one length, at least 1")
        event, pairs, drops = self._step(
            self.state,
            self.learned,
            *events,
            start,
            _NO_INTS if pair_event is None else pair_event,
            _NO_INTS if pair_row is None else pair_row,
            _NO_INTS if dropped_row is None else dropped_row,
            _NO_BYTES if drop_reason is None else drop_reason,
            counting,
            not reporting,
        )
        if event:
            self.last_time = int(events.times[event - 1])
        return Progress(event, pairs, drops)

    def count(self, events: Events) -> int:
        """Process all events and return the number of pairs."""
        before = int(self.state.totals["pairs"][0])
        self.step(events, 0)
        return int(self.state.totals["pairs"][0]) - before

    def run(self, events: Events, *, room: int = 1 << 16) -> Result:
        """Process all events and return every pair and every row that went."""
        return collect(self, events, room)

    def to_bytes(self) -> bytes:
        """Return the buffer as bytes, also between two steps of one event.

        With `rows_elsewhere` set, keys, times and ids of the rows are left out, to be given again by `attach`.
        """
        options = {
            "capacity": self.capacity,
            "window": self.window,
            "streams": len(self.state.streams),
            "share": self.share,
            "results": self.results,
            "last_time": self.last_time,
        }
        return save(self.state, self.policy, self.learned, options, rows_elsewhere=self.rows_elsewhere)

    @classmethod
    def from_bytes(cls, data: bytes, policy: Policy) -> Buffer:
        """Return the buffer that was saved, whose policy must be the same.

        >>> from braided.eviction.policies.fifo import FIFO
        >>> Buffer.from_bytes(b"...", FIFO())
        Traceback (most recent call last):
            ...
        braided.errors.StateError: buffer: these bytes are not a saved buffer
        """
        header, at = read_header(data)
        try:
            options = header["options"]
            window = tuple(options["window"])
            alike = {name: options[name] for name in ("streams", "share", "results")}
            buffer = cls(options["capacity"], policy, window=window, **alike)
            buffer.last_time = options["last_time"]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"buffer: the saved header is damaged: {error}") from error
        if header.get("rows_elsewhere"):
            buffer.rows_elsewhere = True
            buffer._unread = header, data, at
        else:
            buffer.learned = load(buffer.state, policy, buffer.learned, header, data, at)
        return buffer

    def row_streams(self) -> Bytes:
        """Return the stream of each stored row, oldest first; also before `attach`."""
        if self._unread is not None:
            return read_streams(*self._unread)
        streams: Bytes = self.state.rows["stream"][slots_by_age(self.state)].astype(np.int8)
        return streams

    def row_ids(self) -> Ints:
        """Return the id of each stored row, oldest first."""
        ids: Ints = self.state.rows["row"][slots_by_age(self.state)]
        return ids

    def attach(self, keys: UInt64s, times: Ints, ids: Ints) -> None:
        """Give a buffer that was read from bytes its rows, oldest first, where they were saved elsewhere."""
        if self._unread is None:
            raise BraidedError("attach: this buffer has its rows")
        header, data, at = self._unread
        self.learned = load(self.state, self.policy, self.learned, header, data, at, (keys, times, ids))
        self._unread = None

    def set_facts(self, *, sizes: Ints | None = None, most_bytes: int = 0, probes: Bytes | None = None) -> None:
        """Set facts by row id, of the stored rows and of those to come.

        sizes : bytes of each row, of which the stored ones have at most `most_bytes` together; a larger row is not
            stored, and counted. probes : rows, not 0, that meet no other such row.
        """
        sizes = _NO_INTS if sizes is None else sizes
        self.state = self.state._replace(sizes=sizes, probes=_NO_BYTES if probes is None else probes)
        self.state.settings["room_bytes"] = most_bytes
        if len(sizes):
            rows = self.state.rows[slots_by_age(self.state)]
            pool = rows["stream"] if len(self.state.pools) > 1 else np.zeros(len(rows), np.int64)
            of_pool = np.bincount(pool, sizes[rows["row"]], len(self.state.pools)).astype(np.int64)
            self.state.pools["bytes"], self.state.totals["bytes"] = of_pool, of_pool.sum()

    def _check(self, events: Events, start: int) -> None:
        if self._unread is not None:
            raise BraidedError("buffer: its rows were saved elsewhere; attach them first")
        lengths = {len(a) for a in events[:5]}
        if len(lengths) > 1 or (len(events.hints) and len(events.hints) != len(events.keys)):
            raise BraidedError("events: their arrays differ in length")
        if self.policy.hinted and len(events.hints) != len(events.keys):
            raise BraidedError(f"hints: {type(self.policy).__name__} needs one number per event")
        if not 0 <= start <= len(events.keys):
            raise BraidedError(f"{start=}: not an event of {len(events.keys)}")
        times = events.times
        if start == 0 and len(times):
            if (times[1:] < times[:-1]).any() or (self.last_time is not None and times[0] < self.last_time):
                raise BraidedError("events: times go back; sort them by (time, stream, content)")
            if events.streams.min() < 0 or events.streams.max() >= len(self.state.streams):
                raise BraidedError(f"events: a stream is not one of 0 to {len(self.state.streams) - 1}")


class Steps(Protocol):
    """What processes events in steps."""

    def step(self, events: Events, start: int, **outputs: Unpack[Outputs]) -> Progress:
        """Process events from `start` until an output is full."""


def collect(buffer: Steps, events: Events, room: int) -> Result:
    """Process all events, in steps with outputs of `room`, and return all that was written."""
    pair_event, pair_row, dropped_row = (np.empty(room, np.int64) for _ in range(3))
    drop_reason = np.empty(room, np.int8)
    parts: list[Result] = []
    at = 0
    while at < len(events.keys) or not parts:
        at, pairs, drops = buffer.step(
            events, at, pair_event=pair_event, pair_row=pair_row, dropped_row=dropped_row, drop_reason=drop_reason
        )
        parts.append(
            Result(
                pair_event[:pairs].copy(),
                pair_row[:pairs].copy(),
                dropped_row[:drops].copy(),
                drop_reason[:drops].copy(),
            )
        )
    return Result(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
