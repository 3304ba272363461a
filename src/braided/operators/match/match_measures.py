"""The columns of a result from the rows of its matches: registers are replayed, then expressions run as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import OptionError
from braided.expressions.evaluate import ARROW, Block
from braided.expressions.tree import Column, Type
from braided.operators.match.condition_programs import Conditions, overflow, prepare
from braided.operators.match.expressions import (
    CLASS,
    MATCH_NUMBER,
    NUMBERS,
    ROW,
    Measure,
    Register,
    columns_of,
    place_of,
)
from braided.operators.match.match_aggregates import MatchAggregate, RowsOfMatches, list_type
from braided.operators.match.navigation import Neighbours
from braided.operators.match.search_kernel import replay

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


# The symbol of a row that represents a match without rows, or no match.
_NO_SYMBOL = 63


@dataclass(frozen=True)
class Matches:
    """Matches among rows: the first row and the length of each, and the states of all their rows.

    A match without rows has the row at its position, with a state after the last one.
    """

    first: Int64s
    length: Int64s
    states: Int32s
    number: Int64s | None = None
    """The number of each match in its key, if measures read it."""
    is_match: npt.NDArray[np.bool_] | None = None
    """Which entries are matches, if some are rows without a match."""

    @property
    def count(self) -> int:
        return len(self.first) if self.is_match is None else int(self.is_match.sum())

    def chunks(self, most: int) -> Iterator[Matches]:
        """Yield matches in parts of about `most` rows."""
        ends = np.cumsum(self.length)
        at = 0
        while at < len(ends):
            begin = 0 if at == 0 else int(ends[at - 1])
            stop = max(at + 1, int(np.searchsorted(ends, begin + most, side="right")))
            number = None if self.number is None else self.number[at:stop]
            is_match = None if self.is_match is None else self.is_match[at:stop]
            states = self.states[begin : int(ends[stop - 1])]
            yield Matches(self.first[at:stop], self.length[at:stop], states, number, is_match)
            at = stop

    @cached_property
    def rows(self) -> Int64s:
        offsets = np.cumsum(self.length) - self.length
        inside = np.arange(len(self.states)) - np.repeat(offsets, self.length)
        return np.repeat(self.first, self.length) + inside

    @cached_property
    def of_rows(self) -> Int64s:
        """The match of each row."""
        return np.repeat(np.arange(len(self.first)), self.length)


@dataclass(frozen=True)
class Measures:
    """The measures of a pattern; with `every`, for every row of a match."""

    measures: tuple[Measure, ...]
    registers: tuple[Register, ...]
    aggregates: tuple[MatchAggregate, ...]
    symbols: tuple[str, ...]
    state_symbols: tuple[int, ...]
    schema: pa.Schema
    texts: Mapping[str, str]
    every: bool

    @cached_property
    def fields(self) -> list[pa.Field[Any]]:
        return [pa.field(measure.name, self._type(measure)) for measure in self.measures]

    def _type(self, measure: Measure) -> pa.DataType:
        if (
            isinstance(measure.root, Column)
            and measure.root.side != NUMBERS
            and not measure.root.side.startswith(CLASS)
        ):
            return self.schema.field(measure.root.name).type
        kind = getattr(measure.root, "type", Type("boolean"))
        lists = list_type(kind)
        if lists is not None:
            return lists
        if kind.name not in ARROW:
            raise OptionError(
                f"{self.texts[measure.name]}: computes {kind}, which is not supported yet; cast to double"
            )
        return ARROW[kind.name]

    @cached_property
    def _state_symbols(self) -> Int32s:
        """The symbols of states, and the symbol for no row."""
        return np.array([*self.state_symbols, _NO_SYMBOL], np.int32)

    @cached_property
    def conditions(self) -> Conditions:
        """The values of each row that registers read."""
        return prepare({}, self.registers, {}, self.symbols)

    def compute(
        self, rows: pa.RecordBatch, order: Int64s, matches: Matches, slots: Any, neighbours: Neighbours
    ) -> list[pa.Array[Any]]:
        """Return the columns for matches among rows in an order; `slots` are those of `conditions` for them."""
        symbol = self._state_symbols
        whole, real, fine = replay(
            matches.first, matches.length, matches.states, symbol, self.conditions.machine(), slots, self.every
        )
        if not fine:
            raise overflow(" or ".join(self.texts.values()))
        if self.every:
            last = np.repeat(np.cumsum(matches.length) - 1, matches.length)
            for at, register in enumerate(self.registers):
                if register.final:
                    whole[:, at], real[:, at] = whole[last, at], real[last, at]
        columns = self._columns(rows, order, matches, whole, real, neighbours)
        count = len(matches.states) if self.every else len(matches.first)
        out = [self._column(measure, columns, count) for measure in self.measures]
        if matches.is_match is None:
            return out
        kept = pa.array(np.arange(count), mask=~np.repeat(matches.is_match, matches.length))
        return [column.take(kept) for column in out]

    def _columns(
        self,
        rows: pa.RecordBatch,
        order: Int64s,
        matches: Matches,
        whole: Int64s,
        real: npt.NDArray[np.float64],
        neighbours: Neighbours,
    ) -> dict[str, dict[str, pa.Array[Any]]]:
        columns: dict[str, dict[str, pa.Array[Any]]] = {}
        index: dict[str, pa.Array[Any]] = {}
        places: dict[str, tuple[Int64s, npt.NDArray[np.bool_]]] = {}
        for column in columns_of(tuple(measure.root for measure in self.measures)):
            side = columns.setdefault(column.side, {})
            if column.name in side:
                continue
            if column.side == NUMBERS and column.name.startswith("aggregate "):
                aggregate = self.aggregates[int(column.name.split()[1])]
                side[column.name] = self._of_matches(rows, order, matches).compute(aggregate)
                continue
            if column.side == NUMBERS:
                side[column.name] = self._number(column.name, matches, whole, real)
                continue
            if column.side not in places:
                places[column.side] = self._places(column.side, matches, whole, neighbours)
            at, missing = places[column.side]
            if column.side.startswith(CLASS):
                side[column.name] = self._symbols(matches, at, missing)
                continue
            if column.side not in index:
                index[column.side] = pa.array(order[at], mask=missing)
            side[column.name] = rows.column(column.name).take(index[column.side])
        return columns

    def _of_matches(self, rows: pa.RecordBatch, order: Int64s, matches: Matches) -> RowsOfMatches:
        """Return all rows of matches with the columns that aggregates read."""
        columns: dict[str, dict[str, pa.Array[Any]]] = {ROW: {}, CLASS + ROW: {}, NUMBERS: {}}
        symbols = self._state_symbols[matches.states]
        index = pa.array(order[matches.rows])
        for column in columns_of(tuple(aggregate.arguments for aggregate in self.aggregates)):
            side = columns[column.side]
            if column.side == NUMBERS:
                assert matches.number is not None
                side[column.name] = pa.array(matches.number[matches.of_rows])
            elif column.side == ROW:
                side[column.name] = rows.column(column.name).take(index)
            else:
                side[column.name] = self._names(symbols, symbols == _NO_SYMBOL)
        ends = np.cumsum(matches.length)
        final = np.repeat(ends - 1, matches.length) if self.every else ends - 1
        running = np.arange(len(symbols)) if self.every else final
        begins = np.repeat(ends - matches.length, matches.length)
        bits = np.where(symbols == _NO_SYMBOL, 0, np.int64(1) << np.minimum(symbols, 62).astype(np.int64))
        return RowsOfMatches(columns, bits, begins, running, final)

    def _names(self, symbols: Int32s, missing: npt.NDArray[np.bool_]) -> pa.Array[Any]:
        numbers = pa.array(symbols, mask=missing)
        return pa.DictionaryArray.from_arrays(numbers, pa.array(self.symbols, pa.string())).cast(pa.string())

    def _places(
        self, side: str, matches: Matches, whole: Int64s, neighbours: Neighbours
    ) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        """Return the row that a side means for each row of the result, and where there is none."""
        register, offset = place_of(side)
        at = matches.rows if register < 0 else whole[:, register]
        missing = at < 0 if register >= 0 else matches.states >= len(self.state_symbols)
        at = np.where(missing, 0, at)
        if offset:
            places, none = neighbours.places(offset)
            at, missing = places[at], missing | none[at]
        return at, missing

    def _symbols(self, matches: Matches, at: Int64s, missing: npt.NDArray[np.bool_]) -> pa.Array[Any]:
        """Return the symbols of rows, null where they are not part of the match."""
        of = matches.of_rows if self.every else np.arange(len(matches.first))
        inside = at - matches.first[of]
        missing = missing | (inside < 0) | (inside >= matches.length[of])
        offsets = np.cumsum(matches.length) - matches.length
        states = matches.states[np.where(missing, 0, offsets[of] + inside)]
        symbols = self._state_symbols[states]
        return self._names(symbols, missing | (symbols == _NO_SYMBOL))

    def _number(self, name: str, matches: Matches, whole: Int64s, real: npt.NDArray[np.float64]) -> pa.Array[Any]:
        if name == MATCH_NUMBER:
            assert matches.number is not None
            return pa.array(matches.number[matches.of_rows] if self.every else matches.number)
        what, *parts = name.split()
        if not parts:
            return pa.array(whole[:, int(what[1:])])
        total, counted = (int(part[1:]) for part in parts)
        count = whole[:, counted]
        source = self.registers[total].source
        assert source is not None
        values: npt.NDArray[Any] = real[:, total] if source.type.name == "double" else whole[:, total]
        if what == "avg":
            values = values / np.maximum(count, 1)
        return pa.array(values, mask=count == 0)

    def _column(self, measure: Measure, columns: Mapping[str, Mapping[str, Any]], count: int) -> pa.Array[Any]:
        if isinstance(measure.root, Column):
            return columns[measure.root.side][measure.root.name]
        block = Block(columns, count)
        kind = getattr(measure.root, "type", None)
        with np.errstate(all="ignore"):
            if kind is None:
                true, false = block.true(measure.root), block.true(measure.root, want=False)  # type: ignore[arg-type]
                column = pa.array(true, mask=~(true | false))
            else:
                column = block.array(measure.root)  # type: ignore[arg-type]
        if block.overflowed:
            raise overflow(self.texts[measure.name])
        return column
