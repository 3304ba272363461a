"""The as-of join as an operator: right rows are stored by key, a left row is answered once the right horizon passes it.

```
 left rows  -> ordering stage, led by    -> sorted by key and time, with kept rows -> answers: results
 right rows ->   the right stream                           |--> needed or waiting: kept, in blocks
 left rows without a key or a time --------------------------------------------------> with nulls: results
```

A right row is kept while it is not before the left rows that can still come, and after that while it is the last one of
its key, within the tolerance. With ``forward`` and ``nearest`` left rows wait beside them for a closer row.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.asof.answers import pieces
from braided.operators.asof.closest import Merged, Search
from braided.operators.asof.ties import winners
from braided.operators.asof.waiting_rows import LATE, LEFT, RIGHT, Keyed, RowFormat, together
from braided.operators.join.arrivals import OutputColumn
from braided.operators.keyless_rows import KeylessRows
from braided.operators.match.key_groups import merged_by_key
from braided.operators.match.open_rows import Hashes, OpenRows, StoredRows
from braided.routing.content import content_hashes
from braided.routing.key_hashes import KeyHasher
from braided.routing.routes import route
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Block, Json, Outcome, Work
from braided.runtime.ordering_stage import Aside, OrderingStage, jump_and_lateness
from braided.time.clocks import MAX_TIME, MIN_TIME
from braided.time.lateness import Lateness
from braided.time.quarantine import Quarantine
from braided.time.stream_clock import lateness_options

LABELS = ("left", "right")
_LEFT, _RIGHT = 0, 1

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Moments:
    """Rows of both streams up to a time, and what is known by then.

    horizon : all right rows before it are there. earliest : left rows that come later and are before it are late.
    """

    left: Keyed
    right: Keyed
    horizon: int
    earliest: int
    final: bool = False


@dataclass(frozen=True)
class AsofJoin:
    """Joins each left row with the one right row of its key that is the closest in time.

    Cost: a sort of each batch's rows by time and by key, one pass over the rows of the keys that it has. State: rows
    that wait for the right stream's horizon; of each key the right rows from the left horizon on, and the last before
    it; left rows whose answer a later row can still be.
    """

    inputs: tuple[pa.Schema, pa.Schema]
    keys: tuple[tuple[str, ...], ...]
    times: tuple[str, ...]
    lateness: tuple[int | Lateness, ...]
    hasher: KeyHasher
    columns: tuple[OutputColumn, ...]
    search: Search
    outer: bool
    """Whether left rows without an answer are returned."""
    idle: int | None = None

    @property
    def untimed(self) -> tuple[int, ...]:
        """The inputs whose rows are accepted even without a time."""
        return (_LEFT,) if self.outer else ()

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the results."""
        return pa.schema([pa.field(c.name, self.inputs[c.side].field(c.source).type) for c in self.columns])

    @cached_property
    def _stored(self) -> RowFormat:
        return RowFormat(*self.inputs, waits=self.search.direction != "backward")

    @property
    def options(self) -> Json:
        """Everything that gives the stored state its meaning."""
        return {
            "operator": "join_asof",
            "on": [list(names) for names in self.keys],
            "time": list(self.times),
            "direction": self.search.direction,
            "tolerance": self.search.tolerance,
            "allow_exact_matches": self.search.exact,
            "how": "left" if self.outer else "inner",
            "lateness": lateness_options(self.lateness),
            "idle": self.idle,
            "left": [f"{field.name} {field.type}" for field in self.inputs[0]],
            "right": [f"{field.name} {field.type}" for field in self.inputs[1]],
        }

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Route each row by its key. Rows without a key are dropped, except left rows that are returned anyway."""
        valid = self._has_key(side, rows)
        nulls = rows.num_rows - int(valid.sum())
        keeps = self.outer and side == _LEFT
        if nulls and not keeps:
            rows = rows.filter(pa.array(valid))
        hashes = self._hashes(side, rows)
        if nulls and keeps:  # any worker will do, but not one for all of them
            hashes[~valid] = content_hashes(rows.filter(pa.array(~valid)))
        routes = route(table, side, hashes, lambda at: hashes[at])
        return Admitted(rows, routes, self._times(side, rows), nulls)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        """Return a row's key, its columns separated by commas."""
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.keys[side])

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        """Return the answers that one batch decides."""
        old: Json = state or {"stage": None, "kept": None, "fresh": False}
        stage = OrderingStage(self, old["stage"], blocks, agreed=True, lead=_RIGHT)
        keyed, keyless, untimed = self._sorted_out(work.blocks)
        aside = stage.take(replace(work, blocks=keyed))
        open_rows = OpenRows(blocks, self._stored.schema, old["kept"])
        results = 0
        waiting_keyless = KeylessRows(blocks, self.inputs[_LEFT], self.times[_LEFT], old.get("keyless", ()))
        horizon = MAX_TIME if stage.silent else stage.ahead
        rule, patience = Quarantine(stage.clocks), jump_and_lateness(stage.clocks, _LEFT)
        leaving = waiting_keyless.release(keyless, horizon, rule, _LEFT, patience, final=work.final)
        for rows in itertools.chain(untimed, leaving):
            for piece in self._with_nulls(rows):
                results += piece.num_rows
                yield piece
        for moments in self._moments(stage, aside, final=work.final or stage.silent):
            for piece in self._answers(open_rows, moments):
                results += piece.num_rows
                yield piece
        waiting, stored = stage.stored(), open_rows.levels()
        # Left rows may wait among the stored right rows; they are not counted separately.
        fresh = not stage.silent and (old.get("fresh", True) or any(stream.rows for stream in work.streams))
        other = waiting_keyless.levels()
        levels = {**{name: waiting[name] + stored[name] + other[name] for name in waiting}, **stage.levels(LABELS)}
        may_wait = (self._stored.waits and stored["stored_rows"]) or other["stored_rows"]
        if fresh and may_wait and "releasable" in levels:
            levels["releasable"] = 1
        return Outcome(
            {
                "stage": stage.to_json(),
                "kept": open_rows.to_json(),
                "fresh": fresh,
                "keyless": waiting_keyless.to_json(),
            },
            counts={"results": results, **stage.counts(LABELS)},
            levels=levels,
            streams=[{"name": name, **known} for name, known in zip(LABELS, stage.report(), strict=True)],
        )

    def late_before(self, state: Json | None) -> list[int]:
        """Return the times before which rows of each stream are late, by the state before a batch."""
        return [MIN_TIME, MIN_TIME] if state is None else [state["stage"]["until"], state["stage"]["ahead"]]

    def answer_all(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of complete streams. Precondition: all rows have a key and a time."""
        sides = self._keyed(_LEFT, left), self._keyed(_RIGHT, right)
        yield from self._decide(Moments(*sides, MAX_TIME, MAX_TIME, final=True))

    def _sorted_out(self, blocks: Sequence[Block]) -> tuple[list[Block], list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Return the blocks of rows that may have an answer, left rows without a key, and rows without a time."""
        keyed, keyless, untimed = [], [], []
        for block in blocks:
            if not block.timed:
                untimed.append(block.rows)
                continue
            valid = self._has_key(block.side, block.rows)
            if not valid.all():
                keyless.append(block.rows.filter(pa.array(~valid)))
                block = Block(block.side, block.rows.filter(pa.array(valid)), 0)  # noqa: PLW2901
            keyed.append(block)
        return keyed, keyless, untimed

    def _with_nulls(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield left rows with nulls for the right columns."""
        at, none = np.arange(rows.num_rows), np.full(rows.num_rows, -1, np.int64)
        yield from pieces(self.columns, self.output, rows, _empty(self.inputs[_RIGHT]), at, none)

    def _moments(self, stage: OrderingStage, aside: Aside, *, final: bool) -> Iterator[Moments]:
        """Yield rows in order of time, piece by piece, late ones with the first piece; the last piece may be empty."""
        late = [self._keyed(side, aside.late[side].rows, late=True) for side in (_LEFT, _RIGHT)]
        left, right = late
        horizon: int | None = None
        for sides in stage.release():
            if horizon is not None:
                yield Moments(left, right, horizon, min(stage.until, horizon))
                left, right = (self._keyed(side, sides[side].rows) for side in (_LEFT, _RIGHT))
            else:
                left, right = (together([late[side], self._keyed(side, sides[side].rows)]) for side in (_LEFT, _RIGHT))
            horizon = stage.last + 1
        yield Moments(left, right, stage.ahead, stage.until, final)

    def _answers(self, open_rows: OpenRows, moments: Moments) -> Iterator[pa.RecordBatch]:
        """Yield the results of left rows whose answer is known; store the other rows that are still needed."""
        new = np.concatenate([moments.right.hashes, moments.left.hashes])
        among = len(moments.right.hashes)
        for leaves, own in open_rows.touched(new, MAX_TIME if moments.final else moments.horizon):
            left, right = moments.left, moments.right
            if own is not None:
                left, right = left.pick(own[own >= among] - among), right.pick(own[own < among])
            waiting, needed = self._stored.decode([part for leaf in leaves for part in open_rows.read(leaf)])
            stays = yield from self._decide(
                replace(moments, left=together([*waiting, left]), right=together([*needed, right]))
            )
            open_rows.replace(leaves, *stays)

    def _decide(
        self, moments: Moments
    ) -> Generator[pa.RecordBatch, None, tuple[StoredRows, npt.NDArray[np.bool_], npt.NDArray[np.int64]]]:
        """Yield results; return the rows to keep, by their hashes, and when to look at each again."""
        left, right = moments.left, moments.right
        order, hashes, merged = self._merged(left, right)
        answers = self.search.answer(merged, moments.horizon, final=moments.final)
        among = right.rows.num_rows
        decided = ~merged.is_right & ~answers.waits
        if not self.outer:
            decided &= answers.right >= 0
        elif left.late.any():
            lost = np.append(np.zeros(among, np.bool_), left.late)[order] & (answers.right < 0)
            decided &= ~lost
        at = np.flatnonzero(decided)
        answer = answers.right[at]
        rights = np.where(answer < 0, -1, order[answer])
        yield from pieces(self.columns, self.output, left.rows, right.rows, order[at] - among, rights)
        stays = np.flatnonzero(answers.waits | self.search.needed(merged, answers, moments.earliest))
        of_right, place = merged.is_right[stays], order[stays]
        rows = self._stored.encode(
            right.rows, left.rows, np.where(of_right, place, -1), np.where(of_right, -1, place - among)
        )
        marks = np.full(len(stays), RIGHT, np.uint8)
        marks[~of_right] = np.where(left.late[place[~of_right] - among], LATE, LEFT)
        due = answers.due[stays]
        due[of_right] = self.search.expiry(merged.times[stays[of_right]], moments.horizon, moments.earliest)
        return StoredRows(rows, hashes[stays], marks), np.ones(len(stays), np.bool_), due

    def _merged(self, left: Keyed, right: Keyed) -> tuple[Index, Hashes, Merged]:
        """Return the order of right rows and then left rows by (key, time), their hashes, and the rows in it.

        If several right rows have one key and time, only the one that answers is included.
        """
        among = right.rows.num_rows
        hashes = np.concatenate([right.hashes, left.hashes])
        times = np.concatenate([self._times(_RIGHT, right.rows), self._times(_LEFT, left.rows)])
        keys = self.keys[_RIGHT], self.keys[_LEFT]
        order, bounds = merged_by_key((right.rows, left.rows), hashes, times, keys, self.hasher)
        of_right = order < among
        first = np.zeros(len(order), np.bool_)
        first[bounds[:-1]] = True
        ordered = times[order]
        tied = np.zeros(len(order), np.bool_)
        tied[1:] = of_right[1:] & of_right[:-1] & (ordered[1:] == ordered[:-1]) & ~first[1:]
        if tied.any():
            wins = np.ones(len(order), np.bool_)
            wins[of_right] = winners(right.rows, order[of_right], tied[of_right])
            bounds = np.append(0, np.cumsum(wins))[bounds]
            order, ordered, of_right = order[wins], ordered[wins], of_right[wins]
        return order, hashes[order], Merged(bounds, ordered, of_right)

    def _keyed(self, side: int, rows: pa.RecordBatch, *, late: bool = False) -> Keyed:
        return Keyed(rows, self._hashes(side, rows), np.full(rows.num_rows, late))

    def _hashes(self, side: int, rows: pa.RecordBatch) -> Hashes:
        return self.hasher.hash_with_nulls([rows.column(name) for name in self.keys[side]], rows.num_rows)

    def _has_key(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        valid = np.ones(rows.num_rows, np.bool_)
        for name in self.keys[side]:
            if rows.column(name).null_count:
                valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
        return valid

    def _times(self, side: int, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        times: npt.NDArray[np.int64] = rows.column(self.times[side]).view(pa.int64()).to_numpy()
        return times


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
