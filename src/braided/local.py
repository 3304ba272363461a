"""The join in one process on Arrow data, with the operators that run on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.balance.controller import Controller
from braided.errors import BraidedError
from braided.join.options import (
    DEFAULT_LATENESS,
    Duration,
    On,
    build_join,
    check_how,
    check_theta,
    resolve_bounds,
    resolve_lateness,
    resolve_names,
)
from braided.order.clocks import Window
from braided.routing.start import first_table
from braided.runtime.local import LocalRuntime, record_batches
from braided.runtime.operator import Operator
from braided.runtime.report import Report
from braided.runtime.router import conform

__all__ = ["LocalResult", "join"]


@dataclass(frozen=True)
class LocalResult:
    """The joined rows as a pyarrow table, and the report."""

    table: pa.Table
    report: Report


def join(
    left: Any,
    right: Any,
    *,
    on: On = None,
    time: str | tuple[str, str],
    within: Duration | tuple[Duration, Duration] | None = None,
    between: tuple[Duration, Duration] | None = None,
    where: str | None = None,
    lateness: Duration | tuple[Duration, Duration] | None = None,
    workers: int = 1,
    suffixes: tuple[str, str] = ("", "_right"),
    how: str = "inner",
    name: str | None = None,
    arrival: str | tuple[str, str] | None = None,
    batch_rows: int = 100_000,
    partition: str = "auto",
    memory: int | str | None = None,
    evict: Any = "auto",
    share: str = "unified",
    shed: float | str | None = None,
) -> LocalResult:
    """Join two Arrow streams in this process, batch by batch, exactly as `braided.join` does on Spark.

    Rows arrive in the order of the `arrival` column (one name, or one per side; any sortable type that both
    share), else of their times; every `batch_rows` rows of both sides together make a batch. A row more than
    `lateness` behind its stream is late: it still meets what is stored, and is counted.

    Cost: see `WindowJoin`. The result is held in memory. Predicates that no kernel covers are refused.

    >>> import pyarrow as pa
    >>> us = pa.timestamp("us")
    >>> calls = pa.table({"phone": [1, 2], "ts": pa.array([0, 5_000_000], us)})
    >>> seen = pa.table({"phone": [1, 1], "ts": pa.array([1_000_000, 60_000_000], us), "cell": ["a", "b"]})
    >>> join(calls, seen, on="phone", time="ts", within="10 seconds").table.to_pylist()[0]["cell"]
    'a'
    """
    check_how(how)
    check_theta(on, where)
    if not isinstance(workers, int) or workers < 1:
        raise BraidedError(f"workers={workers!r}: write a number of 1 or more")
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise BraidedError(f"batch_rows={batch_rows!r}: write a number of 1 or more")
    lo, hi = resolve_bounds(within, between)
    given = resolve_lateness(lateness)
    tables = (_read(left, "left"), _read(right, "right"))
    names = resolve_names(on, time, tables[0].column_names, tables[1].column_names)
    tables = (_in_microseconds(tables[0], names.times[0]), _in_microseconds(tables[1], names.times[1]))
    schemas = (tables[0].schema, tables[1].schema)
    window = Window(
        lo,
        hi,
        (
            DEFAULT_LATENESS if given[0] is None else given[0],
            DEFAULT_LATENESS if given[1] is None else given[1],
        ),
    )
    predicate = None
    if where is not None:
        from braided.join.where import compile_where

        predicate = compile_where(where, *schemas)
    operator = build_join(names, schemas, window, suffixes, predicate, where)
    table = first_table(partition, workers, keyed=bool(names.keys[0]), version=1)
    controller = Controller(table, window, measure="work") if workers > 1 and memory is None else None
    bounded: Operator = operator
    if memory is not None or shed is not None:
        from braided.join.budget import limit

        bounded = limit(operator, memory, evict, share, shed)
    runtime = LocalRuntime(bounded, workers, controller=controller)
    runtime.table = table
    pieces: list[pa.RecordBatch] = []
    for batch in cut_into_batches(tables, _arrival(tables, arrival, names.times), batch_rows):
        pieces += runtime.run_batch(batch)
    if memory is not None:
        pieces += runtime.run_batch([(0, [])], final=True)
    report = runtime.report()
    if name is not None:
        report.query["name"] = name
    return LocalResult(pa.Table.from_batches(pieces, operator.output), report)


def _read(data: Any, side: str) -> pa.Table:
    try:
        batches = list(record_batches(data))
    except (TypeError, ValueError) as error:
        raise BraidedError(
            f"{side}: {type(data).__name__} does not speak the Arrow C stream interface; "
            "give a pyarrow, pandas, polars or DuckDB table"
        ) from error
    schema = batches[0].schema if batches else pa.schema(data.schema)
    table = pa.Table.from_batches(batches, schema)
    plain = pa.schema([pa.field(field.name, _plain(field.type)) for field in schema])
    return table.cast(plain) if not schema.equals(plain) else table.replace_schema_metadata(None)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without views and dictionaries (polars sends them), for which Arrow lacks kernels."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _in_microseconds(table: pa.Table, column: str) -> pa.Table:
    """Cast a time column of another unit to microseconds, which is what Spark has; refuse to lose digits."""
    field = table.schema.field(column)
    if not pa.types.is_timestamp(field.type) or field.type.unit == "us":
        return table
    kind = pa.timestamp("us", field.type.tz)
    at = table.schema.get_field_index(column)
    try:
        return table.set_column(at, pa.field(column, kind), table.column(column).cast(kind))
    except pa.ArrowInvalid as error:
        raise BraidedError(f"time={column!r}: has digits below a microsecond; round it first") from error


def _arrival(
    tables: tuple[pa.Table, pa.Table], arrival: str | tuple[str, str] | None, times: tuple[str, str]
) -> npt.NDArray[np.int64]:
    """Return the order of arrival over the rows of both tables, the left ones numbered first."""
    columns = times if arrival is None else (arrival, arrival) if isinstance(arrival, str) else arrival
    for side, table, column in zip(("left", "right"), tables, columns, strict=True):
        if column not in table.column_names:
            raise BraidedError(
                f"arrival={column!r}: the {side} input has no such column; it has {', '.join(table.column_names)}"
            )
    first, second = (table.column(column) for table, column in zip(tables, columns, strict=True))
    if first.type != second.type:
        raise BraidedError(f"arrival={columns!r}: {first.type} on the left, {second.type} on the right; cast one")
    both = pa.chunked_array([*first.chunks, *second.chunks], first.type)
    order: npt.NDArray[np.int64] = pc.sort_indices(both).to_numpy().astype(np.int64)
    return order


def cut_into_batches(
    tables: tuple[pa.Table, pa.Table], order: npt.NDArray[np.int64], batch_rows: int
) -> Iterator[list[tuple[int, list[pa.RecordBatch]]]]:
    """Yield batches of `batch_rows` rows in order of arrival, as one task per side."""
    split = tables[0].num_rows
    for start in range(0, len(order), batch_rows):
        part = order[start : start + batch_rows]
        picks = (part[part < split], part[part >= split] - split)
        yield [
            (side, [conform(batch, table.schema) for batch in table.take(pa.array(pick)).to_batches()])
            for side, (table, pick) in enumerate(zip(tables, picks, strict=True))
            if len(pick)
        ]
