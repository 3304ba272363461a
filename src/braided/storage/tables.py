"""What tables of Delta and Iceberg have in common: their names, how a sink commits, and columns that must fit.

A table's log is shared with writers that know nothing of Braided. So a batch is committed under the id of its query
and its number, in the same step as its files, and only on the very version in which that number was looked up.
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
# As those of a budget.
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
# A table with many writers may be ahead of us again and again.
_ATTEMPTS = 60
_LONGEST_PAUSE = 2.0
_STACK = re.compile(r"\n\s+0: ")
# As Iceberg writes the field of a struct: its id, its name, whether it may be null.
_IDS = re.compile(r"-1: ([^:]*: )(?:optional|required) ")
_COLOURS = re.compile(r"\x1b\[\d*m")
_LONGEST_CAUSE = 1000


@dataclass(frozen=True)
class Layout:
    """How a query's files are laid out: what the table is partitioned by, compression, and about how large files are.

    partition_by : names of columns; `()` for no partitions, None for those that the table has.
    add_columns : whether a column that only the rows have is added to the table, and one that only the table has may
        be null in new rows. Otherwise both are refused.
    """

    partition_by: tuple[str, ...] | None = None
    compression: str = "snappy"
    file_bytes: int = FILE_BYTES
    add_columns: bool = False


class TableSink(Protocol):
    """A table that batches of one query are appended to."""

    name: str
    """What errors call it."""

    def prepare(self, rows: pa.Schema, layout: Layout) -> TableTarget:
        """Return where the rows' files go; the table is made if there is none. Refuse rows that do not fit."""

    def commit(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool:
        """Append a batch's files; False if that batch is in the table already.

        `plan` is a digest of the input that the batch covers: a batch that is run again must cover the same.
        """

    def optimize(self) -> None:
        """Rewrite small files as larger ones, beside other writers."""

    def check_optimize(self) -> None:
        """Refuse where `optimize` cannot be done."""


def split_name(table: str) -> tuple[str, str]:
    """Return the kind of a table and the rest of its name.

    >>> split_name("delta:s3://bucket/calls")
    ('delta', 's3://bucket/calls')
    """
    kind, _, rest = table.partition(":") if isinstance(table, str) else ("", "", "")
    if kind not in KINDS or not rest:
        raise OptionError(
            f"table={table!r}: write 'delta:<path or URL>', as in 'delta:/data/calls', or "
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
        raise OptionError(f"{option}={size!r}: no size of a file; write '128 MB', or a number of bytes")
    return max(1, int(float(match[1]) * _UNITS[match[2].lower()]))


def plain_location(location: str) -> str:
    """Return a URL, or a whole local path without its scheme."""
    return location.rstrip("/") if is_remote(location) else os.path.abspath(local_path(location))


def check_columns(name: str, rows: Mapping[str, Any], table: Mapping[str, Any], add_columns: bool) -> list[str]:
    """Return the columns that only rows have; refuse those that do not fit. Values are types, in any one notation."""
    folded = {column.lower(): column for column in table}
    new = [column for column in rows if column not in table]
    for column in new:
        if column.lower() in folded:
            raise TableError(f"{name}: column {column!r} is {folded[column.lower()]!r} in the table; rename it")
    for column, kind in rows.items():
        if column in table and table[column] != kind:
            raise TableError(
                f"{name}: column {column!r} is {shown(kind)} in the rows, {shown(table[column])} in the table; cast it"
            )
    if add_columns:
        return new
    for column in new:
        raise TableError(f"{name}: column {column!r} is not in the table; drop it, or write add_columns=True to add it")
    for column in table:
        if column not in rows:
            raise TableError(
                f"{name}: column {column!r} of the table is not in the rows; add it, or write add_columns=True to let "
                "it be null"
            )
    return []


def shown(kind: Any) -> str:
    """Return a type as errors show it.

    >>> shown("struct<-1: a: optional long>")
    'struct<a: long>'
    """
    return _IDS.sub(r"\1", kind) if isinstance(kind, str) else json.dumps(kind)


def check_known(name: str, query: str, batch: int, known: int | None) -> None:
    """Refuse a query that has done batches which the table does not know of."""
    if known is None and batch:
        raise TableError(
            f"{name}: knows nothing of the query {query}, whose checkpoint has done {batch} batches; give the table "
            "that it wrote to, or a new checkpoint"
        )


def check_plan(name: str, batch: int, plan: str, committed: str | None) -> None:
    """Refuse a batch that is in the table, but over other input; None where the table has forgotten."""
    if committed is not None and committed != plan:
        raise TableError(
            f"{name}: batch {batch} was committed over other input; the checkpoint and the table do not belong "
            "together: restore both, or start with a new table and a new checkpoint"
        )


@contextlib.contextmanager
def reached(name: str) -> Iterator[None]:
    """Say which table it was that its library failed with."""
    try:
        yield
    except BraidedError:
        raise
    except Exception as error:
        # Libraries in Rust add a stack, and colours.
        cause = " ".join(_COLOURS.sub("", _STACK.split(str(error))[0]).split())
        raise TableError(f"{name}: {type(error).__name__}: {cause[:_LONGEST_CAUSE]}") from error


def attempts(name: str, attempt: Callable[[], bool | None]) -> bool:
    """Call a commit until it is not None, which means that another writer was first; pause longer each time."""
    for number in range(_ATTEMPTS):
        done = attempt()
        if done is not None:
            return done
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.02 * 2**number)))
    raise TableError(
        f"{name}: other writers were first {_ATTEMPTS} times; start the query again when there are fewer: it goes on "
        "from its checkpoint"
    )
