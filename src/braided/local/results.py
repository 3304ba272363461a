"""The results of the local functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from braided.operators.late_rows import LATE_BY, STREAM, column_name, late_names
from braided.runtime.report import Report


@dataclass(frozen=True)
class LocalResult:
    """The results as a pyarrow table, the report and, if requested, the late rows."""

    table: pa.Table
    report: Report
    late: pa.Table | None = None


@dataclass(frozen=True)
class LocalGroupResult:
    """The rows of each join of a group as a pyarrow table, and the report."""

    tables: dict[str, pa.Table]
    report: Report


def split_late(results: pa.Table, inputs: Sequence[pa.Schema]) -> tuple[pa.Table, pa.Table]:
    """Return the joined rows and the late rows, as `braided.join` does on Spark."""
    is_joined = results[STREAM].is_null()
    rows = results.filter(pc.invert(is_joined)).combine_chunks()
    columns = {"stream": rows[STREAM], "late_by": rows[LATE_BY].cast(pa.duration("us"))}
    for side, (name, schema) in enumerate(zip(late_names(len(inputs)), inputs, strict=True)):
        # Each column has one chunk, or none if the table is empty.
        arrays = [
            pa.concat_arrays(rows[column_name(side, at)].chunks) if rows.num_rows else pa.nulls(0, field.type)
            for at, field in enumerate(schema)
        ]
        is_other = pc.not_equal(rows[STREAM], name)
        mask = pa.concat_arrays(is_other.chunks) if rows.num_rows else pa.array([], pa.bool_())
        columns[name] = pa.StructArray.from_arrays(arrays, fields=list(schema), mask=mask)
    own = results.column_names[: results.column_names.index(STREAM)]
    return results.filter(is_joined).select(own), pa.table(columns)
