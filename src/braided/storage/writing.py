"""Write results as Parquet files: row groups and files of bounded size, with names that are unique per attempt."""

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
"""The compression codecs of files."""
# A reader has one row group in memory at a time; one task reads one file.
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
    """One file of a table, below the table's data: the values of its partition, and its footer with statistics.

    Both are sent to the driver, so that it can commit the file without opening it.
    """

    values: tuple[str | int | None, ...] = ()
    footer: bytes = b""


class Writer(Protocol):
    """Writes the rows of one attempt of one task into files."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows."""

    def close(self) -> list[DataFile]:
        """Write the waiting rows and return the files."""

    def discard(self) -> None:
        """Delete the files of a failed attempt."""


class Target(Protocol):
    """Where the tasks of a query write their files."""

    def writer(self, folder: str, task: int, schema: pa.Schema) -> Writer:
        """Return a writer for one attempt of one task; `folder` is the folder of the batch."""


@dataclass(frozen=True)
class FileTarget:
    """Where the tasks of a query write their files: a folder for each batch.

    With `file_bytes`, files have about this size on disk, and are returned with their footers (`TableFile`).
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
    """Writes the rows of one attempt of one task; without rows it writes no file."""

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
        # Attempts of one task must not touch each other's files; only the files of the successful attempt are used.
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
        """Take rows, and write them when there are enough for a row group."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= self._group_bytes:
            self.flush()

    @property
    def waiting_bytes(self) -> int:
        """The size of the rows that wait to become a row group."""
        return self._bytes

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._open is not None

    def flush(self) -> None:
        """Write the waiting rows as a row group."""
        with self._room():
            self._write_group()

    def close(self) -> list[DataFile]:
        """Write the waiting rows and return the files. Later rows would go into another file."""
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
                f"{self._target.data}: cannot write: {error}; free some space or fix the cause, then start the query "
                "again: it continues from its checkpoint"
            ) from error

    def discard(self) -> None:
        """Delete the files of a failed attempt."""
        if self._open is not None:
            name, sink, writer = self._open
            self._open = None
            for part in (writer, sink):  # on a full disk, closing the file fails too
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
