"""State of several times a memory limit: a join whose left rows stay in files while its process keeps within the limit.

One worker stores wide left rows that never expire; narrow right rows look up keys of all ages, and each finds one left
row. What counts as memory is what the process cannot give back without writing: `Anonymous` in /proc/self/smaps_rollup.
Mapped files are the system's to drop. Prints one line of JSON, and exits with 1 if the limit or a result is missed.

    python benchmarks/state_beyond_memory.py --limit-mb 448 --times 4
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from braided.local.runtime import LocalRuntime
from braided.operators.join.spec import JoinSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.runtime.file_blocks import FileBlocks, StateFolder
from braided.runtime.store import BlockStore, MemoryStore
from braided.typing import Json

TIME = pa.timestamp("us", tz="UTC")
LEFT = pa.schema([("k", pa.int64()), ("t", TIME), ("payload", pa.binary())])
RIGHT = pa.schema([("k", pa.int64()), ("t", TIME)])
PAYLOAD = 1000
MB = 1 << 20


class InFolder(MemoryStore):
    """The bookkeeping in memory, as Spark's state store has it, and blocks in files."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def open(self, bookkeeping: Json) -> BlockStore:
        """See `Store`."""
        return FileBlocks(StateFolder(self._root, "join-1", 0, bookkeeping["batches"], 2), bookkeeping)


def memory() -> dict[str, int]:
    """Return how many bytes of this process are resident, and how many of them are anonymous."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return {
        name: int(re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)[1]) << 10  # type: ignore[index]
        for name, field in (("resident", "Rss"), ("anonymous", "Anonymous"))
    }


def run(limit: int, times: int, batch_rows: int) -> Json:
    """Join until the state is `times` as large as `limit`; return what was seen."""
    spec = JoinSpec(on="k", time="t", within="1000 hours", lateness="0 seconds")
    operator = build(spec, [Stream("left", LEFT), Stream("right", RIGHT)]).operator
    root = Path(tempfile.mkdtemp(prefix="braided-beyond-", dir="."))
    rng = np.random.default_rng(7)
    results = looked_up = batch = stored = 0
    most = {"resident": 0, "anonymous": 0}
    started = time.perf_counter()
    try:
        runtime = LocalRuntime(operator, stores=[InFolder(root)])
        while stored < limit * times:
            keys = np.arange(batch * batch_rows, (batch + 1) * batch_rows)
            payload = rng.bytes(batch_rows * PAYLOAD)
            offsets = pa.py_buffer(np.arange(0, (batch_rows + 1) * PAYLOAD, PAYLOAD, dtype=np.int32))
            wide = pa.Array.from_buffers(pa.binary(), batch_rows, [None, offsets, pa.py_buffer(payload)])
            left = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys, TIME), wide], schema=LEFT)
            sought = rng.integers(0, (batch + 1) * batch_rows, batch_rows // 10)
            at = pa.array(np.full(len(sought), (batch + 1) * batch_rows), TIME)
            right = pa.RecordBatch.from_arrays([pa.array(sought), at], schema=RIGHT)
            results += sum(piece.num_rows for piece in runtime.run_batch([(0, [left]), (1, [right])]))
            looked_up += len(sought)
            stored = runtime.reports[0]["last"]["stored_bytes"]
            now = memory()
            most = {name: max(most[name], now[name]) for name in most}
            batch += 1
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {
        "benchmark": "state_beyond_memory",
        "limit_mb": limit // MB,
        "state_mb": stored // MB,
        "batches": batch,
        "most_anonymous_mb": most["anonymous"] // MB,
        "most_resident_mb": most["resident"] // MB,
        "results": results,
        "wanted": looked_up,
        "seconds": round(time.perf_counter() - started, 1),
    }


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-mb", type=int, default=448)
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--batch-rows", type=int, default=16_000)
    arguments = parser.parse_args()
    seen = run(arguments.limit_mb * MB, arguments.times, arguments.batch_rows)
    print(json.dumps(seen))
    return int(seen["most_anonymous_mb"] >= seen["limit_mb"] or seen["results"] != seen["wanted"])


if __name__ == "__main__":
    sys.exit(main())
