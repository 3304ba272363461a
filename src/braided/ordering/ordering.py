"""The ordering operator: rows wait until nothing before them can come, and leave in order of event time.

```
 rows of one or several inputs -> waiting (K) -> by (time, input, content) -> results
             later than what has left --------> flagged, dropped or aside --> results
             far ahead of everything ---------> apart, until they are believed or given up
```

With one input this is K-slack; with several it is StreamCloud's transparent input merger. A row leaves when its time
is before the clock minus K of every input that is not idle.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operator.contract import Admitted, Block, Json, Outcome, Work
from braided.operator.store import Store
from braided.ordering.waiting import INPUT, Waiting, in_order
from braided.routing.keys import KeyHasher
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.time.clocks import MAX_TIME, MIN_TIME, clamp
from braided.time.lateness import Lateness
from braided.time.quarantine import Quarantine
from braided.time.stream_clock import StreamClock, all_safe, lateness_options, update_all

SEQ, LATE = "seq", "late"
# What leaves at a time.
_PIECE_ROWS = 1 << 18
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True)
class Ordering:
    """Puts rows of one or several inputs of one schema in order of event time, per key or as a whole.

    Without a key all rows go to one worker and get a gap-free number. Cost: a sort of each batch's rows, one write
    and one read of those that wait. State: the rows that wait, once.
    """

    schema: pa.Schema
    streams: int
    time: str
    key: tuple[str, ...]
    hasher: KeyHasher
    lateness: tuple[int | Lateness, ...]
    flagged: bool
    """Whether late rows leave, marked; else they are counted and dropped."""
    idle: int | None = None

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        """The Arrow schema of each input's rows."""
        return (self.schema,) * self.streams

    @property
    def times(self) -> tuple[str, ...]:
        """The event-time column of each input."""
        return (self.time,) * self.streams

    @property
    def names(self) -> tuple[str, ...]:
        """What reports call the inputs."""
        return ("input",) if self.streams == 1 else tuple(f"input {at}" for at in range(self.streams))

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results: the input's, then the number, then the mark of late rows."""
        fields = [*self.schema, *([] if self.key else [pa.field(SEQ, pa.int64())])]
        return pa.schema([*fields, *([pa.field(LATE, pa.bool_())] if self.flagged else [])])

    @cached_property
    def _kept(self) -> pa.Schema:
        return self.schema.append(pa.field(INPUT, pa.int8())) if self.streams > 1 else self.schema

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        return {
            "operator": "order",
            "inputs": self.streams,
            "time": self.time,
            "key": list(self.key),
            "lateness": lateness_options(self.lateness),
            "idle": self.idle,
            "rows": [f"{field.name} {field.type}" for field in self.schema],
        }

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Route each row by its key; rows whose key has a null go together."""
        hashes = np.zeros(rows.num_rows, np.uint64)
        if self.key:
            valid = np.ones(rows.num_rows, np.bool_)
            for name in self.key:
                valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
            keyed = rows.select(list(self.key))
            keyed = keyed if valid.all() else keyed.filter(pa.array(valid))
            hashes[valid] = self.hasher.hash(keyed.columns, keyed.num_rows)
        routes = route(table, side, hashes, lambda at: hashes[at])
        return Admitted(rows, routes, _times(rows, self.time), 0)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key, its columns separated by commas."""
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.key)

    def process(self, work: Work, state: Json | None, store: Store) -> Generator[pa.RecordBatch, None, Outcome]:
        """Order one batch."""
        old: Json = state or {
            "horizon": MIN_TIME, "last": MIN_TIME, "block": 0, "seq": 0,
            "waiting": [], "apart": [[] for _ in range(self.streams)], "streams": None, "tallies": None,
        }  # fmt: skip
        clocks = [StreamClock(lateness, idle=self.idle) for lateness in self.lateness]
        if old["streams"] is not None:
            for clock, known in zip(clocks, old["streams"], strict=True):
                clock.restore(known)
        last = old["last"]
        update_all(clocks, work.streams, work.moment, self._missed(work, clocks, last))
        until = MAX_TIME if work.final else max(old["horizon"], all_safe(clocks))
        waiting = Waiting(self._kept, self.time, store, old["waiting"], old["block"])
        rule = Quarantine(clocks, final=work.final)
        late, fresh, doubtful = self._sort(work, last, rule.limit)
        known, given_up = len(fresh), []
        apart = []
        for side, clock in enumerate(clocks):
            runs = Waiting(self._kept, self.time, store, old["apart"][side], waiting.next_block)
            given_up += self._apart(runs, side, rule, clock.jump + clock.lateness, doubtful, fresh)
            waiting.next_block = runs.next_block
            apart.append(runs)

        out = _Numbering(self, old["seq"])
        tallies = _Tallies(self.names, old["tallies"])
        tallies.late([(rows, last - _times(rows, self.time).astype(np.float64)) for rows in late])
        tallies.quarantine(doubtful, vouched=fresh[known:], given_up=given_up)
        tallies.wait(fresh, 1)
        for rows in (*late, *given_up):
            if self.flagged:
                yield from out.add(rows, late=True)
        for rows in waiting.release(fresh, until):
            last = int(_times(rows, self.time)[-1])
            tallies.wait([rows], -1)
            yield from out.add(rows, late=False)
        stored = [*waiting.runs, *(run for side in apart for run in side.runs)]
        levels = {
            "stored_rows": sum(run.waiting for run in stored),
            "stored_bytes": sum(run.bytes for run in stored),
            "runs": len(stored),
            **tallies.levels(),
        }
        new = {
            "horizon": until,
            "last": last,
            "block": waiting.next_block,
            "seq": out.next,
            "waiting": waiting.to_json(),
            "apart": [runs.to_json() for runs in apart],
            "streams": [clock.to_json() for clock in clocks],
            "tallies": tallies.to_json(),
        }
        return Outcome(
            new,
            counts={"results": out.next - old["seq"], **tallies.counts},
            levels=levels,
            streams=[{"name": name, **clock.report()} for name, clock in zip(self.names, clocks, strict=True)],
        )

    def _missed(self, work: Work, clocks: list[StreamClock], last: int) -> list[int] | None:
        """Return how many rows of each input come too late, where a recall target asks; None where no worker sees all.

        Without a key worker 0 has all rows, and its K is the only one that counts. With keys the workers have let go
        different rows, yet all must learn the same K: they go by what all routers tell all of them.
        """
        targets = [rule for rule in self.lateness if isinstance(rule, Lateness) and rule.recall is not None]
        if self.key or work.worker or not targets:
            return None
        missed = [0] * self.streams
        for block in work.blocks:
            clock = clocks[block.side]
            times = _times(block.rows, self.time)
            known = MIN_TIME if clock.clock is None else clamp(clock.clock - clock.jump)
            missed[block.side] += int(((times < last) & (times >= known)).sum())
        return missed

    def _sort(
        self, work: Work, earliest: int, limit: int
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return a batch's rows, in order: those too late, those in time, those far ahead."""
        if not work.blocks:
            return [], [], []
        rows = pa.concat_batches([self._marked(block) for block in work.blocks])
        rows, times = in_order(rows, _times(rows, self.time))
        first, end = np.searchsorted(times, earliest), np.searchsorted(times, limit, side="right")
        parts = (rows.slice(0, first), rows.slice(first, end - first), rows.slice(end))
        late, fresh, doubtful = ([part] if part.num_rows else [] for part in parts)
        return late, fresh, doubtful

    def _marked(self, block: Block) -> pa.RecordBatch:
        if self.streams == 1:
            return block.rows
        return block.rows.append_column(INPUT, pa.array(np.full(block.rows.num_rows, block.side, np.int8)))

    def _apart(
        self,
        apart: Waiting,
        side: int,
        rule: Quarantine,
        patience: int,
        doubtful: list[pa.RecordBatch],
        fresh: list[pa.RecordBatch],
    ) -> list[pa.RecordBatch]:
        """Keep an input's doubted rows apart; move what is believed to the fresh ones; return what was given up."""
        given_up = []
        for run in list(apart.runs):
            verdict = rule.judge(side, run.first, run.since, patience)
            if verdict == "believed":
                rows = apart.take(run)
                stop = int(np.searchsorted(apart.times(rows), rule.limit, side="right"))
                fresh.append(rows.slice(0, stop))
                apart.store(rows.slice(stop), run.since)
            elif verdict == "given up":
                given_up.append(apart.take(run))
        for rows in doubtful:
            apart.store(rows.filter(pa.array(_inputs(rows) == side)), rule.since(side))
        apart.compact()
        return given_up


class _Tallies:
    """What a worker's report says of each input: rows waiting and quarantined, late rows and by how much."""

    def __init__(self, names: tuple[str, ...], state: dict[str, list[int]] | None) -> None:
        self._names = names
        none = [0] * len(names)
        self._state = state or {"waiting": none, "quarantined": list(none), "most_late": list(none)}
        self.counts: dict[str, int] = {}

    def late(self, late: list[tuple[pa.RecordBatch, npt.NDArray[np.float64]]]) -> None:
        """Count rows with how late each was."""
        for at, name in enumerate(self._names):
            by = [delays[_inputs(rows) == at] for rows, delays in late]
            self.counts[f"late:{name}"] = sum(map(len, by))
            self.counts[f"late_us:{name}"] = sum(int(delays.sum()) for delays in by)
            most = (int(delays.max(initial=0)) for delays in by)
            self._state["most_late"][at] = max([self._state["most_late"][at], *most])

    def quarantine(
        self, doubtful: list[pa.RecordBatch], *, vouched: list[pa.RecordBatch], given_up: list[pa.RecordBatch]
    ) -> None:
        """Count rows that were put apart, those that others vouch for by now, and those given up."""
        gone = self._per_input(given_up)
        moved = self._per_input(doubtful) - self._per_input(vouched) - gone
        self._state["quarantined"] = (np.array(self._state["quarantined"]) + moved).tolist()
        self.counts |= {f"given_up:{name}": int(gone[at]) for at, name in enumerate(self._names)}

    def wait(self, rows: list[pa.RecordBatch], sign: int) -> None:
        """Count rows that wait from now on, or with a negative sign that wait no longer."""
        self._state["waiting"] = (np.array(self._state["waiting"]) + sign * self._per_input(rows)).tolist()

    def _per_input(self, batches: list[pa.RecordBatch]) -> npt.NDArray[np.int64]:
        counts = np.zeros(len(self._names), np.int64)
        for rows in batches:
            counts += np.bincount(_inputs(rows), minlength=len(counts)) if len(counts) > 1 else rows.num_rows
        return counts

    def levels(self) -> dict[str, int]:
        """Return the counts of the moment."""
        return {f"{what}:{name}": of[at] for what, of in self._state.items() for at, name in enumerate(self._names)}

    def to_json(self) -> dict[str, list[int]]:
        """Return what is kept from batch to batch."""
        return self._state


class _Numbering:
    """Turns kept rows into results."""

    def __init__(self, ordering: Ordering, next_: int) -> None:
        self._ordering = ordering
        self.next = next_

    def add(self, rows: pa.RecordBatch, *, late: bool) -> Iterator[pa.RecordBatch]:
        """Yield rows as results, with their numbers and the mark, in pieces."""
        for piece in _pieces(rows):
            count = piece.num_rows
            columns = piece.columns[: len(self._ordering.schema)]
            if not self._ordering.key:
                columns.append(pa.array(np.arange(self.next, self.next + count)))
            if self._ordering.flagged:
                columns.append(pa.array(np.full(count, late)))
            self.next += count
            yield pa.RecordBatch.from_arrays(columns, schema=self._ordering.output)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut rows in halves until each part is small; all rows of one moment come together, however many and large."""
    if rows.num_rows > 1 and (rows.num_rows > _PIECE_ROWS or rows.nbytes > _PIECE_BYTES):
        middle = rows.num_rows // 2
        yield from _pieces(rows.slice(0, middle))
        yield from _pieces(rows.slice(middle))
    else:
        yield rows


def _inputs(rows: pa.RecordBatch) -> npt.NDArray[np.int8]:
    inputs: npt.NDArray[np.int8] = (
        rows.column(INPUT).to_numpy() if INPUT in rows.schema.names else np.zeros(rows.num_rows, np.int8)
    )
    return inputs


def _times(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = rows.column(column).view(pa.int64()).to_numpy()
    return times
