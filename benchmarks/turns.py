"""Queries that take turns, batch by batch, in one JVM: for ratios too near to 1 for runs one after the other.

What the machine does meanwhile, and how far the JVM has compiled, is the same for all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDES = ("left", "right")
Build = Callable[["DataFrame", "DataFrame", Path], "DataFrame"]


def take_turns(
    spark: SparkSession, schema: str, data: Path, root: Path, builds: Mapping[str, Build], rows: int
) -> dict[str, tuple[list[int | None], Any]]:
    """Run every query over the same files, one a side and batch, and return its batch times and its last progress.

    `rows` are those of a file. The time of a batch that saw one of its two new files alone is None.
    """
    queries = {}
    for name, build in builds.items():
        home = root / name
        for side in SIDES:
            (home / side).mkdir(parents=True)
        left, right = (spark.readStream.schema(schema).parquet(str(home / side)) for side in SIDES)
        writer = build(left, right, home).writeStream.format("noop")
        queries[name] = writer.option("checkpointLocation", str(home / "checkpoint")).start()
    files = sorted(path.name for path in (data / "left").glob("*.parquet"))
    for turn, file in enumerate(files):
        for name in queries if turn % 2 else reversed(queries):
            for side in SIDES:
                os.link(data / side / file, root / name / side / file)
            queries[name].processAllAvailable()
        print(f"batch {turn + 1} of {len(files)}", file=sys.stderr)
    results = {}
    for name, query in queries.items():
        results[name] = (_batch_times(query.recentProgress, 2 * rows), query)
        query.stop()
    return results


def _batch_times(progress: list[Any], rows: int) -> list[int | None]:
    """Return the time of each turn in milliseconds; several batches of one turn count as None."""
    times: list[int | None] = []
    seen = 0
    for batch in progress:
        seen += batch.numInputRows
        if batch.numInputRows and seen % rows == 0:
            times.append(batch.durationMs["triggerExecution"] if batch.numInputRows == rows else None)
    return times


def ratios(of: list[int | None], over: list[int | None], measured: int) -> list[float]:
    """Return the pairwise ratios of the last batches, where both have a time."""
    pairs = list(zip(of, over, strict=True))[-measured:]
    return [a / b for a, b in pairs if a is not None and b is not None]
