"""Tables of Delta and Iceberg as places of `format("braided")`: `delta:<path or URL>`, `iceberg:<catalog>.<table>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from braided.errors import OptionError
from braided.spark.place import Place
from braided.storage.tables import KINDS, split_name

if TYPE_CHECKING:
    from braided.spark.delta_source import DeltaSource


class TablePlace(Place):
    """Options: those of `braided.table` and `braided.write_table`, by their names; `storage.<name>` for the library."""

    what: ClassVar[str] = "a table"

    @classmethod
    def is_at(cls, path: str) -> bool:
        """See `Place`."""
        return path.partition(":")[0] in KINDS

    def schema(self) -> StructType:
        """See `Place`."""
        return self._source().schema()

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """See `Place`."""
        return self._source().streamReader(schema)

    def stream_writer(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """See `Place`."""
        if overwrite:
            raise OptionError(f'path={self.path!r}: a stream appends to a table; write outputMode("append")')
        from braided.spark.table_stream import TableStreamWriter

        return TableStreamWriter(self.path, schema, self.options)

    def _source(self) -> DeltaSource:
        from braided.spark.delta_source import DeltaSource

        kind, location = split_name(self.path)
        if kind != "delta":
            raise OptionError(
                f"path={self.path!r}: only Delta tables can be read as streams; for Iceberg use its own Spark source"
            )
        self.number("max_files")
        return DeltaSource({**self.options, "location": location})
