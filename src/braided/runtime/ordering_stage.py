"""The ordering stage: rows of several streams wait until no earlier row can come, and leave in order.

```
 -- late --|earliest ... leave now ... |until ... wait ...|limit ... doubted: apart, until believed or discarded ...
```
A row leaves when its time is before the clock minus the lateness of every stream that is not idle, or when all streams
are idle. Rows leave in order of (time, stream, content). Each operator that needs rows in order has a stage, and
decides what to do with the rows, including late ones. If one stream has the `lead`, rows leave by its horizon alone, as
an as-of join needs it::

 -- late --|until .... leave at once, if not of the lead .... |ahead ... wait ...|limit ... doubted ...

The method `process` of such an operator looks like this::

    stage = OrderingStage(self, None if state is None else state["stage"], blocks)
    aside = stage.take(work)                 # rows that came too late or were discarded: return or drop them
    for sides in stage.release():            # `sides[n]` has rows of stream n, in order: one piece as `Rows`
        order = merged_order([rows.times(name) for rows, name in zip(sides, self.times, strict=True)])
        ...                                  # all streams together in order: rows of all, one after the other, [order]
    return Outcome(
        {"stage": stage.to_json(), ...},
        counts={"results": ..., **stage.counts(labels)},
        levels={"stored_rows": ..., **stage.levels(labels)},
        streams=stage.report(),
    )

All rows of the same time are in the same piece. `release` must be exhausted before `to_json` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from braided.routing.sorting import time_order
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json, TimedStreams, Work
from braided.runtime.rows import Index, Rows, Times, in_order, together
from braided.runtime.waiting_runs import Waiting
from braided.storage.topic_progress import Progress
from braided.time.clocks import MAX_TIME, MIN_TIME
from braided.time.quarantine import Quarantine, StreamProgress
from braided.time.stream_clock import StreamClock, all_idle, all_safe, safe_of, update_all

# Rows are merged and returned in pieces of about this many rows.
_PIECE_ROWS = 1 << 18

Patience = Callable[[Sequence[StreamClock], int], int]
"""A function of the clocks and a stream's number: how far a stream continues before its doubted rows are discarded."""


class Aside(NamedTuple):
    """The rows of each stream that a batch puts aside: rows that came too late, and rows that were discarded."""

    late: list[Rows]
    discarded: list[Rows]


def jump_and_lateness(clocks: Sequence[StreamClock], side: int) -> int:
    """Return how far a stream must continue before its doubted rows are discarded; the default `Patience`."""
    return clocks[side].jump + clocks[side].lateness


