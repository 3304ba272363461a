"""A kind of place that `format("braided")` reads or writes: what each must answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from braided.errors import OptionError

NAME = "braided"
# What a braided operator gets that reads files itself: a file, or the part of it between two bytes.
NAMES_DDL = "path string, start long, stop long"
# Where a part starts here, its path is no path: it says how far a topic has come, as text.
PROGRESS = -1
NAMES = pa.schema([("path", pa.string()), ("start", pa.int64()), ("stop", pa.int64())])


class Place:
    """What is at a path. A kind overrides what it can do; the rest is refused.

    To add a kind, write a subclass in a file of its own and name it in `PLACES` of `spark/source.py`.
    """

    what: ClassVar[str]
    """What errors call it."""

    def __init__(self, path: str, options: Mapping[str, str]) -> None:
        self.path = path
        self.options = options

    @classmethod
    def is_at(cls, path: str) -> bool:
        """Whether a path is one of this kind."""
        raise NotImplementedError

    @property
    def names(self) -> bool:
        """Whether names of files are asked for in place of rows: a braided operator reads the files itself."""
        return str(self.options.get("names", "false")).lower() == "true"

    def schema(self) -> StructType:
        """Return the schema of its rows."""
        raise self._refused("read")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads all rows that are there."""
        raise self._refused("read")

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what reads rows as they come."""
        raise self._refused("read as a stream")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what appends rows once."""
        raise self._refused("written")

    def stream_writer(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what appends the batches of a stream, each exactly once."""
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
