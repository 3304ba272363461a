"""Results as Parquet files: row groups and files of bounded size, under names that no other attempt has."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from braided.errors import TopicError
from braided.storage.files import files_at

CODECS = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
"""How files may be compressed."""
# A row group is what a reader of these files holds at once; a file is what one reading task gets.
_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_FILE_BYTES = 512 << 20


@dataclass(frozen=True)
class DataFile:
    """One file of a batch, below the folder of the topic's data."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class TableFile(DataFile):
    """One file of a table, below the table's data: the values of its partition, and its footer, which has statistics.

    Both cross to the driver, so that it commits the file without opening it.
    """

    values: tuple[str | int | None, ...] = ()
    footer: bytes = b""


class Writer(Protocol):
    """Takes the rows of one attempt of one task, and makes files of them."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def close(self) -> list[DataFile]:
        """Write what waits and return the files."""

    def discard(self) -> None:
        """Delete what was written: the attempt has failed."""


class Target(Protocol):
    """Where the tasks of a query write their files."""

    def writer(self, folder: str, task: int, schema: pa.Schema) -> Writer:
        """Return a writer for one attempt of one task in a batch, whose folder is given."""


@dataclass(frozen=True)
class FileTarget:
    """Where the tasks of a query write their files: a folder for each batch.

    With `file_bytes`, files end near this size as it is on disk, and have their footers with them (`TableFile`).
    """

    data: str
    compression: str = "snappy"
    file_bytes: int | None = None

    def writer(self, folder: str, task: int, schema: pa.Schema) -> FileWriter:
        """Return a writer for one attempt of one task."""
        return FileWriter(self, f"{folder}/", task, schema)


def batch_folder(batch: int) -> str:
    """Return the folder of a batch's files."""
    return f"{batch:012d}"


class FileWriter:
    """Writes the rows of one attempt of one task; there is no file where there was no row."""

    def __init__(
        self,
        target: FileTarget,
        prefix: str,
        task: int,
        schema: pa.Schema,
        values: tuple[str | int | None, ...] = (),
    ) -> None:
        """Names of files begin with `prefix`; `values` are those of the partition that the rows belong to."""
        self._target = target
        self._files = files_at(target.data, "path")
        self._prefix = prefix
        self._values = values
        # Attempts of one task must not touch each other's files, and only the names of the one that ended well count.
        self._stem = f"{task:05d}-{secrets.token_hex(8)}"
        self._schema = schema
        self._group_bytes = min(_GROUP_BYTES, target.file_bytes or _GROUP_BYTES)
        self._footers: list[pq.FileMetaData] = []
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._open: tuple[str, Any, pq.ParquetWriter] | None = None
        self._file_rows = self._file_bytes = 0
        self._done: list[DataFile] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows; they are written as soon as there are enough for a row group."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= self._group_bytes:
            self.flush()

    @property
    def waiting_bytes(self) -> int:
        """How much waits to become a row group."""
        return self._bytes

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._open is not None

    def flush(self) -> None:
        """Write what waits as a row group."""
        with self._room():
            self._write_group()

    def close(self) -> list[DataFile]:
        """Write what waits and return the files. Further rows would go into a further file."""
        with self._room():
            self._write_group()
            self._close_file()
        return self._done

    @contextlib.contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TopicError(
                f"{self._target.data}: cannot be written: {error}; make room, or mend it, then start the query again: "
                "it goes on from its checkpoint"
            ) from error

    def discard(self) -> None:
        """Delete what was written: the attempt has failed."""
        if self._open is not None:
            name, sink, writer = self._open
            self._open = None
            for part in (writer, sink):  # on a full disk, the end of the file cannot be written either
                with contextlib.suppress(OSError):
                    part.close()
            self._files.delete(name)
        for file in self._done:
            self._files.delete(file.name)

    def _write_group(self) -> None:
        if not self._rows:
            return
        table = pa.Table.from_batches(self._waiting, self._schema)
        _, sink, writer = self._open or self._new_file()
        writer.write_table(table, row_group_size=max(1, self._rows))
        self._file_rows += self._rows
        self._file_bytes += self._bytes
        self._waiting, self._rows, self._bytes = [], 0, 0
        most = self._target.file_bytes
        if self._file_bytes >= _FILE_BYTES if most is None else sink.tell() >= most:
            self._close_file()

    def _new_file(self) -> tuple[str, Any, pq.ParquetWriter]:
        self._files.make_folder(self._prefix.rpartition("/")[0])
        name = f"{self._prefix}{self._stem}-{len(self._done)}.parquet"
        sink = self._files.open_output(name)
        writer = pq.ParquetWriter(
            sink, self._schema, compression=self._target.compression, metadata_collector=self._footers
        )
        self._open = name, sink, writer
        return self._open

    def _close_file(self) -> None:
        if self._open is None:
            return
        name, sink, writer = self._open
        writer.close()
        size = int(sink.tell())
        sink.close()
        self._open = None
        self._done.append(self._described(name, size))
        self._file_rows = self._file_bytes = 0

    def _described(self, name: str, size: int) -> DataFile:
        footer = self._footers.pop()
        if self._target.file_bytes is None:
            return DataFile(name, self._file_rows, size)
        content = pa.BufferOutputStream()
        footer.write_metadata_file(content)
        return TableFile(name, self._file_rows, size, self._values, content.getvalue().to_pybytes())
