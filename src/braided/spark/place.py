"""A kind of place that `format("braided")` reads or writes: the methods that each kind has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from braided.errors import OptionError

NAME = "braided"
# The rows for a braided operator that reads files itself: a file, or the part of it between two bytes.
NAMES_DDL = "path string, start long, stop long"
# A part that starts here has no file: its path is the progress of a topic, as text.
PROGRESS = -1
NAMES = pa.schema([("path", pa.string()), ("start", pa.int64()), ("stop", pa.int64())])


class Place:
    """The place at a path. A kind overrides the methods that it supports; the others raise.

    To add a kind, write a subclass in a separate file and name it in `PLACES` of `spark/source.py`.
    """

    what: ClassVar[str]
    """Its name in errors."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self.path = path
        self.options = options

    @classmethod
    def is_at(cls, path: str) -> bool:
        """Whether a path is a place of this kind."""
        raise NotImplementedError

    @property
    def names(self) -> bool:
        """Whether to return names of files instead of rows: a braided operator then reads the files itself."""
        return str(self.options.get("names", "false")).lower() == "true"

    def schema(self) -> StructType:
        """Return the schema of its rows."""
        raise self._refused("read")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of all present rows."""
        raise self._refused("read")

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of rows as they come."""
        raise self._refused("read as a stream")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer that appends rows once."""
        raise self._refused("written")

    def stream_writer(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer that appends the batches of a stream, each exactly once."""
        raise self._refused("written by a stream")

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return an option that is a number of 1 or more."""
        given = self.options.get(name)
        if given is None:
            return default
        if not str(given).isdigit() or int(given) < 1:
            raise OptionError(f"{name}={given!r}: write a number of 1 or more")
        return int(given)

    def _refused(self, doing: str) -> OptionError:
        return OptionError(f'path={self.path!r}: {self.what} cannot be {doing} by format("{NAME}")')
