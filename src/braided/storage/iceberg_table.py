"""Iceberg tables as sinks: every batch is appended exactly once.

```
 tasks write Parquet files -> the driver: one snapshot with their names, and the property (query: batch), together
```

The number of the last batch of every writing query is a property of the table. It is read from the table's newest
metadata, and the snapshot is only valid on top of these metadata. If another writer was faster, the number is read
again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from braided.errors import OptionError, TableError
from braided.storage.table_writing import TIMES, Partition, TableTarget
from braided.storage.tables import (
    Layout,
    TableSink,
    attempts,
    check_columns,
    check_known,
    check_plan,
    plain_location,
    reached,
)
from braided.storage.writing import DataFile, TableFile

_LAST = "braided.last-batch."
_QUERY, _BATCH, _PLAN = "braided.query", "braided.batch", "braided.plan"
_BY = re.compile(r"(year|month|day|hour)\((.+)\)")
_LOOK_BACK = 100


def library() -> Any:
    """Return the package `pyiceberg`; if it is missing, raise with the name of the extra to install."""
    try:
        import pyiceberg.catalog
    except ImportError:
        raise OptionError("table='iceberg:...': needs pyiceberg; install braided[iceberg]") from None
    return pyiceberg


class IcebergSink(TableSink):
    """An Iceberg table to which the batches of one query are appended.

    `options` are properties of the catalog, in addition to pyiceberg's own configuration. Tasks write with fsspec.
    """

    def __init__(self, table: str, options: Mapping[str, str] | None = None) -> None:
        self.name = f"table='iceberg:{table}'"
        catalog, *names = table.split(".")
        if len(names) < 2 or not all((catalog, *names)):
            raise OptionError(f"{self.name}: write 'iceberg:<catalog>.<namespace>.<table>'")
        with reached(self.name), hints(self.name, catalog):
            self._catalog = library().catalog.load_catalog(catalog, **dict(options or {}))
        self._catalog_name = catalog
        self._names = tuple(names)
        self._wanted: dict[str, str] = {}
        self._layout = Layout()
        self._data = ""
        self._laid_out: object = None

    def prepare(self, rows: pa.Schema, layout: Layout) -> TableTarget:
        """See `TableSink`."""
        wanted = self._types(rows)
        self._wanted, self._layout = {column: str(kind) for column, kind in wanted.items()}, layout
        with reached(self.name):
            table = self._opened() or self._create(wanted, layout)
            new = self._check(table)
            if new:
                table = self._add_columns({column: wanted[column] for column in new})
            partitions = self._partitions(table)
            self._check_partition_by(partitions)
            self._laid_out = self._layout_of(table)
            self._data = plain_location(table.location()) + "/data"
            return TableTarget(
                self._data, self._file_schema(table, rows), partitions, layout.compression, layout.file_bytes
            )

    def commit(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool:
        """See `TableSink`."""
        with reached(self.name):
            return attempts(self.name, lambda: self._try(query, batch, plan, files))

    def _try(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool | None:
        from pyiceberg.exceptions import CommitFailedException

        table = self._opened()
        if table is None:
            raise TableError(f"{self.name}: the table is missing; restore it, or start with a new checkpoint")
        last = table.properties.get(_LAST + query)
        known = None if last is None else int(last)
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
        if self._layout_of(table) != self._laid_out:
            raise TableError(
                f"{self.name}: the table's partitions or columns were changed while batch {batch} was written; start "
                "the query again: it continues from its checkpoint"
            )
        # The library must not retry a commit: it would not read the property again.
        once = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        table.metadata = table.metadata.model_copy(update={"properties": once})
        noted = {_QUERY: query, _BATCH: str(batch), _PLAN: plan}
        try:
            with table.transaction() as transaction:
                transaction.set_properties({_LAST + query: str(batch)})
                # Append a snapshot even without files: it makes the commit fail if another writer was faster.
                with transaction.update_snapshot(snapshot_properties=noted).fast_append() as append:
                    for file in self._added(table, files):
                        append.append_data_file(file)
        except CommitFailedException:
            return None
        return True

    def _added(self, table: Any, files: Sequence[DataFile]) -> list[Any]:
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile as IcebergFile
        from pyiceberg.manifest import DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        schema = table.schema()
        measured = compute_statistics_plan(schema, table.properties)
        columns = parquet_path_to_id_mapping(schema)
        return [
            IcebergFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location().rstrip('/')}/data/{file.name}",
                file_format=FileFormat.PARQUET,
                partition=Record(*file.values),
                file_size_in_bytes=file.bytes,
                sort_order_id=None,
                spec_id=table.spec().spec_id,
                equality_ids=None,
                key_metadata=None,
                **data_file_statistics_from_parquet_metadata(
                    pq.read_metadata(pa.BufferReader(file.footer)), measured, columns
                ).to_serialized_dict(),
            )
            for file in files
            if isinstance(file, TableFile)
        ]

    def _plan_of(self, table: Any, query: str, batch: int) -> str | None:
        snapshot = table.current_snapshot()
        for _ in range(_LOOK_BACK):
            if snapshot is None:
                return None
            summary = snapshot.summary
            if summary is not None and (summary[_QUERY], summary[_BATCH]) == (query, str(batch)):
                return None if summary[_PLAN] is None else str(summary[_PLAN])
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return None

    def check_optimize(self) -> None:
        """See `TableSink`."""
        raise OptionError(
            f"optimize=True: pyiceberg cannot compact {self.name}; omit the option and call rewrite_data_files of "
            "Iceberg's runtime for Spark"
        )

    def optimize(self) -> None:
        """See `TableSink`."""
        self.check_optimize()

    def _opened(self) -> Any:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._catalog.load_table(self._names)
        except NoSuchTableError:
            return None

    def _types(self, rows: pa.Schema) -> dict[str, Any]:
        """Return Iceberg's types of the columns; raise if it has no type for a column."""
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, visit_pyarrow
        from pyiceberg.io.pyarrow import _ConvertToIcebergWithoutIDs as Convert

        types = {}
        for column in rows:
            try:
                [field] = visit_pyarrow(pa.schema([column]), Convert()).fields
            except (UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
                raise TableError(
                    f"{self.name}: column {column.name!r}: Iceberg has no type for {column.type}; cast it"
                ) from error
            types[column.name] = field.field_type
        return types

    def _create(self, wanted: Mapping[str, Any], layout: Layout) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import Schema, assign_fresh_schema_ids
        from pyiceberg.transforms import parse_transform
        from pyiceberg.types import NestedField

        fields = [NestedField(at, name, kind, required=False) for at, (name, kind) in enumerate(wanted.items(), 1)]
        schema = assign_fresh_schema_ids(Schema(*fields))
        parts = []
        for at, text in enumerate(layout.partition_by or ()):
            part = partition_of(text)
            if part.column not in wanted:
                raise OptionError(f"partition_by={text!r}: df has no such column, it has {', '.join(wanted)}")
            check_partition(text, part.transform, str(wanted[part.column]))
            called = part.column if part.transform == "identity" else f"{part.column}_{part.transform}"
            source = schema.find_field(part.column).field_id
            parts.append(PartitionField(source, 1000 + at, parse_transform(part.transform), called))
        self._catalog.create_namespace_if_not_exists(self._names[:-1])
        # Another writer may be faster.
        with contextlib.suppress(TableAlreadyExistsError), hints(self.name, self._catalog_name):
            return self._catalog.create_table(self._names, schema, partition_spec=PartitionSpec(*parts))
        return self._opened()

    def _check(self, table: Any) -> list[str]:
        """Return the columns that the table does not have; raise if these rows cannot be appended to the table."""
        for field in table.schema().fields:
            if field.required:
                raise TableError(
                    f"{self.name}: column {field.name!r} is required in the table, but rows may have nulls; make it "
                    "optional"
                )
        kinds = {field.name: str(_without_ids(field.field_type)) for field in table.schema().fields}
        return check_columns(self.name, self._wanted, kinds, self._layout.add_columns)

    def _layout_of(self, table: Any) -> object:
        """Return the id of the partition spec and the ids of the columns, on which the files of a batch depend."""
        ids = {field.name: field.field_id for field in table.schema().fields if field.name in self._wanted}
        return table.spec().spec_id, ids

    def _add_columns(self, new: Mapping[str, Any]) -> Any:
        from pyiceberg.exceptions import CommitFailedException

        def attempt() -> bool | None:
            table = self._opened()
            try:
                with table.update_schema() as update:
                    for column, kind in new.items():
                        if column not in table.schema().column_names:  # another may have been faster
                            update.add_column((column,), kind)
            except CommitFailedException:
                return None
            return True

        attempts(self.name, attempt)
        table = self._opened()
        self._check(table)
        return table

    def _partitions(self, table: Any) -> tuple[Partition, ...]:
        partitions = []
        for field in table.spec().fields:
            column = table.schema().find_column_name(field.source_id)
            transform = str(field.transform)
            text = column if transform == "identity" else f"{transform}({column})"
            if column not in self._wanted:
                raise TableError(f"{self.name}: the rows do not have the partition column {column!r}; add it to df")
            check_partition(text, transform, self._wanted[column])
            partitions.append(Partition(column, transform))
        return tuple(partitions)

    def _check_partition_by(self, partitions: Sequence[Partition]) -> None:
        wanted = self._layout.partition_by
        if wanted is not None and [partition_of(text) for text in wanted] != list(partitions):
            there = [
                part.column if part.transform == "identity" else f"{part.transform}({part.column})"
                for part in partitions
            ]
            raise OptionError(
                f"partition_by={list(wanted)!r}: the table is partitioned by {there!r}; omit the option, or write to "
                "another table"
            )

    def _file_schema(self, table: Any, rows: pa.Schema) -> pa.Schema:
        """Return the schema of files: the table's columns with their ids, in its order."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        whole = schema_to_pyarrow(table.schema(), include_field_ids=True)
        return pa.schema([_small(field) for field in whole if field.name in rows.names])


@contextlib.contextmanager
def hints(name: str, catalog: str) -> Iterator[None]:
    """Say what to set where the settings of a catalog are missing, which the library says in its own words."""
    try:
        yield
    except ValueError as error:
        if "URI missing" in str(error):
            raise OptionError(
                f"{name}: no catalog {catalog!r} is known; write options={{'type': 'rest', 'uri': ...}}, or set it up "
                "in .pyiceberg.yaml"
            ) from error
        if "No default path" in str(error):
            raise OptionError(
                f"{name}: the catalog has no place for new tables; write options={{'warehouse': ...}}"
            ) from error
        raise


def partition_of(text: str) -> Partition:
    """Return the partition for an entry of `partition_by`: a column, or a part of its time.

    >>> partition_of("day(ts)").transform
    'day'
    """
    match = _BY.fullmatch(text)
    return Partition(match[2], match[1]) if match else Partition(text)


def _text(part: Partition) -> str:
    return part.column if part.transform == "identity" else f"{part.transform}({part.column})"


def check_partition(text: str, transform: str, kind: str) -> None:
    """Raise if the transform is not supported, or does not fit the type of the column."""
    if transform == "identity":
        if kind not in ("string", "int", "long", "date", "boolean"):
            raise OptionError(
                f"partition_by={text!r}: the column is {kind}; partition by a string, an integer, a date or a boolean, "
                "or by day(...) of a time"
            )
    elif transform not in TIMES:
        raise OptionError(
            f"partition_by={text!r}: unknown transform; partition by a column, or its year, month, day or hour"
        )
    elif not (kind.startswith("timestamp") or (kind == "date" and transform != "hour")):
        raise OptionError(f"partition_by={text!r}: the column is {kind}, not a time; use a column with a time")


def _without_ids(kind: Any) -> Any:
    """Return a type without the field ids of a table, so that it can be compared."""
    from pyiceberg.types import ListType, MapType, NestedField, StructType

    if isinstance(kind, StructType):
        return StructType(*(NestedField(-1, f.name, _without_ids(f.field_type), required=False) for f in kind.fields))
    if isinstance(kind, ListType):
        return ListType(-1, _without_ids(kind.element_type), element_required=False)
    if isinstance(kind, MapType):
        return MapType(-1, _without_ids(kind.key_type), -1, _without_ids(kind.value_type), value_required=False)
    return kind


def _small(field: pa.Field) -> pa.Field:
    """Return a field with Arrow's common types instead of its large ones; both are the same in files."""
    return field.with_type(_small_type(field.type))


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind):
        return pa.list_(_small(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_small(kind.field(at)) for at in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_field), _small(kind.item_field))
    return kind
