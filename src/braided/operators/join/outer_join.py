"""Joins that must know which rows match nothing: left, right and full outer joins, semi joins and anti joins.

```
 a left row l ----- matches r1 (pair at once) ----- r2 (pair at once) ----- expires:   nothing more
 a left row m ------------------------------------------------------------ returned:  (m, nulls)
                                                                            ^ m.t + hi < clock_right - K_right
```

A row of a *preserved* stream is stored in one worker, its home, with all rows that may match it, also while the routing
changes (`braided.routing.home_routes`; the keys of a full join, which preserves both streams, never move). It is
**settled** once it can no longer be returned without a match: it has matched, was returned already, or was late. A bit
for each row is stored beside its run. When only late rows could still match it, a row that is not settled is returned
with nulls. A semi join returns a row at its first match. An anti join returns the rows that an outer join returns with
nulls.

*Why it is exact.* Horizons never go back, even if a lateness grows: a row is late if it is behind the highest horizon
that a batch has committed. A preserved row that is not late meets the earlier rows of the other stream, since expired
rows are outside its window, and the later ones, since it stays until none can come. A late row may have missed a match,
so it is never returned with nulls. A row without a key matches nothing, and is returned when others of its time are. A
row without a time is returned at once.

When all streams are idle, every row that is not settled is returned. This moves no horizon, and rows stay stored as
long as otherwise: a row that comes after the silence is not late because of it, and still finds its pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.join.emit import PIECE_BYTES, PIECE_ROWS, Emitter, Index, Ranges
from braided.operators.join.held_pairs import HeldPairs
from braided.operators.join.runs import Run
from braided.operators.join.stored import JoinState
from braided.operators.join.window_join import WindowJoin
from braided.operators.keyless_rows import KeylessRows
from braided.routing.content import content_hashes
from braided.routing.home_routes import route_to_homes
from braided.routing.routes import Routes
from braided.routing.table import RoutingTable
from braided.routing.tally import Tally
from braided.runtime.blocks import Blocks, parts_of
from braided.runtime.contract import Admitted, Block, Json, Outcome, Work
from braided.time.clocks import MAX_TIME, MIN_TIME, clamp
from braided.time.stream_clock import StreamTime, all_idle

Kind = Literal["left", "right", "full", "left_semi", "left_anti"]
_PRESERVED: dict[str, tuple[int, ...]] = {
    "left": (0,),
    "right": (1,),
    "full": (0, 1),
    "left_semi": (0,),
    "left_anti": (0,),
}
_DESCRIPTIONS = {
    "left": "keeps all left rows",
    "right": "keeps all right rows",
    "full": "keeps all rows of both",
    "left_semi": "keeps left rows that match",
    "left_anti": "keeps left rows that match nothing",
}


@dataclass(frozen=True)
class OuterJoin(WindowJoin):
    """An exact outer, semi or anti join of two streams: it decides about rows, not only about pairs.

    Cost: that of the inner join, and a bit for each stored row of a preserved stream.
    """

    how: Kind = "left"

    @property
    def preserved(self) -> tuple[int, ...]:
        return _PRESERVED[self.how]

    @property
    def home(self) -> int | None:
        return self.preserved[0] if len(self.preserved) == 1 else None

    @property
    def untimed(self) -> tuple[int, ...]:
        """The inputs whose rows without a time are returned: see `keeps_untimed`."""
        return () if self.how == "left_semi" else self.preserved

    @property
    def options(self) -> Json:
        return {**super().options, "how": self.how}

    def describe(self) -> str:
        return f"{super().describe()}; {_DESCRIPTIONS[self.how]}"

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Route each row by its key. Rows without a key are dropped, except those that are returned with nulls."""
        valid = self._has_key(side, rows)
        nulls = rows.num_rows - int(valid.sum())
        if not nulls or side not in self.untimed:
            return super().admit(side, rows, table)
        hashes = np.empty(rows.num_rows, np.uint64)
        hashes[valid] = self.hashes(side, rows.filter(pa.array(valid)))
        # Any worker will do, but not one for all of them.
        hashes[~valid] = content_hashes(rows.filter(pa.array(~valid)))
        routes = self.routes(side, rows, hashes, table)
        return Admitted(rows, routes, self.times_of(side, rows), nulls, hashes)

    adopt = None  # type: ignore[assignment]
    """Not supported: which rows are settled is not yet redistributed to a new number of workers."""

    def routes(self, side: int, rows: pa.RecordBatch, hashes: npt.NDArray[np.uint64], table: RoutingTable) -> Routes:
        if self.home is None:
            return super().routes(side, rows, hashes, table)
        content = lambda at: content_hashes(rows.take(pa.array(at)))  # noqa: E731
        return route_to_homes(table, side, self.home, hashes, content)

    def process(
        self, work: Work, state: Json | None, blocks: Blocks, ranges: Ranges | None = None
    ) -> Generator[pa.RecordBatch, None, Outcome]:
        """Join one batch."""
        assert ranges is None, "only inner joins start an aggregate in their workers"
        join_state = OuterState.restore(self, state, blocks)
        timed = [block for block in work.blocks if block.timed]
        late = [self.count_late(side, timed, join_state.safe[side]) for side in (0, 1)]
        keyed, keyless, untimed = self._sorted_out(work.blocks)
        new = [self._settled(side, self.new_runs(side, keyed, stored=True), join_state.safe[side]) for side in (0, 1)]
        probing = [self.new_runs(side, keyed, stored=False) for side in (0, 1)]
        tally = Tally() if work.watched else None
        if tally is not None:
            for side in (0, 1):
                for run in (*new[side], *probing[side]):
                    tally.rows(side, run.hashes, run.tags)
        join_state.advance(work)
        emitter = OuterEmitter(self, tally, join_state.held)
        for side, rows in untimed:
            yield from emitter.alone(side, rows)
        yield from emitter.meet(join_state, new, probing)
        for side in (0, 1):
            if side in self.untimed:
                for run, at in join_state.leaving(side, new[side], final=work.final):
                    yield from emitter.alone(side, run.rows.take(pa.array(at)))
                for rows in join_state.keyless_leaving(side, keyless[side], final=work.final):
                    yield from emitter.alone(side, rows)
            join_state.absorb(side, new[side])
        join_state.keep_settled()
        if join_state.held is not None:
            yield from emitter.released(join_state.held.release())
        return Outcome(
            join_state.to_json(),
            counts={"results": emitter.results, **join_state.counts(late)},
            load={} if tally is None else tally.to_json(),
            levels={**join_state.levels(), **join_state.releasable()},
            streams=join_state.reports(),
            progress=join_state.progress(),
        )

    def late_before(self, state: Json | None) -> list[int]:
        return [MIN_TIME, MIN_TIME] if state is None else list(state["safe"])

    def _has_key(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        valid = np.ones(rows.num_rows, np.bool_)
        for name in self.keys[side]:
            column = rows.column(name)
            if column.null_count:
                valid &= column.is_valid().to_numpy(zero_copy_only=False)
        return valid

    def _sorted_out(
        self, blocks: Sequence[Block]
    ) -> tuple[list[Block], tuple[list[pa.RecordBatch], ...], list[tuple[int, pa.RecordBatch]]]:
        """Return the blocks of rows that may match, the rows without a key of each side, and those without a time."""
        keyed: list[Block] = []
        keyless: tuple[list[pa.RecordBatch], ...] = ([], [])
        untimed: list[tuple[int, pa.RecordBatch]] = []
        for block in blocks:
            if not block.timed:
                untimed.append((block.side, block.rows))
                continue
            valid = self._has_key(block.side, block.rows)
            if not valid.all():
                keyless[block.side].append(block.rows.filter(pa.array(~valid)))
                tags = None if block.tags is None else block.tags[valid]
                block = replace(block, rows=block.rows.filter(pa.array(valid)), tags=tags)  # noqa: PLW2901
            keyed.append(block)
        return keyed, keyless, untimed

    def _settled(self, side: int, runs: list[Run], safe: int) -> list[Run]:
        """Mark which new rows are settled from the start: those that are late, except in a semi join."""
        if side in self.preserved:
            for run in runs:
                is_late = run.times < safe
                run.settled = np.zeros(len(is_late), np.bool_) if self.how == "left_semi" else is_late
        return runs


class OuterState(JoinState):
    """The state of such a join: horizons that never go back, and rows that are returned without a match."""

    safe: list[int]
    """The times before which rows of each stream are late."""
    silent = False
    """Whether all streams are idle for the first time since rows came: no row waits for them any more."""
    fresh: bool
    """Whether rows have come since everything was released."""
    keyless: list[KeylessRows]
    """The rows of each stream that have no key, and wait for other rows of their time."""
    earliest: list[int | None]
    """The first times of the rows of each stream that wait for a clock that does not count yet."""
    held: HeldPairs | None
    """Pairs of doubted rows that wait for rows without a match, which must be returned before them."""

    @classmethod
    def restore(cls, join: OuterJoin, state: Json | None, blocks: Blocks) -> OuterState:  # type: ignore[override]
        self = super().restore(join, state, blocks)
        assert isinstance(self, OuterState)
        self.safe = [MIN_TIME, MIN_TIME] if state is None else list(state["safe"])
        self.fresh = state is not None and state.get("fresh", True)
        self.earliest = [None, None] if state is None else state.get("earliest", [None, None])
        keyless = [[], []] if state is None else state.get("keyless", [[], []])
        self.keyless = [
            KeylessRows(blocks, schema, time, known)
            for schema, time, known in zip(join.inputs, join.times, keyless, strict=True)
        ]
        held = [[], []] if state is None else state.get("held", [[], []])
        self.held = None if join.how in ("left_semi", "left_anti") else HeldPairs(join, blocks, held)
        return self

    def to_json(self) -> Json:
        keyless = [rows.to_json() for rows in self.keyless]
        held = {} if self.held is None else {"held": self.held.to_json()}
        return {
            **super().to_json(),
            "safe": self.safe,
            "fresh": self.fresh,
            "earliest": self.earliest,
            "keyless": keyless,
            **held,
        }

    def levels(self) -> dict[str, int]:
        levels = super().levels()
        waiting: list[KeylessRows | HeldPairs] = [*self.keyless]
        if self.held is not None:
            waiting.append(self.held)
        for rows in waiting:
            levels |= {name: levels[name] + count for name, count in rows.levels().items()}
        return levels

    def advance(self, work: Work) -> None:
        before = [stream.counted for stream in self.streams]
        super().advance(work)
        for side, (clock, stream) in enumerate(zip(before, self.streams, strict=True)):
            if clock is not None and (stream.counted is None or stream.counted < clock):
                self.safe[side] = self._after_wrong_clock(side)
        came = self.fresh or any(stream.rows for stream in work.streams)
        idle = all_idle(self.streams)
        self.silent, self.fresh = came and idle, came and not idle
        if self.held is not None:
            self.earliest = [self._earliest(side, work.streams[side]) for side in (0, 1)]
            patience = [self.window.patience(side) for side in (0, 1)]
            self.held.begin(self.streams, self._quarantine, patience, self.earliest, final=work.final or self.silent)
        for side, (clock, stream) in enumerate(zip(self.clocks, self.streams, strict=True)):
            if clock is not None:
                self.safe[side] = max(self.safe[side], clamp(clock - stream.lateness))

    def _earliest(self, side: int, seen: StreamTime) -> int | None:
        """Return the first time of a stream's rows that wait for the other stream's clock, while it does not count."""
        if self.streams[1 - side].settled:
            return None
        known = [self.earliest[side], *(cluster.first for cluster in seen.clusters)]
        if self.safe[1 - side] > MIN_TIME:  # it counted before
            known.append(self.horizon(side))
        rule = self._join.lateness[side]
        if seen.rows and not isinstance(rule, int) and rule.clock_rows is not None:
            known.append(MIN_TIME)  # the times of some rows are not in the clusters
        return min((time for time in known if time is not None), default=None)

    def _after_wrong_clock(self, side: int) -> int:
        """Return the time before which rows are late after a wrong clock was reset.

        Because of the wrong clock, all rows of the other stream may have expired. Rows that could have matched them are
        late.
        """
        other = self.streams[1 - side].clock
        window = self._join.window
        assert hasattr(window, "reach")
        return MIN_TIME if other is None else clamp(other - window.reach(side)[0] + 1)

    @property
    def known_safe(self) -> list[int]:
        """See `JoinState`: here they never go back."""
        return self.safe

    def reports(self) -> list[Json]:
        """Return the reports of the streams: the controller needs to know which rows are late."""
        known = [None if safe == MIN_TIME else safe for safe in self.safe]
        return [{**stream.report(), "horizon": safe} for stream, safe in zip(self.streams, known, strict=True)]

    def horizon(self, side: int) -> int:
        safe = self.safe[1 - side]
        window = self._join.window
        assert hasattr(window, "reach")
        return MIN_TIME if safe == MIN_TIME else clamp(safe - window.reach(side)[1])

    def _leave_before(self, side: int, final: bool) -> int:
        """Return the time before which rows without a match are returned."""
        return MAX_TIME if final or self.silent else self.horizon(side)

    def leaving(self, side: int, new: Sequence[Run], *, final: bool) -> Iterator[tuple[Run, Index]]:
        """Yield runs and positions of the rows that are returned without a match, each once.

        After a leap of the clocks, rows in quarantine may be trusted and returned at once.
        """
        horizon = self._leave_before(side, final)
        believed = horizon if final else min(horizon, clamp(self._quarantine.limit + 1))
        groups = [(horizon, infos) for infos in self.sides[side]]
        groups += [(believed, infos) for _, infos in self.apart[side]]
        old = ((end, self.load(side, info)) for end, infos in groups for info in infos if info.first_time < end)
        for end, run in itertools.chain(((horizon, run) for run in new), old):
            assert run.settled is not None
            at = np.flatnonzero((run.times < end) & ~run.settled)
            if len(at):
                run.settled[at] = True
                yield run, at

    def keyless_leaving(self, side: int, new: Sequence[pa.RecordBatch], *, final: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows without a key that are released, in parts."""
        horizon = self._leave_before(side, final)
        patience = self.window.patience(side)
        yield from self.keyless[side].release(new, horizon, self._quarantine, side, patience, final=final)

    def releasable(self) -> dict[str, int]:
        """Return whether a silence would release rows, so that a source can make a tick."""
        if self._join.idle is None:
            return {}
        waits = any(self.sides[side] or self.keyless[side] for side in self._join.preserved)
        waits = self.fresh and bool(waits or self.held)
        return {"releasable": int(waits)}


class OuterEmitter(Emitter):
    """Pairs of an outer join, rows of a semi join at their first match, and rows without a match."""

    def __init__(self, join: OuterJoin, tally: Tally | None, held: HeldPairs | None) -> None:
        super().__init__(join, tally)
        self._outer = join
        self._held = held

    def emit(self, left_run: Run, right_run: Run, i: Index, j: Index) -> Iterator[pa.RecordBatch]:
        """Take pairs of positions; mark rows that have matched, and yield full pieces of results."""
        i, j = self.results_of(left_run, right_run, i, j)
        if not len(i):
            return
        how = self._outer.how
        if how == "left_semi":
            assert left_run.settled is not None
            first = np.unique(i[~left_run.settled[i]])
            yield from self.wait_for_more(left_run.rows, right_run.rows, first, np.zeros(len(first), np.int64))
        for run, at in ((left_run, i), (right_run, j)):
            if run.settled is not None:
                run.settled[at] = True
        if self._held is not None:
            held = self._held.take(left_run, right_run, i, j)
            if held is not None:
                i, j = i[~held], j[~held]
            yield from self.wait_for_more(left_run.rows, right_run.rows, i, j)

    def released(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield and count pairs that have waited."""
        for piece in pieces:
            self.results += piece.num_rows
            yield piece

    def alone(self, side: int, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield rows of one side that match nothing, in pieces, with nulls for the other side's columns."""
        join = self._outer
        keys = dict(zip(join.keys[0], join.keys[side], strict=True))
        for at in range(0, rows.num_rows, PIECE_ROWS):
            piece = rows.slice(at, PIECE_ROWS)
            for start, stop in parts_of(piece, PIECE_BYTES):
                part = piece.slice(start, stop - start)
                columns = []
                for column, field in zip(join.columns, join.output, strict=True):
                    own = column.source if column.side == side else keys.get(column.source)
                    is_key = column.side == 0 and column.source in keys
                    if column.side == side or is_key:
                        columns.append(part.column(str(own)))
                    else:
                        columns.append(pa.nulls(part.num_rows, field.type))
                self.results += part.num_rows
                yield pa.RecordBatch.from_arrays(columns, schema=join.output)
