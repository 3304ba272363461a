"""Files that are read ahead: the same batches in the same order, and the next one while the last is in use."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pyarrow as pa
import pytest

from braided.storage.file_reader import read_ahead

BATCHES = [pa.record_batch({"a": [number]}) for number in range(4)]


def test_the_next_batch_is_read_while_the_last_is_in_use() -> None:
    begun = [Event() for _ in BATCHES]

    def reader() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(BATCHES):
            begun[number].set()
            yield batch

    taken = []
    for number, batch in enumerate(read_ahead(reader())):
        taken.append(batch)
        assert all(event.wait(10) for event in begun[: number + 2])
        assert not any(event.is_set() for event in begun[number + 2 :]), "more than one batch is ahead"
    assert taken == BATCHES
    assert list(read_ahead(iter(()))) == []


def test_an_error_of_the_reader_comes_after_the_batches_before_it() -> None:
    def reader() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise OSError("the disk is gone")

    batches = read_ahead(reader())
    assert next(batches) is BATCHES[0]
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)


def test_a_consumer_that_stops_early_leaves_no_thread_behind() -> None:
    batches = read_ahead(iter(BATCHES))
    assert next(batches) is BATCHES[0]
    batches.close()  # type: ignore[attr-defined]
    assert list(batches) == []