class OrderingStage:
    """The clocks of an operator's streams and the waiting rows, between load and save of one batch.

    agreed : if True, a row is late when rows after it may have left on any worker, so that all copies of a row are late
        together; otherwise when rows after it have left on this worker. marked : whether rows always keep the marks of
        their routing. lead : the stream by whose horizon alone rows leave; its own rows are late before this horizon,
        all others before `until`.

    Cost: a sort of each batch's rows; one write and one read of waiting rows. State: the waiting rows, once.
    """

    def __init__(
        self,
        streams: TimedStreams,
        state: Json | None,
        blocks: Blocks,
        patience: Patience = jump_and_lateness,
        *,
        agreed: bool = False,
        marked: bool = False,
        lead: int | None = None,
    ) -> None:
        self._inputs, self._times = streams.inputs, streams.times
        self._patience, self._agreed, self._marked, self._lead = patience, agreed, marked, lead
        sides = range(len(streams.inputs))
        old = state or {
            "until": MIN_TIME, "last": MIN_TIME, "batch": 0, "clocks": [], "most_late": [0 for _ in sides],
            "waiting": [[] for _ in sides], "apart": [[] for _ in sides],
        }  # fmt: skip
        self._idle = streams.idle
        self.clocks = [StreamClock(rule, idle=streams.idle) for rule in streams.lateness]
        for clock, known in zip(self.clocks, old["clocks"], strict=state is not None):
            clock.restore(known)
        self.until: int = old["until"]
        """All later rows before this time are late; without a lead, rows before it leave."""
        self.ahead: int = self.until if lead is None or state is None else state["ahead"]
        """Rows before this time have left, or leave now."""
        self.last: int = old["last"]
        """The time of the last row that has left."""
        self._batch: int = old["batch"]
        self._waiting, self._apart = (
            [Waiting(blocks, self._inputs[side], self._times[side], old[name][side]) for side in sides]
            for name in ("waiting", "apart")
        )
        self._fresh: list[list[tuple[Rows, Times]]] = [[] for _ in sides]
        self._most_late: list[int] = old["most_late"]
        self._counts = {name: [0 for _ in sides] for name in ("late", "late_us", "discarded")}

    def take(self, work: Work, missed: Sequence[int] | None = None) -> Aside:
        """Take a batch: move the clocks, and classify its rows and the rows in quarantine.

        `missed` is how many rows of each stream come too late, if one worker sees all rows.
        """
        update_all(self.clocks, work.streams, work.moment, missed)
        rule = Quarantine(self.clocks, final=work.final)
        before = self.until if self._agreed else self.last
        late_before = [self.ahead if side == self._lead else before for side, _ in enumerate(self._inputs)]
        self.until = MAX_TIME if work.final else max(self.until, all_safe(self.clocks))
        self.ahead = self.until if self._lead is None else max(self.ahead, self.until, safe_of(self.clocks, self._lead))
        self._final = work.final
        aside = Aside([], [])
        for side, schema in enumerate(self._inputs):
            earliest = late_before[side]
            blocks = [block for block in work.blocks if block.side == side]
            new = [Rows.of_block(block, self._batch, marked=self._marked) for block in blocks]
            rows = together(new, schema)
            rows, times = in_order(rows, rows.times(self._times[side]))
            first = int(np.searchsorted(times, earliest))
            end = max(first, int(np.searchsorted(times, rule.limit, side="right")))
            self._fresh[side] = [(rows.slice(first, end), times[first:end])]
            believed_late, discarded = self._quarantine(side, rule, earliest, rows.slice(end))
            aside.late.append(together([rows.slice(0, first), *believed_late], schema))
            aside.discarded.append(together(discarded, schema))
            # Only the primary copy of a row is counted.
            primary = [block.rows.slice(0, block.rows.num_rows - block.copies) for block in blocks if block.stored]
            self._tally(side, earliest, [*map(Rows, primary), *believed_late], discarded)
        self._batch += 1
        return aside

    def _quarantine(self, side: int, rule: Quarantine, earliest: int, doubted: Rows) -> tuple[list[Rows], list[Rows]]:
        """Put doubted rows into quarantine, and let believed rows wait; return late rows and discarded rows."""
        apart, late, discarded = self._apart[side], [], []
        patience = self._patience(self.clocks, side)
        for run in list(apart.runs):
            verdict = rule.judge(side, run.first, run.since, patience)
            if verdict == "doubted":
                continue
            rows = apart.take(run)
            if verdict == "discarded":
                discarded.append(rows)
                continue
            times = rows.times(self._times[side])
            stop = int(np.searchsorted(times, rule.limit, side="right"))
            first = min(stop, int(np.searchsorted(times, earliest)))
            late += [rows.slice(0, first)] if first else []
            self._fresh[side].append((rows.slice(first, stop), times[first:stop]))
            apart.store(rows.slice(stop), run.since)
        # The clock may have started with a wrong row, which was believed, and then moved back.
        for rows in self._waiting[side].tails(rule.limit):
            apart.store(rows, StreamProgress())
        apart.store(doubted, rule.since(side))
        apart.tidy(lambda since: rule.same(side, since, patience))
        return late, discarded

    def release(self) -> Iterator[list[Rows]]:
        """Yield the rows that leave, in order for each stream, piece by piece; store the rows that still wait."""
        heads: list[list[tuple[Rows, Times]]] = []
        for side, waiting in enumerate(self._waiting):
            heads.append(waiting.heads(self.ahead, final=self._final))
            for rows, times in self._fresh[side]:
                stop = len(times) if self._final else int(np.searchsorted(times, self.ahead))
                heads[-1].append((rows.slice(0, stop), times[:stop]))
                waiting.store(rows.slice(stop))
            heads[-1] = [head for head in heads[-1] if len(head[0])]
        for cut in _cuts([times for of_side in heads for _, times in of_side]):
            self.last = cut
            yield [_before(of_side, cut, schema) for of_side, schema in zip(heads, self._inputs, strict=True)]
        for waiting in self._waiting:
            waiting.tidy()

    def _tally(self, side: int, earliest: int, seen: Sequence[Rows], discarded: Sequence[Rows]) -> None:
        """Count late rows and how late they are, and discarded rows."""
        self._counts["discarded"][side] += sum(map(len, discarded))
        for rows in seen:
            times = rows.times(self._times[side])
            late = times[times < earliest]
            if len(late):
                by = earliest - late.astype(np.float64)
                self._counts["late"][side] += len(late)
                self._counts["late_us"][side] += int(by.sum())
                self._most_late[side] = max(self._most_late[side], int(by.max()))

    def counts(self, labels: Sequence[str]) -> dict[str, int]:
        """Return the counts of a batch for each stream: late rows, the sum of their lateness, and discarded rows."""
        return _labelled(self._counts, labels)

    def levels(self, labels: Sequence[str]) -> dict[str, int]:
        """Return the levels of each stream after a batch: waiting rows, doubted rows, and the largest lateness."""
        levels = {
            "waiting": [len(waiting) for waiting in self._waiting],
            "quarantined": [len(apart) for apart in self._apart],
            "most_late": self._most_late,
        }
        return {**_labelled(levels, labels), **({} if self._idle is None else {"releasable": int(self.releasable)})}

    @property
    def silent(self) -> bool:
        """Whether all streams are idle, so that no row waits for them."""
        return all_idle(self.clocks)

    @property
    def releasable(self) -> bool:
        """Whether some waiting rows leave when all streams are idle: rows that a clock that counts has reached."""
        reached = max((clock.counted for clock in self.clocks if clock.counted is not None), default=MIN_TIME)
        return any(run.waiting and run.first <= reached for waiting in self._waiting for run in waiting.runs)

    def progress(self) -> Progress:
        """Return the progress of the rows that leave: later rows are not before `until`, except late ones."""
        return Progress(self.until, max(clock.spread for clock in self.clocks))

    def stored(self) -> dict[str, int]:
        """Return the amount of waiting rows, under the names for stored rows in reports."""
        runs = [run for waiting in (*self._waiting, *self._apart) for run in waiting.runs]
        return {
            "stored_rows": sum(run.waiting for run in runs),
            "stored_bytes": sum(run.bytes for run in runs),
            "runs": len(runs),
        }

    def report(self) -> list[dict[str, Any]]:
        """Return the report fields of each stream's time."""
        return [clock.report() for clock in self.clocks]

    def to_json(self) -> Json:
        return {
            "until": self.until,
            **({} if self._lead is None else {"ahead": self.ahead}),
            "last": self.last,
            "batch": self._batch,
            "clocks": [clock.to_json() for clock in self.clocks],
            "most_late": self._most_late,
            "waiting": [waiting.to_json() for waiting in self._waiting],
            "apart": [apart.to_json() for apart in self._apart],
        }


