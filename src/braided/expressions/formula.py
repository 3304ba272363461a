"""Compile an expression over the columns of one input to kernels that compute the same values as Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from braided.errors import BraidedError
from braided.expressions.compile import Compiler
from braided.expressions.evaluate import ARROW, Block
from braided.expressions.parse import Parser
from braided.expressions.tree import Value


@dataclass(frozen=True)
class Formula:
    """A compiled value: the columns that it needs, and its text.

    >>> rows = pa.record_batch({"price": pa.array([2, None, 5]), "amount": pa.array([10, 1, 1])})
    >>> compile_formula("price * amount + 1", rows.schema).compute(rows).to_pylist()
    [21, None, 6]
    """

    columns: tuple[str, ...]
    text: str
    root: Value

    @property
    def type(self) -> pa.DataType:
        return ARROW[self.root.type.name]

    def compute(self, rows: pa.RecordBatch) -> pa.Array[Any]:
        """Return the value for each row; raise if an integer overflows, as in Spark's ANSI mode."""
        block = Block({"l": {name: rows.column(name) for name in self.columns}}, rows.num_rows)
        with np.errstate(all="ignore"):
            values = block.array(self.root)
        if block.overflowed:
            parts = " or ".join(dict.fromkeys(block.overflowed))
            raise BraidedError(f"{self.text}: {parts} overflows; cast an operand to a wider type")
        return values


class _ValueCompiler(Compiler):
    def formula(self) -> Formula:
        root = self.value(Parser(self._text, self._resolve, self._option, bare=True).parse())
        if not self._used["l"]:
            raise self._refusal("it names no column")
        if root.type.name not in ARROW:
            raise self._refusal(f"its type is {root.type}")
        return Formula(tuple(name for name in self._schemas["l"].names if name in self._used["l"]), self._text, root)


def compile_formula(text: str, schema: pa.Schema) -> Formula:
    """Compile a value over the columns of a schema; raise `Uncompilable` for what is not in docs/reference/where.md."""
    return _ValueCompiler(text, {"l": schema, "r": pa.schema([])}, "value", bare=True).formula()
