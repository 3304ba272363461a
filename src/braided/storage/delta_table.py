"""Delta tables as sinks: every batch is appended exactly once.

```
 tasks write Parquet files -> the driver: one commit of their names, with the transaction (query, batch)
```

The log keeps the number of the last batch of every writing query (`txn`). The library would commit a batch a second
time, so the number is read first, and the commit is only valid on the version in which it was read. If another writer
was faster, the number is read again.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from braided.errors import BraidedError, OptionError, TableError
from braided.storage.files import files_at
from braided.storage.table_writing import Partition, TableTarget
from braided.storage.tables import (
    Layout,
    TableSink,
    attempts,
    check_columns,
    check_known,
    check_plan,
    plain_location,
    reached,
    shown,
)
from braided.storage.writing import DataFile, TableFile

# Characters that Delta does not allow in column names without column mapping.
_ODD = re.compile(r"[ ,;{}()\n\t=]")
# By default Delta has statistics for this many columns; longer strings than this have none.
_MEASURED = 32
_LONGEST_TEXT = 32
# Features that require nothing of a writer that only adds files, or whose use in the table is checked.
_WRITER_FEATURES = {
    "appendOnly", "changeDataFeed", "checkConstraints", "clustering", "columnMapping", "deletionVectors",
    "domainMetadata", "generatedColumns", "identityColumns", "invariants", "timestampNtz", "v2Checkpoint",
    "vacuumProtocolCheck",
}  # fmt: skip
_REQUIRED = {
    "delta.invariants": "has a condition",
    "delta.generationExpression": "is computed by the table",
    "delta.identity.start": "is numbered by the table",
}
_KEY = "braided"


def library() -> Any:
    """Return the package `deltalake`; if it is missing, raise with the name of the extra to install."""
    try:
        import deltalake
    except ImportError:
        raise OptionError("table='delta:...': needs deltalake; install braided[delta]") from None
    return deltalake


class DeltaSink(TableSink):
    """A Delta table to which the batches of one query are appended.

    `options` are the storage options of deltalake, for the driver; tasks write with fsspec.
    """

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        self._library = library()
        self.location = plain_location(location)
        self.name = f"table='delta:{location}'"
        self._options = dict(options or {}) or None
        self._table: Any = None
        self._wanted: dict[str, Any] = {}
        self._layout = Layout()
        self._partition_by: list[str] = []
        self._ours: tuple[int, str, int | None] = (-1, "", None)
        """The version that the last commit created, its query and its batch."""
        self._id = ""

    def prepare(self, rows: pa.Schema, layout: Layout) -> TableTarget:
        """See `TableSink`."""
        wanted = delta_types(self.name, rows)
        self._wanted, self._layout = {field["name"]: _kind(field) for field in wanted}, layout
        with reached(self.name):
            table = self._opened()
            if table is None:
                table = self._create(rows, layout)
            self._id = str(table.metadata().id)
        partition_by = table.metadata().partition_columns
        if layout.partition_by is not None and list(layout.partition_by) != partition_by:
            raise OptionError(
                f"partition_by={list(layout.partition_by)!r}: the table is partitioned by {partition_by!r}; omit the "
                "option, or write to another table"
            )
        for column in self._check(table):
            with reached(self.name):
                self._add_column(next(field for field in wanted if field["name"] == column))
        self._partition_by = partition_by
        types = {name: rows.field(name).type for name in partition_by if name in rows.names}
        for column in partition_by:
            if column not in types:
                raise TableError(f"{self.name}: the rows do not have the partition column {column!r}; add it to df")
            check_partition(column, types[column])
        order = [column for column in self._fields(self._refreshed()) if column in rows.names]
        return TableTarget(
            self.location,
            pa.schema([pa.field(column, rows.field(column).type) for column in order if column not in types]),
            tuple(Partition(column, as_text=True) for column in partition_by),
            layout.compression,
            layout.file_bytes,
        )

    def commit(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool:
        """See `TableSink`."""
        with reached(self.name):
            return attempts(self.name, lambda: self._try(query, batch, plan, files))

    def _try(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool | None:
        table = self._refreshed()
        # The library reads the log back to its last checkpoint. This is not needed if the newest version is our commit.
        version, ours, known = self._ours
        if (version, ours) != (table.version(), query):
            known = table.transaction_version(query)
        check_known(self.name, query, batch, known)
        if known is not None and batch <= known:
            if batch == known:
                check_plan(self.name, batch, plan, self._plan_of(table, query, batch))
            # Keep the files: a commit that was reported as failed may have succeeded, and then the table has them.
            return False
        if not files and known is not None:
            return False
        for column in self._check(table):  # another program dropped it
            raise TableError(f"{self.name}: column {column!r} was dropped from the table; start the query again")
        properties = self._library.CommitProperties(
            app_transactions=[self._library.Transaction(query, batch)],
            custom_metadata={_KEY: json.dumps({"query": query, "batch": batch, "plan": plan})},
            max_commit_retries=0,
        )
        try:
            table.create_write_transaction(
                self._added(table, files),
                "append",
                table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=properties,
            )
        except self._library.exceptions.CommitFailedError:
            return None
        self._ours = table.version() + 1, query, batch
        return True

    def _added(self, table: Any, files: Sequence[DataFile]) -> list[Any]:
        from deltalake.transaction import AddAction

        now = int(time.time() * 1000)
        partition_by = table.metadata().partition_columns
        if partition_by != self._partition_by:
            raise TableError(f"{self.name}: the partitions were changed to {partition_by!r}; start the query again")
        return [
            AddAction(
                file.name,
                file.bytes,
                dict(zip(partition_by, file.values, strict=True)),
                now,
                True,
                statistics(file.footer),
            )
            for file in files
            if isinstance(file, TableFile)
        ]

    def _plan_of(self, table: Any, query: str, batch: int) -> str | None:
        for entry in table.history(100):
            note = note_of({"commitInfo": entry})
            if (note.get("query"), note.get("batch")) == (query, batch):
                return str(note["plan"])
        return None

    def check_optimize(self) -> None:
        """See `TableSink`."""

    def optimize(self) -> None:
        """See `TableSink`."""
        with reached(self.name):
            table = self._library.DeltaTable(self.location, storage_options=self._options)
            table.optimize.compact(target_size=self._layout.file_bytes)

    def _opened(self) -> Any:
        self._table = None
        try:
            self._table = self._library.DeltaTable(self.location, storage_options=self._options)
        except self._library.exceptions.TableNotFoundError:
            return None
        return self._table

    def _refreshed(self) -> Any:
        if self._table is None or not self._has_our_commit():
            self._opened()
        if self._table is None:
            raise TableError(f"{self.name}: the table is missing; restore it, or start with a new checkpoint")
        self._table.update_incremental()
        if self._id and str(self._table.metadata().id) != self._id:
            raise TableError(
                f"{self.name}: the table was replaced by another one; start a new query with a new checkpoint"
            )
        return self._table

    def _has_our_commit(self) -> bool:
        """Whether our last commit is still in the log.

        The library adds new commits to those that it has read, and does not look whether these are still there: of a
        table that was deleted and made anew it would mix the two.
        """
        version, query, batch = self._ours
        if version < 0:
            return False
        try:
            content = files_at(self.location, "path").read(log_name(version))
            noted = [note_of(json.loads(line)) for line in (content or b"").splitlines()]
        except (BraidedError, OSError, ValueError):
            # The library may have a credential that fsspec has not; then all of the log is read again.
            return False
        return any((note.get("query"), note.get("batch")) == (query, batch) for note in noted)

    def _create(self, rows: pa.Schema, layout: Layout) -> Any:
        for column in layout.partition_by or ():
            if column not in rows.names:
                raise OptionError(f"partition_by={column!r}: df has no such column, it has {', '.join(rows.names)}")
            check_partition(column, rows.field(column).type)
        if layout.partition_by and len(layout.partition_by) == len(rows.names):
            raise OptionError(
                f"partition_by={list(layout.partition_by)!r}: these are all columns; leave at least one column out"
            )
        try:
            nullable = pa.schema([field.with_nullable(True) for field in rows])
            schema = self._library.Schema.from_arrow(nullable)
            self._library.DeltaTable.create(
                self.location, schema, partition_by=list(layout.partition_by or ()), storage_options=self._options
            )
        except self._library.exceptions.DeltaError:
            if self._opened() is None:  # otherwise another writer was faster
                raise
        return self._opened()

    def _fields(self, table: Any) -> dict[str, Any]:
        return {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}

    def _check(self, table: Any) -> list[str]:
        """Return the columns that the table does not have; raise if these rows cannot be appended to the table."""
        check_protocol(self.name, table)
        fields = self._fields(table)
        for column, field in fields.items():
            for mark, why in _REQUIRED.items():
                if mark in field["metadata"]:
                    raise TableError(f"{self.name}: column {column!r} {why}; write this table with Spark's connector")
            if not _is_nullable(field):
                raise TableError(
                    f"{self.name}: column {column!r}, or a part of it, is NOT NULL in the table, but rows may have "
                    "nulls; drop that condition from the table"
                )
        kinds = {column: _kind(field) for column, field in fields.items()}
        return check_columns(self.name, self._wanted, kinds, self._layout.add_columns)

    def _add_column(self, field: dict[str, Any]) -> None:
        added = self._library.Field.from_json(json.dumps({**field, "nullable": True, "metadata": {}}))

        def attempt() -> bool | None:
            table = self._refreshed()
            if field["name"] in self._fields(table):  # another writer was faster; the type is checked below
                return False
            try:
                table.alter.add_columns(added)
            except self._library.exceptions.CommitFailedError:
                return None
            return True

        attempts(self.name, attempt)
        self._check(self._refreshed())


def log_name(version: int) -> str:
    """Return the name of a commit, below the table."""
    return f"_delta_log/{version:020d}.json"


def note_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a commit of ours notes about itself (query, batch, plan); empty for other actions of a log."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        return dict(json.loads(action["commitInfo"][_KEY]))
    return {}


def check_protocol(name: str, table: Any) -> None:
    """Raise if the features of a table require more of a writer than adding files."""
    configuration = table.metadata().configuration
    for key, value in configuration.items():
        if key.startswith("delta.constraints."):
            raise TableError(f"{name}: Braided cannot check the table's condition {value!r}; drop it from the table")
    check_mapping(name, configuration)
    for feature in table.protocol().writer_features or ():
        if feature not in _WRITER_FEATURES:
            raise TableError(f"{name}: the table has the unsupported feature {feature!r}; use Spark's connector")


def check_mapping(name: str, configuration: Mapping[str, str]) -> None:
    """Raise if the columns of a table have other names in its files."""
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise TableError(f"{name}: the table uses column mapping (mode {mode!r}); use Spark's connector")


def check_partition(column: str, kind: pa.DataType) -> None:
    """Raise if the values of a partition column have no common text form."""
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)
    if not any(is_plain(kind) for is_plain in plain):
        raise OptionError(
            f"partition_by={column!r}: the column is {kind}; partition by a string, an integer, a date or a boolean"
        )


def delta_types(name: str, rows: pa.Schema) -> list[dict[str, Any]]:
    """Return the fields of a schema in Delta's types; raise if Delta has no type for a column."""
    fields = []
    for column in rows:
        for path in _names(column):
            if _ODD.search(path) or not path:
                raise TableError(
                    f"{name}: column {path!r}: Delta allows no spaces, commas, brackets or '=' in names; rename it"
                )
        try:
            if _has_null(column.type):
                raise TypeError
            schema = library().Schema.from_arrow(pa.schema([column]))
        except Exception as error:
            raise TableError(f"{name}: column {column.name!r}: Delta has no type for {column.type}; cast it") from error
        fields += json.loads(schema.to_json())["fields"]
    return fields


