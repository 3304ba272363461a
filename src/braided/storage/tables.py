"""The common part of Delta and Iceberg tables: their names, how a sink commits, and the check of columns.

Other programs may write to the same table. So the id of a query and the number of its batch are committed in the same
step as the batch's files, and only on the version in which the last number was read.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from braided.errors import BraidedError, OptionError, TableError
from braided.storage.files import is_remote, local_path
from braided.storage.table_writing import TableTarget
from braided.storage.writing import DataFile

FILE_BYTES = 128_000_000
KINDS = ("delta", "iceberg")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmg]i?b)", re.IGNORECASE)
# The same units as for a memory budget.
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
# If a table has many writers, others may be faster many times.
_ATTEMPTS = 60
_LONGEST_PAUSE = 2.0
_STACK = re.compile(r"\n\s+0: ")
# As Iceberg writes the field of a struct: its id, its name, whether it may be null.
_IDS = re.compile(r"-1: ([^:]*: )(?:optional|required) ")
_COLOURS = re.compile(r"\x1b\[\d*m")
_LONGEST_CAUSE = 1000


@dataclass(frozen=True)
class Layout:
    """The layout of a query's files: the partitions of the table, the compression, and the approximate file size.

    partition_by : names of columns; `()` for no partitions, None for the existing ones of the table.
    add_columns : whether columns that only the rows have are added to the table, and columns that only the table has
        are null in new rows. Otherwise both are errors.
    """

    partition_by: tuple[str, ...] | None = None
    compression: str = "snappy"
    file_bytes: int = FILE_BYTES
    add_columns: bool = False


class TableSink(Protocol):
    """A table to which the batches of one query are appended."""

    name: str
    """The name of the table in errors."""

    def prepare(self, rows: pa.Schema, layout: Layout) -> TableTarget:
        """Return where tasks write files, and create the table if it is missing. Raise if the rows do not fit."""

    def commit(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool:
        """Append a batch's files; return False if the table has that batch already.

        `plan` is a digest of the batch's input: a batch that runs again must have the same input.
        """

    def optimize(self) -> None:
        """Rewrite small files as larger ones, while others may write."""

    def check_optimize(self) -> None:
        """Raise if `optimize` is not supported."""


def split_name(table: str) -> tuple[str, str]:
    """Return the kind of a table and the rest of its name.

    >>> split_name("delta:s3://bucket/calls")
    ('delta', 's3://bucket/calls')
    """
    kind, _, rest = table.partition(":") if isinstance(table, str) else ("", "", "")
    if kind not in KINDS or not rest:
        raise OptionError(
            f"table={table!r}: unknown kind of table; write 'delta:<path or URL>', as in 'delta:/data/calls', or "
            "'iceberg:<catalog>.<namespace>.<table>'"
        )
    return kind, rest


def open_sink(table: str, options: Mapping[str, str] | None = None) -> TableSink:
    """Return the sink of a table, such as `delta:/data/calls`; `options` are those of its library."""
    kind, rest = split_name(table)
    if kind == "delta":
        from braided.storage.delta_table import DeltaSink

        return DeltaSink(rest, options)
    from braided.storage.iceberg_table import IcebergSink

    return IcebergSink(rest, options)


def parse_size(size: str | int, option: str) -> int:
    """Return a size in bytes.

    >>> parse_size("64 MB", "file_size")
    64000000
    """
    if type(size) is int and size > 0:
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None or not float(match[1]):
        raise OptionError(f"{option}={size!r}: not a file size; write '128 MB', or a number of bytes")
    return max(1, int(float(match[1]) * _UNITS[match[2].lower()]))


def plain_location(location: str) -> str:
    """Return a URL, or an absolute local path without its scheme."""
    return location.rstrip("/") if is_remote(location) else os.path.abspath(local_path(location))


def check_columns(name: str, rows: Mapping[str, Any], table: Mapping[str, Any], add_columns: bool) -> list[str]:
    """Return the columns that only the rows have; raise if types do not fit. The values are types in one notation."""
    folded = {column.lower(): column for column in table}
    new = [column for column in rows if column not in table]
    for column in new:
        if column.lower() in folded:
            raise TableError(f"{name}: column {column!r} is called {folded[column.lower()]!r} in the table; rename it")
    for column, kind in rows.items():
        if column in table and table[column] != kind:
            raise TableError(
                f"{name}: column {column!r} is {shown(kind)} in the rows, but {shown(table[column])} in the table; "
                "cast it"
            )
    if add_columns:
        return new
    for column in new:
        raise TableError(f"{name}: column {column!r} is not in the table; drop it, or set add_columns=True to add it")
    for column in table:
        if column not in rows:
            raise TableError(
                f"{name}: column {column!r} of the table is not in the rows; add it, or set add_columns=True to write "
                "nulls"
            )
    return []


def shown(kind: Any) -> str:
    """Return a type as text for errors.

    >>> shown("struct<-1: a: optional long>")
    'struct<a: long>'
    """
    return _IDS.sub(r"\1", kind) if isinstance(kind, str) else json.dumps(kind)


def check_known(name: str, query: str, batch: int, known: int | None) -> None:
    """Raise if a query has finished batches but the table has no batch of it."""
    if known is None and batch:
        raise TableError(
            f"{name}: the table has no batch of the query {query}, but its checkpoint has finished {batch} batches; "
            "use the table that it wrote to, or a new checkpoint"
        )


def check_plan(name: str, batch: int, plan: str, committed: str | None) -> None:
    """Raise if a batch was committed with other input; `committed` is None if the table does not have it any more."""
    if committed is not None and committed != plan:
        raise TableError(
            f"{name}: batch {batch} was committed with other input, so the checkpoint does not belong to the table; "
            "restore both, or start with a new table and a new checkpoint"
        )


@contextlib.contextmanager
def reached(name: str) -> Iterator[None]:
    """Add the name of the table to an error of its library."""
    try:
        yield
    except BraidedError:
        raise
    except Exception as error:
        # Libraries in Rust add a stack trace and colours.
        cause = " ".join(_COLOURS.sub("", _STACK.split(str(error))[0]).split())
        raise TableError(f"{name}: {type(error).__name__}: {cause[:_LONGEST_CAUSE]}") from error


def attempts(name: str, attempt: Callable[[], bool | None]) -> bool:
    """Repeat a commit while it returns None, which means that another writer was first; pause longer each time."""
    for number in range(_ATTEMPTS):
        done = attempt()
        if done is not None:
            return done
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.02 * 2**number)))
    raise TableError(
        f"{name}: other writers were faster {_ATTEMPTS} times; start the query again when there are fewer writers: it "
        "continues from its checkpoint"
    )
