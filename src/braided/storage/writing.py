"""Results as Parquet files: row groups and files of bounded size, under names that no other attempt has."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
class FileTarget:
    """Where the tasks of a query write their files: a folder for each batch."""

    data: str
    compression: str = "snappy"

    def writer(self, folder: str, task: int, schema: pa.Schema) -> FileWriter:
        """Return a writer for one attempt of one task."""
        return FileWriter(self, folder, task, schema)


def batch_folder(batch: int) -> str:
    """Return the folder of a batch's files."""
    return f"{batch:012d}"


class FileWriter:
    """Writes the rows of one attempt of one task; there is no file where there was no row."""

    def __init__(self, target: FileTarget, folder: str, task: int, schema: pa.Schema) -> None:
        self._target = target
        self._files = files_at(target.data, "path")
        self._folder = folder
        # Attempts of one task must not touch each other's files, and only the names of the one that ended well count.
        self._stem = f"{task:05d}-{secrets.token_hex(8)}"
        self._schema = schema
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
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            with self._room():
                self._write_group()

    def close(self) -> list[DataFile]:
        """Write what waits and return the files."""
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
        _, _, writer = self._open or self._new_file()
        writer.write_table(table, row_group_size=max(1, self._rows))
        self._file_rows += self._rows
        self._file_bytes += self._bytes
        self._waiting, self._rows, self._bytes = [], 0, 0
        if self._file_bytes >= _FILE_BYTES:
            self._close_file()

    def _new_file(self) -> tuple[str, Any, pq.ParquetWriter]:
        self._files.make_folder(self._folder)
        name = f"{self._folder}/{self._stem}-{len(self._done)}.parquet"
        sink = self._files.open_output(name)
        self._open = name, sink, pq.ParquetWriter(sink, self._schema, compression=self._target.compression)
        return self._open

    def _close_file(self) -> None:
        if self._open is None:
            return
        name, sink, writer = self._open
        writer.close()
        size = int(sink.tell())
        sink.close()
        self._open = None
        self._done.append(DataFile(name, self._file_rows, size))
        self._file_rows = self._file_bytes = 0
