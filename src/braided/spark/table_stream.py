"""A table of Delta or Iceberg as a sink of `format("braided")`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from braided.errors import OptionError
from braided.spark.arrow_types import arrow_of
from braided.spark.delta_source import STORAGE
from braided.spark.place import NAME
from braided.spark.topic_sink import ArrowWriter, Written, batch_of, check_codec, files_in, write_task
from braided.storage.tables import FILE_BYTES, Layout, TableSink, open_sink, parse_size

if TYPE_CHECKING:
    import pyarrow as pa


class TableStreamWriter(ArrowWriter):  # type: ignore[misc]
    """Appends the batches of a stream to a table, each once, under the id of its query."""

    def __init__(self, path: str, schema: StructType, options: Mapping[str, str]) -> None:
        partition_by = options.get("partition_by")
        layout = Layout(
            None if partition_by is None else tuple(name.strip() for name in partition_by.split(",")),
            check_codec(options),
            parse_size(options.get("file_size", FILE_BYTES), "file_size"),
            str(options.get("add_columns", "false")).lower() == "true",
        )
        storage = {name[len(STORAGE) :]: value for name, value in options.items() if name.startswith(STORAGE)}
        self._sink: TableSink | None = open_sink(path, storage)
        self._schema = arrow_of(schema, "df")
        self._target = self._sink.prepare(self._schema, layout)
        self._checkpoint = options.get("checkpointLocation")

    def __getstate__(self) -> dict[str, Any]:
        # Tasks write files and need no table.
        return {**self.__dict__, "_sink": None}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """See `DataSourceStreamArrowWriter`."""
        return write_task(self._target, self._schema, iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:
        """See `DataSourceStreamWriter`."""
        owner, plan = batch_of(self._checkpoint, messages, batchId)
        if owner is None or plan is None:
            raise OptionError(
                f'checkpointLocation={self._checkpoint!r}: for a table, format("{NAME}") reads the plan of a batch '
                "there; give it as an option of the writer: a local path, or a URL that fsspec supports"
            )
        assert self._sink is not None
        self._sink.commit(owner, batchId, plan, files_in(messages))

    def abort(self, messages: Sequence[Written | None], batchId: int) -> None:
        """See `DataSourceStreamWriter`: the commit may have come through, so nothing is deleted."""
