"""The sequence of a record in the output of its writer, and how readers find records that were written twice.

An at-least-once sink writes a batch again if something fails before the batch is marked as done. Therefore a writer
labels every record with its *sequence*: the query's id, the number of the batch, the task, and the number of the record
among those of its task. A batch that runs again gives every record the same label.

```
 a partition of the topic, and the batch/number of each record:
   7/0 7/2 7/3 | 7/0 7/2 7/3 7/5 | 8/1 8/2     a task of batch 7 failed, ran again, then came batch 8
   new new new   -   -   -   new   new new
```

A batch is written only after the previous one is complete, and a label always goes to the same partition of the topic.
So a record of a batch older than the newest batch of its task is always a repeat, and only the numbers of the newest
batch must be remembered. They are remembered one by one: when the delivery of a record times out, later records may
already be there, and the lost record comes after them when the task runs again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import StateError

HEADER = "braided.sequence"
_SAVED = pa.schema(
    [("query", pa.string()), ("task", pa.int64()), ("batch", pa.int64()), ("numbers", pa.list_(pa.int64()))]
)

Numbers = npt.NDArray[np.int64]
Writer = tuple[str, int]


@dataclass(frozen=True)
class Newest:
    """The newest batch of a writer, and the numbers of its records that were read, in order."""

    batch: int
    numbers: Numbers


class Repeats:
    """Finds repeated records in one partition of a topic: one object per batch of the reader, in chunks of any order.

    `known` is the result of `newest` after the reader's previous batch.

    >>> repeats = Repeats({})
    >>> ask = [np.array(column) for column in (["q", "q", "q"], [7, 7, 7], [0, 0, 0], [0, 2, 0])]
    >>> repeats.new(*ask).tolist()
    [True, True, False]
    >>> Repeats(repeats.newest()).new(*ask).tolist()
    [False, False, False]
    """

    def __init__(self, known: Mapping[Writer, Newest]) -> None:
        self._known = known
        self._seen: dict[tuple[str, int, int], Numbers] = {
            (query, task, newest.batch): newest.numbers for (query, task), newest in known.items()
        }

    def new(
        self, queries: npt.NDArray[np.object_], batches: Numbers, tasks: Numbers, numbers: Numbers
    ) -> npt.NDArray[np.bool_]:
        """Return which records of a chunk are new. The loop is over writers and their batches, not over records."""
        is_new = np.zeros(len(numbers), np.bool_)
        if not len(numbers):
            return is_new
        names, codes = np.unique(queries.astype(str), return_inverse=True)
        order = np.lexsort((numbers, tasks, batches, codes))
        head = np.column_stack([codes[order], tasks[order], batches[order]])
        starts = np.flatnonzero(np.r_[True, np.any(head[1:] != head[:-1], axis=1)])
        for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
            rows = order[start:end]
            query, task, batch = str(names[codes[rows[0]]]), int(tasks[rows[0]]), int(batches[rows[0]])
            newest = self._known.get((query, task))
            if newest is not None and batch < newest.batch:
                continue
            seen = self._seen.get((query, task, batch), np.empty(0, np.int64))
            came, first = np.unique(numbers[rows], return_index=True)
            fresh = ~np.isin(came, seen, assume_unique=True)
            is_new[rows[first[fresh]]] = True
            self._seen[query, task, batch] = np.union1d(seen, came)
        return is_new

    def newest(self) -> dict[Writer, Newest]:
        """Return what must be remembered after the reader's batch."""
        newest: dict[Writer, Newest] = {}
        for (query, task, batch), numbers in self._seen.items():
            before = newest.get((query, task))
            if before is None or before.batch < batch:
                newest[query, task] = Newest(batch, numbers)
        return newest


def pack(newest: Mapping[Writer, Newest]) -> bytes:
    """Return the remembered batches as bytes; the same content gives the same bytes."""
    rows = [
        {"query": query, "task": task, "batch": one.batch, "numbers": one.numbers}
        for (query, task), one in sorted(newest.items())
    ]
    return bytes(pa.RecordBatch.from_pylist(rows, schema=_SAVED).serialize().to_pybytes())


def unpack(content: bytes) -> dict[Writer, Newest]:
    """Read the bytes that `pack` returned."""
    try:
        rows = pa.ipc.read_record_batch(pa.py_buffer(content), _SAVED)
        rows.validate(full=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError(f"the state of a Kafka reader is damaged; restore its checkpoint ({error})") from error
    lists = rows.column("numbers")
    keys = zip(rows.column("query").to_pylist(), rows.column("task").to_pylist(), strict=True)
    batches = rows.column("batch").to_pylist()
    return {key: Newest(batches[at], lists[at].values.to_numpy()) for at, key in enumerate(keys)}
