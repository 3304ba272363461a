"""The search for a pattern: the automaton, its conditions and measures, over rows sorted by key and time.

It has no state and does not know batches. The caller stores the rows of a key that are undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError
from braided.operators.match import search_kernel
from braided.operators.match.automaton import AT_END, PAST_LAST, Automaton
from braided.operators.match.condition_programs import Columns, Conditions, overflow
from braided.operators.match.expressions import columns_of
from braided.operators.match.match_measures import Matches, Measures
from braided.operators.match.navigation import Neighbours, without_forgotten
from braided.time.clocks import MIN_TIME, clamp

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# The most steps of one search, and how many more for each row of its key. A million steps take 20 ms, or 400 ms if
# places are remembered.
MOST_STEPS = 4_000_000
STEPS_PER_ROW = 10_000
# In keys with this many rows searches look ahead.
MANY_ROWS = 64
# Searches with more steps remember where they failed.
PATIENCE = 2000
_MOST_LOOKED_AT = 1_000_000
_PIECE_ROWS = 1 << 17
_PIECE_BYTES = 8 << 20


class Sorted(NamedTuple):
    """Rows by key and time: where keys begin, times, which starts are decided and which rows are new.

    Only the columns that the search reads are sorted. The others stay in `rows` in the order in which they came;
    `order` has their places.
    """

    columns: Columns
    rows: pa.RecordBatch
    order: Int64s
    bounds: Int64s
    times: Int64s
    done: Bytes
    fresh: Bytes
    numbers: Int64s | None = None
    """How many matches of the key were found before, on some of its rows; None if matches are not numbered."""


class Decided(NamedTuple):
    """The matches that are certain, which rows are kept, and which of them are starts of open matches."""

    matches: Matches
    stays: npt.NDArray[np.bool_]
    opens: npt.NDArray[np.bool_]
    numbers: Int64s | None = None
    """For each row, how many matches of its key have been found so far."""


class Finder(Protocol):
    """A search among the rows of each key: for a pattern, or for windows of a number of rows."""

    @property
    def kind(self) -> str:
        """Its name in options and reports."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key."""

    @property
    def within(self) -> int | None:
        """How far the last row of a match may be from its first, in microseconds; None: any time."""

    @property
    def read(self) -> list[str]:
        """The columns that the search reads."""

    @property
    def output(self) -> pa.Schema:
        """The columns of the results."""

    @property
    def numbered(self) -> bool:
        """Whether the number of matches of a key is stored with its rows."""

    @property
    def rest(self) -> int | None:
        """How much longer than an open match the last row of a key is kept, in microseconds; None: for ever."""

    def expired(self, horizon: int) -> int:
        """Return the time before which open starts are decided even if their keys get no further rows."""

    def search(self, sorted_rows: Sorted, horizon: int) -> Decided:
        """Return what is certain once all rows before the horizon have arrived."""

    def results(self, sorted_rows: Sorted, matches: Matches) -> Iterator[pa.RecordBatch]:
        """Yield what was found as rows of the result, in pieces of bounded size."""