def merged_order(times: Sequence[Times]) -> Index | None:
    """Return the order of the concatenated rows of several ordered streams; None if they are in order already.

    Rows of the same time are in order of their stream, and keep their order within a stream.

    >>> merged_order([np.array([1, 3]), np.array([1, 2])]).tolist()
    [0, 2, 3, 1]
    """
    if sum(len(of_side) > 0 for of_side in times) <= 1:
        return None
    return time_order(np.concatenate(times))


def _labelled(values: dict[str, list[int]], labels: Sequence[str]) -> dict[str, int]:
    return {f"{name}:{label}": value for name, of in values.items() for label, value in zip(labels, of, strict=True)}


def _before(heads: list[tuple[Rows, Times]], cut: int, schema: pa.Schema) -> Rows:
    """Take the rows up to a time from the heads of one stream, and return them in order."""
    parts, moments = [], []
    for at, (rows, times) in enumerate(heads):
        stop = int(np.searchsorted(times, cut, side="right"))
        if stop:
            parts.append(rows.slice(0, stop))
            moments.append(times[:stop])
            heads[at] = rows.slice(stop), times[stop:]
    if len(parts) <= 1:
        return together(parts, schema)
    # Usually most rows are in one part, after all other parts, and in order.
    longest = max(range(len(parts)), key=lambda part: moments[part][-1])
    others = max(times[-1] for part, times in enumerate(moments) if part != longest)
    end = int(np.searchsorted(moments[longest], others, side="right"))
    rest = parts[longest].slice(end)
    parts[longest], moments[longest] = parts[longest].slice(0, end), moments[longest][:end]
    merged = in_order(together(parts, schema), np.concatenate(moments))[0]
    return together([merged, rest], schema) if len(rest) else merged


def _cuts(moments: list[Times]) -> Iterator[int]:
    """Yield ascending times with about one piece of rows between two of them; the last time includes all rows."""
    if not moments:
        return
    last = max(int(times[-1]) for times in moments)
    low = min(int(times[0]) for times in moments)
    cut = low - 1
    for rows in range(_PIECE_ROWS, sum(map(len, moments)), _PIECE_ROWS):
        high = last
        while low < high:
            middle = (low + high) // 2
            if sum(int(np.searchsorted(times, middle, side="right")) for times in moments) >= rows:
                high = middle
            else:
                low = middle + 1
        if cut < low < last:
            yield low
            cut = low
    yield last
