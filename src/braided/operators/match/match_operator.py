"""The operator that searches for a pattern: rows enter in order of time, and are removed once no match can need them.

```
 rows -> ordering stage -> by key: open rows | new rows -> search -> matches: results
                                                              |----> undecided: open rows, in blocks
```

A start is decided by its rows, or when the horizon has passed its time plus `within`. Until then all rows from it on
are stored. The search restarts from an undecided start when its key gets rows, so that only rows are stored. Windows of
a number of rows are found in the same way: the `Finder` defines what is searched for.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.expressions.order_keys import ordered
from braided.operators.match.key_groups import by_key
from braided.operators.match.matcher import Finder, Sorted
from braided.operators.match.open_rows import Hashes, OpenRows, StoredRows
from braided.routing.key_hashes import KeyHasher
from braided.routing.routes import route
from braided.routing.sorting import build_directory, directory_shift, sort_order
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Admitted, Json, Outcome, Work
from braided.runtime.ordering_stage import OrderingStage
from braided.runtime.rows import Rows, in_order
from braided.storage.topic_progress import Progress
from braided.time.clocks import MAX_TIME, clamp
from braided.time.lateness import Lateness
from braided.time.stream_clock import lateness_options

_LABELS = ("input",)
# How many rows of complete streams are searched at a time, about.
_ENOUGH_ROWS = 1 << 18


@dataclass(frozen=True)
class MatchOperator:
    """Finds the matches of a pattern, or of another `Finder`, among the rows of each key, in order of time.

    Cost: a sort of each batch's rows by time and by key, and a search over the rows of keys that have new ones. State:
    the rows that wait to be in order, and those from the first undecided start of each key on.
    """

    schema: pa.Schema
    time: str
    hasher: KeyHasher
    rule: int | Lateness
    matcher: Finder
    meaning: Json
    """The options of the pattern, as the user wrote them."""
    idle: int | None = None
    ties: tuple[tuple[str, bool], ...] = ()
    """Columns that order rows of one time, and which are descending."""

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return (self.schema,)

    @property
    def times(self) -> tuple[str, ...]:
        return (self.time,)

    @property
    def lateness(self) -> tuple[int | Lateness, ...]:
        return (self.rule,)

    @property
    def output(self) -> pa.Schema:
        return self.matcher.output

    @property
    def options(self) -> Json:
        return {
            "operator": self.matcher.kind,
            "time": self.time,
            "key": list(self.matcher.key),
            "lateness": lateness_options(self.lateness),
            "within": self.matcher.within,
            **({} if self.idle is None else {"idle": self.idle}),
            **self.meaning,
            "columns": [f"{field.name} {field.type}" for field in self.schema],
        }

    def admit(self, side: int, rows: pa.RecordBatch, table: RoutingTable) -> Admitted:
        """Route each row by its key; rows whose key has a null go together."""
        hashes = self._hashes(rows)
        routes = route(table, side, hashes, lambda at: hashes[at])
        return Admitted(rows, routes, _times(rows, self.time), 0)

    def _hashes(self, rows: pa.RecordBatch) -> Hashes:
        return self.hasher.hash_with_nulls([rows.column(name) for name in self.matcher.key], rows.num_rows)

    def label(self, side: int, row: pa.RecordBatch) -> str:
        return ", ".join(str(row.column(name)[0].as_py()) for name in self.matcher.key)

    def process(self, work: Work, state: Json | None, blocks: Blocks) -> Generator[pa.RecordBatch, None, Outcome]:
        old: Json = state or {"stage": None, "open": None}
        # All rows before the horizon decide; a row before it that comes later is late, whatever was returned.
        stage = OrderingStage(self, old["stage"], blocks, agreed=True)
        stage.take(work)
        open_rows = OpenRows(blocks, self.schema, old["open"], numbered=self.matcher.numbered)
        matches = results = 0
        for rows, horizon in self._pieces(stage):
            for match_count, piece in self.find(open_rows, rows, horizon):
                matches += match_count
                if piece is not None:
                    results += piece.num_rows
                    yield piece
        waiting, opened = stage.stored(), open_rows.levels()
        counts = {"matches": matches}
        if self.matcher.kind != "match":  # every result counts as a match
            counts = {}
            opened.pop("open_matches")
        return Outcome(
            {"stage": stage.to_json(), "open": open_rows.to_json()},
            counts={"results": results, **counts, **stage.counts(_LABELS)},
            levels={
                **{name: count + waiting.get(name, 0) for name, count in opened.items()},
                **stage.levels(_LABELS),
            },
            streams=[{"name": name, **report} for name, report in zip(_LABELS, stage.report(), strict=True)],
            progress=self._progress(stage),
        )

    def _progress(self, stage: OrderingStage) -> list[Progress] | None:
        """Return the promised progress: a match is certain before the horizon passes its first row plus `within`."""
        longest = getattr(self.matcher, "longest", None)
        if longest is None:
            return None
        promised = stage.progress()
        return [Progress(clamp(promised.until - longest), promised.lateness, longest)]

    def find(
        self, open_rows: OpenRows, rows: pa.RecordBatch, horizon: int
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """Yield the number of matches that are certain by now, and their results; store the rows that stay open.

        Precondition: all rows before the horizon have arrived, in this batch or earlier.
        """
        new = StoredRows(rows, self._hashes(rows), np.zeros(rows.num_rows, np.uint8))
        for leaves, own in open_rows.touched(new.hashes, self.matcher.expired(horizon)):
            stored = [part for leaf in leaves for part in open_rows.read(leaf)]
            sorted_rows, hashes = self._sorted(stored, new if own is None else new.pick(own))
            decided = self.matcher.search(sorted_rows, horizon)
            yield decided.matches.count, None
            for piece in self.matcher.results(sorted_rows, decided.matches):
                yield 0, piece
            stays = np.flatnonzero(decided.stays)
            left = StoredRows(
                sorted_rows.rows.take(pa.array(sorted_rows.order[stays])),
                hashes[stays],
                sorted_rows.done[stays],
                None if decided.numbers is None else decided.numbers[stays],
            )
            open_rows.replace(
                leaves, left, decided.opens[stays], sorted_rows.times[stays], self._due(sorted_rows, stays)
            )

    def _due(self, sorted_rows: Sorted, stays: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        """Return the times at which the last row of each key expires, in terms of open starts; other rows never do."""
        rest = self.matcher.rest
        if rest is None:
            return None
        due = np.full(len(sorted_rows.times), MAX_TIME, np.int64)
        last = sorted_rows.bounds[1:] - 1
        due[last] = np.minimum(sorted_rows.times[last], MAX_TIME - max(rest, 0)) + rest
        return due[stays]

    def find_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of a complete stream. Precondition: rows of a key come one after the other."""
        pending, enough = pa.RecordBatch.from_pylist([], schema=self.schema), _ENOUGH_ROWS
        parts: list[pa.RecordBatch] = []
        for batch in batches:
            parts.append(batch)
            if pending.num_rows + sum(part.num_rows for part in parts) < enough:
                continue
            pending, parts = pa.concat_batches([pending, *parts]), []
            hashes = self._hashes(pending)
            others = np.flatnonzero(hashes != hashes[-1])
            cut = int(others[-1]) + 1 if len(others) else 0
            yield from self._all(pending.slice(0, cut))
            pending = pending.slice(cut)
            enough = max(_ENOUGH_ROWS, 2 * pending.num_rows)
        yield from self._all(pa.concat_batches([pending, *parts]))

    def _all(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        ordered = in_order(Rows(rows), _times(rows, self.time))[0].rows
        new = StoredRows(ordered, self._hashes(ordered), np.zeros(ordered.num_rows, np.uint8))
        sorted_rows, _ = self._sorted([], new)
        yield from self.matcher.results(sorted_rows, self.matcher.search(sorted_rows, MAX_TIME).matches)

    def _pieces(self, stage: OrderingStage) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield rows in order, piece by piece, with the time before which all have arrived; the last may be empty."""
        last = pa.RecordBatch.from_pylist([], schema=self.schema)
        for (rows,) in stage.release():
            if last.num_rows:
                yield last, int(_times(last, self.time)[-1]) + 1
            last = rows.rows
        yield last, stage.until

    def _sorted(self, stored: list[StoredRows], new: StoredRows) -> tuple[Sorted, Hashes]:
        """Return stored and new rows together, by key and time, and their hashes."""
        parts = [*stored, new]
        rows = pa.concat_batches([part.rows for part in parts]) if stored else new.rows
        hashes = np.concatenate([part.hashes for part in parts])
        done = np.concatenate([part.done for part in parts])
        times = _times(rows, self.time)
        shift = directory_shift(len(hashes))
        order = sort_order(hashes, times, build_directory(hashes, shift), shift)
        hashes = hashes[order]
        again, bounds = by_key(rows, order, hashes, self.matcher.key, exact=self.hasher.exact)
        if again is not None:
            order, hashes = order[again], hashes[again]
        times = times[order]
        if self.ties:
            again = tied_order(rows, order, times, bounds, self.ties)
            order = order[again]
        index = pa.array(order)
        columns = {name: rows.column(name).take(index) for name in self.matcher.read}
        done = done[order] if done.any() else done
        fresh = (order >= len(order) - len(new.hashes)).view(np.uint8)
        numbers = None
        if self.matcher.numbered:
            old = [np.zeros(len(part.hashes), np.int64) if part.numbers is None else part.numbers for part in parts]
            numbers = np.concatenate(old)[order]
        return Sorted(columns, rows, order, bounds, times, done, fresh, numbers), hashes


def tied_order(
    rows: pa.RecordBatch,
    order: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    ties: tuple[tuple[str, bool], ...],
) -> npt.NDArray[np.int64]:
    """Return an order of rows by key and time in which rows of one key and time are ordered by further columns."""
    begins = np.append(True, times[1:] != times[:-1])[: len(times)]
    begins[bounds[:-1]] = True
    if begins.all():
        return np.arange(len(times))
    ranks = []
    for name, descending in ties:
        column = rows.column(name).take(pa.array(order))
        if pa.types.is_floating(column.type):
            values = ordered(column.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64))
            column = pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
        rank = pc.rank(column, "ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        rank[column.is_null().to_numpy(zero_copy_only=False)] = 0
        ranks.append(-rank if descending else rank)
    sorted_: npt.NDArray[np.int64] = np.lexsort((*reversed(ranks), np.cumsum(begins)))
    return sorted_


def _times(rows: pa.RecordBatch, column: str) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = rows.column(column).view(pa.int64()).to_numpy()
    return times