@dataclass(frozen=True)
class Matcher:
    """Finds matches and turns them into results.

    within : how far the last row of a match may be from its first, in microseconds; None: any time.
    skip, target : where to go on after a match; the bits of the symbols to skip to.
    """

    kind: ClassVar[str] = "match"

    automaton: Automaton
    conditions: Conditions
    measures: Measures
    key: tuple[str, ...]
    within: int | None
    negated: int = -1
    skip: int = PAST_LAST
    target: int = 0
    context: int = 0
    """How many rows before the first row of a match conditions and measures may read."""
    reach: Mapping[int, int] = field(default_factory=dict)
    """How many rows after a row the condition of a symbol may read; entry 63 is for measures."""
    forget: int | None = None
    """After this many microseconds without a row, earlier rows of a key are no longer context for later ones."""
    numbered: bool = False
    """Whether measures read the number of a match."""
    unmatched: bool = False
    """Whether rows without a match are results, too."""
    omits_empty: bool = False
    """Whether matches without rows are left out of the results."""

    @cached_property
    def output(self) -> pa.Schema:
        """The columns of the results: the key, or all columns for every row of a match, then the measures."""
        schema = self.measures.schema
        names = schema.names if self.measures.every else self.key
        return pa.schema([*(schema.field(name).remove_metadata() for name in names), *self.measures.fields])

    @cached_property
    def read(self) -> list[str]:
        names = {column.name for column in columns_of(tuple(self.conditions.plain.values()))}
        names |= self.conditions.columns | self.measures.conditions.columns
        return [name for name in self.measures.schema.names if name in names]

    @property
    def longest(self) -> int | None:
        """How long after its first row a match may be undecided: NEXT waits for rows after it, ``$`` for the end."""
        longest = self.within if self.within is None or not self.reach else 2 * self.within
        if not self.automaton.anchors & AT_END:
            return longest
        return None if self.forget is None else (longest or 0) + self.forget

    def expired(self, horizon: int) -> int:
        return clamp(horizon - (self.longest or 0))

    @property
    def rest(self) -> int | None:
        return None if self.forget is None else self.forget - (self.longest or 0)

    def forgotten(self, horizon: int) -> int:
        """Return the time before which the last rows of a key are forgotten."""
        return MIN_TIME if self.forget is None else clamp(horizon - self.forget)

    def _neighbours(self, sorted_rows: Sorted) -> Neighbours:
        bounds = without_forgotten(sorted_rows.bounds, sorted_rows.times, self.forget)
        return Neighbours(bounds, sorted_rows.times, self.within or 0)

    def search(self, sorted_rows: Sorted, horizon: int) -> Decided:
        """Return what is certain once all rows before the horizon have arrived; writes to `sorted_rows.done`."""
        symbols = self.automaton.symbols
        neighbours = self._neighbours(sorted_rows)
        bounds = neighbours.bounds
        bits = self.conditions.bits(sorted_rows.columns, neighbours, len(symbols))
        unknown = np.zeros(len(bits) if self.reach else 0, np.uint64)
        for symbol, reach in self.reach.items():
            unknown |= neighbours.unknown(reach, horizon).astype(np.uint64) << np.uint64(symbol)
        if self.reach:
            bits |= unknown
        # The successors of all states, and last the states that a match may begin with.
        every = [*self.automaton.after, self.automaton.first]
        guards = [guard for of in (*self.automaton.guards[1:], self.automaton.guards[0]) for guard in of]
        starts = np.cumsum([0, *map(len, every)]).astype(np.int32)
        after = np.array([state for states in every for state in states], np.int32)
        following = np.empty(0, np.int64)
        if self.negated >= 0:
            following = search_kernel.next_of(bounds, bits, np.int64(self.negated))
        matches, status, at = search_kernel.find_matches(
            search_kernel.Rows(bounds, sorted_rows.times, sorted_rows.done, sorted_rows.fresh, bits, unknown),
            search_kernel.Automaton(
                after,
                np.array(guards if self.automaton.anchors else [], np.uint8),
                self._sees,
                starts,
                np.array(self.automaton.symbol, np.int32),
                self.negated,
                self.skip,
                self.target,
            ),
            self.conditions.machine(),
            self.conditions.compute(sorted_rows.columns, neighbours),
            following,
            horizon,
            -1 if self.within is None else self.within,
            MOST_STEPS,
            STEPS_PER_ROW,
            MANY_ROWS,
            PATIENCE,
            search_kernel.Keeping(
                self.context,
                self.forgotten(horizon),
                -1 if self.longest is None else self.longest,
                self.numbered or self.unmatched,
                self.unmatched,
            ),
        )
        if status == search_kernel.OVERFLOW:
            raise overflow(" or ".join(self.conditions.texts.values()))
        if status == search_kernel.STEPS:
            row = int(sorted_rows.order[at])
            key = (
                ", ".join(f"{name}={sorted_rows.rows.column(name)[row].as_py()!r}" for name in self.key) or "the stream"
            )
            raise BraidedError(
                f"pattern: the search took more than {MOST_STEPS:,} steps from one row, or "
                f"{STEPS_PER_ROW:,} per row of the key (key {key}); shorten within=, let conditions exclude "
                "each other, or refer to fewer earlier symbols"
            )
        found, is_match = self._shown(matches), matches.length != search_kernel.UNMATCHED
        if not self.numbered:
            return Decided(found, matches.stays, matches.opens)
        assert sorted_rows.numbers is not None
        numbers, totals = numbered(bounds, found.first[is_match], sorted_rows.numbers)
        number = np.zeros(len(is_match), np.int64)
        number[is_match] = numbers
        return Decided(replace(found, number=number), matches.stays, matches.opens, totals)

    def _shown(self, matches: search_kernel.MatchArrays) -> Matches:
        """Return matches; a match without rows becomes the row at its position."""
        length, blank = matches.length, matches.length <= 0
        if not blank.any():
            return Matches(matches.first, length, matches.states)
        count = np.maximum(length, 0)
        states = np.insert(matches.states, (np.cumsum(count) - count)[blank], len(self.automaton.symbol))
        is_match = None if not self.unmatched else length != search_kernel.UNMATCHED
        return Matches(matches.first, np.maximum(length, 1), states, None, is_match)

    @cached_property
    def _sees(self) -> Int64s:
        """The registers that conditions after each state may read, as bits; empty if they see symbols, too."""
        reads = self.conditions.registers_read() if self.conditions.code else None
        # Computed state by state, in at most this many steps.
        if reads is None or len(self._states) * sum(map(len, self.automaton.after)) > _MOST_LOOKED_AT:
            return np.empty(0, np.int64)
        behind = [{self.automaton.symbol[then] for then in self.automaton.behind(state)} for state in self._states]
        negated = {self.negated} if self.negated >= 0 else set()
        masks = [reduce(or_, (reads[symbol] for symbol in of | negated), 0) for of in behind]
        return np.array(masks, np.int64)

    @property
    def _states(self) -> range:
        return range(len(self.automaton.symbol))

    def results(self, sorted_rows: Sorted, matches: Matches) -> Iterator[pa.RecordBatch]:
        """Yield matches as rows of the result, in pieces of bounded size."""
        if not len(matches.first):
            return
        rows = sorted_rows.rows
        neighbours = self._neighbours(sorted_rows)
        slots = self.measures.conditions.compute(sorted_rows.columns, neighbours)
        excluded = np.array([*self.automaton.excluded, self.omits_empty])
        width = max(1, rows.nbytes // max(1, rows.num_rows))
        for part in matches.chunks(min(_PIECE_ROWS, max(1, _PIECE_BYTES // width))):
            measures = self.measures.compute(rows, sorted_rows.order, part, slots, neighbours)
            every = self.measures.every
            index = pa.array(sorted_rows.order[part.rows if every else part.first])
            names = rows.schema.names if every else self.key
            columns = [rows.column(name).take(index) for name in names]
            piece = pa.RecordBatch.from_arrays([*columns, *measures], schema=self.output)
            if every and excluded.any():
                piece = piece.filter(pa.array(~excluded[part.states]))
            yield from _pieces(piece)


def numbered(bounds: Int64s, first: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Return the numbers of matches in their keys, and for each row how many matches its key has had so far.

    `numbers` are the stored ones of rows; matches are in order of key and time.
    """
    if not len(numbers):
        return numbers, numbers
    sizes = np.diff(bounds)
    before = np.maximum.reduceat(numbers, bounds[:-1])
    of = np.searchsorted(bounds, first, side="right") - 1
    count = np.bincount(of, minlength=len(sizes))
    offsets = np.cumsum(count) - count
    return before[of] + np.arange(len(first)) - offsets[of] + 1, np.repeat(before + count, sizes)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if rows.num_rows > 1 and (rows.num_rows > _PIECE_ROWS or rows.nbytes > _PIECE_BYTES):
        middle = rows.num_rows // 2
        yield from _pieces(rows.slice(0, middle))
        yield from _pieces(rows.slice(middle))
    elif rows.num_rows:
        yield rows
