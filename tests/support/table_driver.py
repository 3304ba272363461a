"""A driver to be killed that writes batches into a table as Spark does: its plan, its files, the table's commit, its own.

    python table_driver.py ROOT TABLE OPTIONS BATCHES [MOMENT BATCH]

With a moment (`files`, `table` or `done`) it ends at once when that is done for the batch. Without Spark it starts in a
second, so that a test kills it often; `crash_query.py` is the same with Spark.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from braided.storage.tables import Layout, open_sink
from braided.storage.writing import batch_folder

ROWS = 50
QUERY = "0b6d2a5e-query"
SCHEMA = pa.schema([("k", pa.int64()), ("part", pa.string())])


def main(root: Path, table: str, options: str, batches: int, moment: str = "", last: int = -1) -> None:
    """Do the batches that are not done yet."""

    def reached(what: str, batch: int) -> None:
        print(f"{what} {batch}", flush=True)
        if (what, batch) == (moment, last):
            os.kill(os.getpid(), signal.SIGKILL)

    sink = open_sink(table, json.loads(options))
    target = sink.prepare(SCHEMA, Layout(("part",)))
    for batch in range(batches):
        if (root / f"commit-{batch}").exists():
            continue
        (root / f"plan-{batch}").write_text(f"rows from {batch * ROWS}")
        writers = [target.writer(batch_folder(batch), task, SCHEMA) for task in range(2)]
        for task, writer in enumerate(writers):
            writer.write(rows(batch).slice(task * ROWS // 2, ROWS // 2))
        files = [file for writer in writers for file in writer.close()]
        reached("files", batch)
        sink.commit(QUERY, batch, (root / f"plan-{batch}").read_text(), files)
        reached("table", batch)
        (root / f"commit-{batch}").touch()
        reached("done", batch)
    print("finished", flush=True)


def rows(batch: int) -> pa.RecordBatch:
    """Return the rows of a batch, the same in every run."""
    numbers = np.arange(batch * ROWS, (batch + 1) * ROWS)
    return pa.record_batch([numbers, pa.array(["a", "b"]).take(pa.array(numbers % 2))], schema=SCHEMA)


if __name__ == "__main__":
    given = [*sys.argv[1:], "", "-1"][:6]
    main(Path(given[0]), given[1], given[2], int(given[3]), given[4], int(given[5]))
