"""A bounded buffer of rows of several streams: one worker uses it when the window does not fit into memory.

Preconditions: events come sorted by (time, stream, content hash), in calls of any size; keys are 64-bit hashes, equal
for equal keys. How events are divided into calls changes neither results nor state.
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
    """Rows in the order in which a policy gets them, as parallel arrays."""

    keys: UInt64s
    times: Ints
    streams: Bytes
    contents: UInt64s
    rows: Ints
    hints: Reals = _NO_REALS

    def part(self, start: int, end: int) -> Events:
        return self.pick(slice(start, end))

    def pick(self, which: slice | Ints | npt.NDArray[np.bool_]) -> Events:
        """Return the events at some positions, with their hints if there are any."""
        hints = self.hints[which] if len(self.hints) else self.hints
        keys, times, streams = self.keys[which], self.times[which], self.streams[which]
        return Events(keys, times, streams, self.contents[which], self.rows[which], hints)


class Progress(NamedTuple):
    """The end of a step: the first unfinished event, and how many pairs and drops it wrote."""

    event: int
    pairs: int
    drops: int


class Result(NamedTuple):
    """Pairs (event number, stored row id), and the ids of removed rows with the reason (`buffer_kernel.DROP_...`)."""

    pair_event: Ints
    pair_row: Ints
    dropped_row: Ints
    drop_reason: Bytes


def sorted_events(events: Events) -> Events:
    """Return the events in the order in which a policy gets them: by (time, stream, content).

    It is fastest if the streams come one after the other, each nearly in order of time. Contents are compared only for
    equal times.
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
    """Stores at most `capacity` rows, and joins each event with the stored rows of the other streams.

    capacity : the largest number of stored rows, of all streams together.
    policy : the eviction policy, such as ``GDJ(initial=0.99)``.
    window : (lo, hi) in microseconds. With two streams, 0 the left and 1 the right, a pair has
        lo <= right time - left time <= hi; with more streams, lo = -hi and any two rows are at most hi apart.
    streams : the number of streams, 2 to 8.
    share : ``"unified"``: all streams compete for the whole buffer (section 4.3). ``"proportional"``: each stream has
        a share in proportion to its recent arrivals, and its rows compete within it (section 5.3.3).
    results : what counts as a result and raises credits: ``"pairs"``, or ``"combinations"`` of a row of each stream.

    Cost: 172 to 188 bytes per row of capacity, 490 with PROB's exact counts; it does not grow with the stream.
    When saved, 12 to 22 bytes per stored row, and for PROB 8 to 9 per counted key.

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
            raise BraidedError(f"{capacity=}: not a number of rows; write 1 to {MOST_ROWS}")
        if not 2 <= streams <= MOST_STREAMS:
            raise BraidedError(f"{streams=}: not a number of streams; write 2 to {MOST_STREAMS}")
        if share not in ("unified", "proportional"):
            raise BraidedError(f"{share=}: unknown value; write 'unified' or 'proportional'")
        if share == "proportional" and capacity < streams:
            raise BraidedError(f"{capacity=}: too small for {streams} streams; write at least {streams}")
        lo, hi = window
        if lo > hi:
            raise BraidedError(f"{window=}: the lower bound is above the upper bound; swap them")
        if streams > 2 and lo != -hi:
            raise BraidedError(f"{window=}: not symmetric; with {streams} streams write (-w, w)")
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
        """Totals since the start: events, pairs, results, and expired, evicted, refused and too large rows."""
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
        """Process events from `start`. If an output is full, it stops early; call it again from there.

        Without `pair_row`, pairs are only counted; without `dropped_row`, removed rows are only counted. Pairs are
        written as (number of the event in `events`, id of the stored row).
        """
        self._check(events, start)
        counting, reporting = pair_row is None, dropped_row is None
        if not counting and (pair_event is None or len(pair_event) != len(pair_row) or not len(pair_row)):  # type: ignore[arg-type]
            raise BraidedError("pair_event, pair_row: pass two arrays of the same length, at least 1")
        if not reporting and (drop_reason is None or len(drop_reason) != len(dropped_row) or not len(dropped_row)):  # type: ignore[arg-type]
            raise BraidedError("dropped_row, drop_reason: pass two arrays of the same length, at least 1")
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
        """Process all events and return all pairs and all removed rows."""
        return collect(self, events, room)

    def to_bytes(self) -> bytes:
        """Return the buffer as bytes, also between two steps of one event.

        With `rows_elsewhere` set, the keys, times and ids of the rows are left out; `attach` sets them again.
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
        """Return a saved buffer, which must have the same policy.

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
        """Set the rows, oldest first, of a buffer that was read from bytes and whose rows were saved elsewhere."""
        if self._unread is None:
            raise BraidedError("attach: this buffer has its rows already")
        header, data, at = self._unread
        self.learned = load(self.state, self.policy, self.learned, header, data, at, (keys, times, ids))
        self._unread = None

    def set_facts(self, *, sizes: Ints | None = None, most_bytes: int = 0, probes: Bytes | None = None) -> None:
        """Set facts by row id, of the stored rows and of the next ones.

        sizes : the bytes of each row. Stored rows have at most `most_bytes` together; a larger row is counted, but not
            stored. probes : not 0 for rows that only probe, which do not match each other.
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
            raise BraidedError("buffer: the rows were saved elsewhere; call attach first")
        lengths = {len(a) for a in events[:5]}
        if len(lengths) > 1 or (len(events.hints) and len(events.hints) != len(events.keys)):
            raise BraidedError("events: the arrays have different lengths; pass arrays of one length")
        if self.policy.hinted and len(events.hints) != len(events.keys):
            raise BraidedError(f"hints: {type(self.policy).__name__} needs them; pass one number per event")
        if not 0 <= start <= len(events.keys):
            raise BraidedError(f"{start=}: not the number of an event; pass 0 to {len(events.keys)}")
        times = events.times
        if start == 0 and len(times):
            if (times[1:] < times[:-1]).any() or (self.last_time is not None and times[0] < self.last_time):
                raise BraidedError("events: times decrease; sort events by (time, stream, content)")
            if events.streams.min() < 0 or events.streams.max() >= len(self.state.streams):
                raise BraidedError(f"events: unknown stream; use streams 0 to {len(self.state.streams) - 1}")


class Steps(Protocol):
    """A buffer that processes events in steps."""

    def step(self, events: Events, start: int, **outputs: Unpack[Outputs]) -> Progress:
        """Process events from `start` until an output is full."""


def collect(buffer: Steps, events: Events, room: int) -> Result:
    """Process all events, in steps with outputs of size `room`, and return all output."""
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