def _names(field: pa.Field[Any]) -> Iterator[str]:
    """Yield the name of a column and those of the fields in it, as the user has named them."""
    yield field.name
    pending = [field.type]
    while pending:
        kind = pending.pop()
        parts = [kind.field(at) for at in range(kind.num_fields)]
        if pa.types.is_struct(kind):
            yield from (f"{field.name}.{part.name}" if part.name else "" for part in parts)
        pending += [part.type for part in parts]


def _has_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_has_null(kind.field(at).type) for at in range(kind.num_fields))


def _kind(field: Mapping[str, Any]) -> Any:
    """Return the type of a field without its nullability."""
    kind = field["type"]
    return shown(_bare(kind)) if isinstance(kind, dict) else kind


def _bare(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_bare(each) for each in kind]
    if isinstance(kind, dict):
        left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {key: _bare(value) for key, value in kind.items() if key not in left_out}
    return kind


def _is_nullable(kind: Any) -> bool:
    if isinstance(kind, list):
        return all(_is_nullable(each) for each in kind)
    if isinstance(kind, dict):
        marks = [kind.get(mark, True) for mark in ("nullable", "containsNull", "valueContainsNull")]
        return all(marks) and all(_is_nullable(kind[key]) for key in kind if key != "metadata")
    return True


