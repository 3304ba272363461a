"""Merge many small data files into a few large ones."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.parquet as pq

from braided.storage.files import open_input
from braided.storage.writing import DataFile, FileTarget, FileWriter


def merge_files(data: str, files: Sequence[DataFile], folder: str) -> list[DataFile]:
    """Write the rows of files, in their order, into new files in a folder; only one row group is in memory."""
    writer: FileWriter | None = None
    try:
        for file in files:
            with pq.ParquetFile(open_input(f"{data}/{file.name}")) as source:
                if writer is None:
                    writer = FileTarget(data).writer(folder, 0, source.schema_arrow)
                for group in source.iter_batches():
                    writer.write(group)
        return [] if writer is None else writer.close()
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
