"""Aggregates of measures that need more than registers: lists, ``max_by``, and those of symbols and match numbers.

Their arguments are computed as columns over all rows of matches, one after the other, and each result is read at a row:

    symbols of rows    A  B  B  C | A  B        array_agg(classifier(B))   selected    .  B  B  . | .  B
    running counts                              of B                                   0  1  2  2 | 0  1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import BraidedError
from braided.expressions.evaluate import ARROW, Block
from braided.expressions.order_keys import ordered
from braided.expressions.tree import Type, Value

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# The most values that the lists of one piece of a result may have.
_MOST_LISTED = 1 << 26


@dataclass(frozen=True)
class MatchAggregate:
    """An aggregate over the rows of some symbols.

    kind : count, sum, avg, min, max, max_by, min_by, array_agg, or joined with a separator.
    final : of the whole match, for each of its rows.
    """

    kind: str
    symbols: int
    arguments: tuple[Value, ...]
    type: Type
    final: bool
    text: str
    separator: str = ""


@dataclass(frozen=True)
class RowsOfMatches:
    """The rows of matches one after the other.

    columns : the columns that arguments read. bits : the symbol of each row, as a bit. begins : the first row of the
        match of each row. running, final : the last row of each row of the result, and the one with FINAL.
    """

    columns: Mapping[str, Mapping[str, pa.Array[Any]]]
    bits: Int64s
    begins: Int64s
    running: Int64s
    final: Int64s

    def compute(self, aggregate: MatchAggregate) -> pa.Array[Any]:
        """Return an aggregate for each row of the result."""
        block = Block(self.columns, len(self.bits))
        ends = self.final if aggregate.final else self.running
        selected = self.bits & aggregate.symbols != 0
        with np.errstate(all="ignore"):
            arguments = [block.array(argument) for argument in aggregate.arguments]
        if block.overflowed:
            raise BraidedError(f"{aggregate.text}: overflows; cast an operand to a wider type")
        for argument in arguments[-1:]:  # rows without a value do not count; max_by orders by the second
            selected &= argument.is_valid().to_numpy(zero_copy_only=False)
        match aggregate.kind:
            case "count":
                return pa.array(self._counted(selected, ends))
            case "sum" | "avg":
                return self._summed(aggregate, selected, arguments[0], ends)
            case "array_agg":
                return self._listed(aggregate, selected, arguments[0], ends)
            case "listagg" | "concat_ws":
                lists = self._listed(aggregate, selected, arguments[0], ends)
                texts = pc.binary_join(lists, aggregate.separator)
                no_value = pc.equal(pc.list_value_length(lists), 0)
                return pc.if_else(no_value, None, texts) if aggregate.kind == "listagg" else texts
            case _:
                best = self._best(selected, arguments[-1], ends, least=aggregate.kind in ("min", "min_by"))
                return arguments[0].take(best)

    def _counted(self, selected: Bools, ends: Int64s) -> Int64s:
        before = np.append(0, np.cumsum(selected))
        counted: Int64s = before[ends + 1] - before[self.begins[ends]]
        return counted

    def _summed(
        self, aggregate: MatchAggregate, selected: Bools, argument: pa.Array[Any], ends: Int64s
    ) -> pa.Array[Any]:
        values = np.where(selected, argument.fill_null(0).to_numpy(zero_copy_only=False), 0).astype(np.int64)
        if float(np.abs(values.astype(np.float64)).sum()) >= 2.0**62:
            raise BraidedError(f"{aggregate.text}: overflows; sum smaller numbers, or double")
        before = np.append(0, np.cumsum(values))
        count = self._counted(selected, ends)
        total = before[ends + 1] - before[self.begins[ends]]
        return pa.array(total / np.maximum(count, 1) if aggregate.kind == "avg" else total, mask=count == 0)

    def _listed(
        self, aggregate: MatchAggregate, selected: Bools, argument: pa.Array[Any], ends: Int64s
    ) -> pa.Array[Any]:
        lengths = self._counted(selected, ends)
        offsets = np.append(0, np.cumsum(lengths))
        if offsets[-1] > _MOST_LISTED:
            raise BraidedError(
                f"{aggregate.text}: lists of one match would have more than {_MOST_LISTED:,} values; write ONE ROW PER "
                "MATCH, or a shorter within"
            )
        rows = np.flatnonzero(selected)
        first = np.searchsorted(rows, self.begins[ends])
        places = np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], lengths)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), argument.take(pa.array(rows[places])))

    def _best(self, selected: Bools, by: pa.Array[Any], ends: Int64s, *, least: bool) -> pa.Array[Any]:
        """Return the first row with the largest or the least value; null if no row has a value."""
        count = len(self.bits)
        if not count:
            return pa.array([], pa.int64())
        if pa.types.is_floating(by.type):
            by = pa.array(ordered(by.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)))
        order = "descending" if least else "ascending"
        rank = pc.rank(by, order, tiebreaker="dense").to_numpy().astype(np.int64)
        # Later matches rank above all earlier ones, so that a running maximum restarts with each match.
        ranks = self.begins * (count + 1) + np.where(selected, rank, 0)
        highest = np.maximum.accumulate(ranks)
        fresh = np.append(True, highest[1:] > highest[:-1])
        at = np.maximum.accumulate(np.where(fresh, np.arange(count), 0))
        best = at[ends]
        return pa.array(best, mask=~selected[best])


def list_type(kind: Type) -> pa.DataType | None:
    """Return the Arrow type of a list type, None for others.

    >>> list_type(Type("array<string>"))
    ListType(list<item: string>)
    """
    inner = kind.name.removeprefix("array<").removesuffix(">")
    return pa.list_(ARROW[inner]) if inner != kind.name and inner in ARROW else None
