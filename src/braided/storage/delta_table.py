"""Delta tables: batches appended exactly once, and the schema, snapshots and new files that a stream reads.

```
 tasks write Parquet files -> the driver: one commit of their names, with the transaction (query, batch)
```

The log keeps the last batch of every query that writes (`txn`). The library repeats a commit of a batch that is there,
so the number is looked up first, and the commit is tried on that very version: where another writer was faster, it is
looked up again.
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

# Names that Parquet as Delta writes it cannot have, unless columns are mapped.
_ODD = re.compile(r"[ ,;{}()\n\t=]")
# Of columns beyond these Delta has no statistics by default; strings longer than this are left out.
_MEASURED = 32
_LONGEST_TEXT = 32
# Features that ask nothing of a writer that only adds files, or whose use in the table is looked at.
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
    """Return the package `deltalake`, or say what to install."""
    try:
        import deltalake
    except ImportError:
        raise OptionError("table='delta:...': needs deltalake; install braided[delta]") from None
    return deltalake


class DeltaSink(TableSink):
    """A Delta table that batches of one query are appended to.

    `options` are the storage options of deltalake, for the driver; tasks write by fsspec.
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
        """The version that the last commit made, the query and its batch."""
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
                f"partition_by={list(layout.partition_by)!r}: the table is partitioned by {partition_by!r}; leave it "
                "out, or give another table"
            )
        for column in self._check(table):
            with reached(self.name):
                self._add_column(next(field for field in wanted if field["name"] == column))
        self._partition_by = partition_by
        types = {name: rows.field(name).type for name in partition_by if name in rows.names}
        for column in partition_by:
            if column not in types:
                raise TableError(
                    f"{self.name}: column {column!r} is not in the rows, and the table is partitioned by it"
                )
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
        # The library reads the log back to its last checkpoint. Where nobody has written since, it is our own commit.
        version, ours, known = self._ours
        if (version, ours) != (table.version(), query):
            known = table.transaction_version(query)
        check_known(self.name, query, batch, known)
        if known is not None and batch <= known:
            if batch == known:
                check_plan(self.name, batch, plan, self._plan_of(table, query, batch))
            # The files stay: a commit that was reported as failed may have been made, and then the table names them.
            return False
        if not files and known is not None:
            return False
        for column in self._check(table):  # somebody dropped it meanwhile
            raise TableError(f"{self.name}: column {column!r} is not in the table any more; start the query again")
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
            raise TableError(f"{self.name}: is partitioned by {partition_by!r} now; start the query again")
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
            raise TableError(f"{self.name}: is gone; restore it, or start with a new checkpoint")
        self._table.update_incremental()
        if self._id and str(self._table.metadata().id) != self._id:
            raise TableError(f"{self.name}: was replaced by another table; start a new query, with a new checkpoint")
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
            raise OptionError(f"partition_by={list(layout.partition_by)!r}: are all columns; leave one for the files")
        try:
            nullable = pa.schema([field.with_nullable(True) for field in rows])
            schema = self._library.Schema.from_arrow(nullable)
            self._library.DeltaTable.create(
                self.location, schema, partition_by=list(layout.partition_by or ()), storage_options=self._options
            )
        except self._library.exceptions.DeltaError:
            if self._opened() is None:  # else another was faster
                raise
        return self._opened()

    def _fields(self, table: Any) -> dict[str, Any]:
        return {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}

    def _check(self, table: Any) -> list[str]:
        """Return the columns that the table lacks; refuse a table that cannot be appended to with these rows."""
        check_protocol(self.name, table)
        fields = self._fields(table)
        for column, field in fields.items():
            for mark, why in _REQUIRED.items():
                if mark in field["metadata"]:
                    raise TableError(
                        f"{self.name}: column {column!r} {why}; only Spark's connector writes such a table"
                    )
            if not _is_nullable(field):
                raise TableError(
                    f"{self.name}: column {column!r} is NOT NULL, or its elements are, in the table, and rows may have "
                    "nulls; drop that from the table"
                )
        kinds = {column: _kind(field) for column, field in fields.items()}
        return check_columns(self.name, self._wanted, kinds, self._layout.add_columns)

    def _add_column(self, field: dict[str, Any]) -> None:
        added = self._library.Field.from_json(json.dumps({**field, "nullable": True, "metadata": {}}))

        def attempt() -> bool | None:
            table = self._refreshed()
            if field["name"] in self._fields(table):  # another was faster; whether it fits is looked at again
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
    """Refuse to append to a table whose features ask more of a writer than to add files."""
    configuration = table.metadata().configuration
    for key, value in configuration.items():
        if key.startswith("delta.constraints."):
            raise TableError(f"{name}: has the condition {value!r}, which is not checked here; drop it from the table")
    check_mapping(name, configuration)
    for feature in table.protocol().writer_features or ():
        if feature not in _WRITER_FEATURES:
            raise TableError(f"{name}: has the feature {feature!r}, which is not known here; use Spark's connector")


def check_mapping(name: str, configuration: Mapping[str, str]) -> None:
    """Refuse a table whose columns have other names in its files."""
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise TableError(f"{name}: maps its columns to other names (mode {mode!r}); use Spark's connector")


def check_partition(column: str, kind: pa.DataType) -> None:
    """Refuse a partition by values that are not written alike everywhere."""
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)
    if not any(is_plain(kind) for is_plain in plain):
        raise OptionError(
            f"partition_by={column!r}: is {kind}; partition by a string, a whole number, a date or a boolean"
        )


def delta_types(name: str, rows: pa.Schema) -> list[dict[str, Any]]:
    """Return the fields of a schema as Delta has them; refuse a column that it has no type for."""
    fields = []
    for column in rows:
        for path in _names(column):
            if _ODD.search(path) or not path:
                raise TableError(f"{name}: column {path!r}: Delta takes no spaces, commas, brackets or '='; rename it")
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
    """Return the type of a field without whether there may be nulls."""
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
    """Return a file's statistics as Delta's log has them, from its footer.

    Of whole numbers, dates, times and short strings there is the smallest and the largest value. Floating point is left
    out: Parquet takes no account of NaN, and Delta does.
    """
    found = pq.read_metadata(pa.BufferReader(footer))
    schema = found.schema.to_arrow_schema()
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    flat = {found.schema.column(at).path: at for at in range(found.num_columns)}
    for column in list(schema)[:_MEASURED]:
        at = flat.get(column.name)
        if at is None:  # nested
            continue
        chunks = [found.row_group(group).column(at).statistics for group in range(found.num_row_groups)]
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            nulls[column.name] = sum(chunk.null_count for chunk in chunks)
        with contextlib.suppress(ValueError, OverflowError):  # a year that Python has no name for
            ranges = [_range(column.type, chunk, found.num_rows) for chunk in chunks]
            known = [range_ for range_ in ranges if range_ is not None]
            if len(known) == len(ranges):
                low[column.name] = _text(column.type, min(range_[0] for range_ in known))
                high[column.name] = _text(column.type, max(range_[1] for range_ in known))
    return json.dumps({"numRecords": found.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


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