def statistics(footer: bytes) -> str:
    """Return a file's statistics in the format of Delta's log, from its footer.

    They have the smallest and the largest value of integers, dates, times and short strings. Floating-point columns are
    left out, because Parquet ignores NaN and Delta does not.
    """
    metadata = pq.read_metadata(pa.BufferReader(footer))
    schema = metadata.schema.to_arrow_schema()
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    flat = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    for column in list(schema)[:_MEASURED]:
        at = flat.get(column.name)
        if at is None:  # nested
            continue
        chunks = [metadata.row_group(group).column(at).statistics for group in range(metadata.num_row_groups)]
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            nulls[column.name] = sum(chunk.null_count for chunk in chunks)
        with contextlib.suppress(ValueError, OverflowError):  # a year outside of Python's range
            ranges = [_range(column.type, chunk, metadata.num_rows) for chunk in chunks]
            known = [range_ for range_ in ranges if range_ is not None]
            if len(known) == len(ranges):
                low[column.name] = _text(column.type, min(range_[0] for range_ in known))
                high[column.name] = _text(column.type, max(range_[1] for range_ in known))
    return json.dumps({"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _range(kind: pa.DataType, chunk: Any, rows: int) -> tuple[Any, Any] | None:
    if chunk is None or not chunk.has_min_max:
        return None
    if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return chunk.min, chunk.max
    if pa.types.is_string(kind) and max(len(chunk.min), len(chunk.max)) <= _LONGEST_TEXT:
        return chunk.min, chunk.max
    return None


def _text(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_date(kind):
        return value.isoformat()
    if pa.types.is_timestamp(kind):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if kind.tz is not None else "")
    return value
