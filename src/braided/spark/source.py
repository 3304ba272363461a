"""`format("braided")`: places of rows as a public data source of Spark's, for streams and batches.

```
 path -> a kind of place: a topic, a table, a directory of files  -> reader, writer
```

`PLACES` lists the kinds. The first that recognises a path is used; operations that it does not support raise an error.
Spark runs this code in Python processes of the driver's machine (schema, offsets, commits) and in its tasks (rows).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructField, StructType

from braided.errors import OptionError
from braided.spark.files_place import FilesPlace
from braided.spark.place import NAME, NAMES_DDL, Place
from braided.spark.table_place import TablePlace
from braided.spark.topic_place import TopicPlace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# In the metadata of a table's first column.
PATH = "braided.path"
PLACES: tuple[type[Place], ...] = (TablePlace, TopicPlace, FilesPlace)
WRITTEN: tuple[type[Place], ...] = (TablePlace, TopicPlace)
"""Of these what a path is that is written to; what is none of them becomes a topic."""
_registered: WeakSet[SparkSession] = WeakSet()


def register(session: SparkSession) -> None:
    """See `braided.register`. Once per session, or Spark logs that one source replaced another."""
    if session not in _registered:
        session.dataSource.register(BraidedSource)
        _registered.add(session)


class BraidedSource(DataSource):  # type: ignore[misc]
    """Options: path, and those of the kind of place; names=true returns names of files instead of rows."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return NAME

    def schema(self) -> StructType | str:
        """See `DataSource`."""
        place = self._place(self.options.get("path"))
        return NAMES_DDL if place.names else _with_path(place.schema(), place.path)

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `DataSource`."""
        return self._place(self._path_of(schema)).reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See `DataSource`."""
        return self._place(self._path_of(schema)).stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See `DataSource`."""
        return self._written().writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `DataSource`."""
        return self._written().stream_writer(schema, overwrite)

    def _path_of(self, schema: StructType) -> str | None:
        path = self.options.get("path")
        return path or next((field.metadata[PATH] for field in schema if PATH in (field.metadata or {})), None)

    def _place(self, path: str | None) -> Place:
        path = _required(path)
        kind = next((kind for kind in PLACES if kind.is_at(path)), None)
        if kind is None:
            raise OptionError(f"path={path!r}: not one of: {', '.join(kind.what for kind in PLACES)}; use another path")
        return kind(path, self.options)

    def _written(self) -> Place:
        path = _required(self.options.get("path"))
        return next((kind for kind in WRITTEN if kind.is_at(path)), TopicPlace)(path, self.options)


def _required(path: str | None) -> str:
    if path:
        return path
    raise OptionError(
        f'path: format("{NAME}") needs one; write .load(path), .start(path) or .save(path). A table of '
        "Spark's catalog has a path for reading, if it was created without columns: OPTIONS (path '...')"
    )


def _with_path(schema: StructType, path: str) -> StructType:
    """Return a schema that has the path: the only part of a table that Spark's catalog passes to a Python source."""
    first, *others = schema.fields
    metadata = {**(first.metadata or {}), PATH: path}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])
