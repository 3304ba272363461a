"""The state of all braided operators of a query, and its text form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from braided.errors import OptionError
from braided.inspection.operator_state import FILE_KINDS, OperatorState
from braided.runtime.contract import Json


@dataclass(frozen=True)
class QueryState:
    """The state of a query after its last committed batch: ``state["hits-1"]``, or ``state[0]``, is an operator.

    It prints as a summary, which reads rows only if the bookkeeping is not enough; ``to_dict()`` is plain JSON.
    """

    checkpoint: str
    batch: int
    operators: Sequence[OperatorState]
    partitions: int = 0
    """The partitions of Spark's part of the state."""

    def __getitem__(self, name: str | int) -> OperatorState:
        for operator in self.operators:
            if name in (operator.name, operator.number, str(operator.number)):
                return operator
        known = ", ".join(f"{operator.name!r} ({operator.number})" for operator in self.operators)
        raise OptionError(f"operator={name!r}: not found; {self.checkpoint} has {known or 'no operator of braided'}")

    def to_dict(self, keys: int = 10) -> Json:
        """Return the summary of all operators, with this number of heaviest keys of each input."""
        operators = [operator.to_dict(keys) for operator in self.operators]
        return {"checkpoint": self.checkpoint, "batch": self.batch, "operators": operators}

    def text(self, keys: int = 0) -> str:
        """Return the summary as text, with this number of heaviest keys of each input."""
        lines = [f"{self.checkpoint}: after batch {self.batch}"]
        for operator in self.operators:
            lines += _operator_lines(operator, keys)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


def _operator_lines(operator: OperatorState, keys: int) -> list[str]:
    summary = operator.summary()
    rows, size = (sum(summary.column(name).to_pylist()) for name in ("rows", "bytes"))
    lines = [
        f"{operator.name}: {operator.kind}, operator {operator.number}, {len(operator.workers)} workers, "
        f"{rows:,} rows, {size:,} bytes"
    ]
    lines += text_table(summary)
    files = operator.files()
    if files.column("live").null_count < files.num_rows:
        totals = {name: sum(value or 0 for value in files.column(name).to_pylist()) for name in files.column_names}
        kinds = ", ".join(f"{totals[kind]:,} {kind} ({totals[f'{kind}_bytes']:,} bytes)" for kind in FILE_KINDS)
        lines.append(f"  files: {kinds}")
    else:
        lines.append("  rows are in Spark's state store")
    for name in operator.inputs if keys else ():
        if operator.keys(name):
            lines += [f"  heaviest keys of {name}", *text_table(operator.heaviest(name, keys))]
    return lines


def text_table(table: pa.Table) -> list[str]:
    rows = [
        [f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()] for row in table.to_pylist()
    ]
    widths = [max(map(len, column)) for column in zip(table.column_names, *rows, strict=True)]
    return [
        "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in (table.column_names, *rows)
    ]
