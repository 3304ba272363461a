"""Topics: how long rows take through a chain of two joins, and what a year of small batches costs a late reader.

    python benchmarks/topics.py                 both
    python benchmarks/topics.py chain late --quick

`chain`: files of three streams land every second; a join writes pairs to a topic, a second query joins those with the
third stream. Rows carry the moment they landed; a result's delay is the moment of its manifest less the latest moment
of its rows, beside the mean time of a batch of either query.

`late`: the same rows as a year of hourly batches, compacted meanwhile as `write_files(compact=True)` does, as the same
batches left alone, and as ten large ones. A new reader takes all that is there. One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from engines import SAME_FOR_ALL

import braided
from braided.storage.topic import create_topic
from braided.storage.writing import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

STREAMS = ("calls", "alerts", "cells")
DDL = "k long, ts timestamp, landed long"
UTC = pa.timestamp("us", "UTC")
EPOCH_US = 1_700_000_000_000_000
COMPACTED_EVERY = 100
"""Batches, as in `write_files(compact=True)`."""


def main() -> int:
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="braided-topics-"))
    spark = _session(root)
    parts: dict[str, Callable[[SparkSession, Path, bool], dict[str, Any]]] = {"chain": _chain, "late": _late}
    try:
        found = {part: parts[part](spark, root, options.quick) for part in options.parts}
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps({"benchmark": "topics", "quick": options.quick, **found}))
    return 0 if all(part["equal"] for part in found.values()) else 1


def _session(root: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = SAME_FOR_ALL | braided.SPARK_CONF | {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(root)}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


# --- A chain --------------------------------------------------------------------------------------------------------


def _chain(spark: SparkSession, root: Path, quick: bool) -> dict[str, Any]:
    seconds, rows = (15, 1_000) if quick else (60, 5_000)
    for stream in STREAMS:
        (root / stream).mkdir()
    calls, alerts, cells = (braided.files(spark, str(root / stream), schema=DDL) for stream in STREAMS)
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "5 seconds", "lateness": "5 seconds"}
    pairs = braided.join(calls, alerts, **options).select("k", "ts", "landed", "landed_right")
    first = braided.write_files(pairs, str(root / "pairs"), checkpoint=str(root / "first"), trigger="0 seconds")
    between = braided.files(spark, str(root / "pairs"))
    triples = braided.join(between, cells, **options, suffixes=("", "_cell"))
    second = braided.write_files(triples, str(root / "triples"), checkpoint=str(root / "second"), trigger="0 seconds")
    landing = threading.Thread(target=_land, args=(root, seconds, rows))
    landing.start()
    landing.join()
    for query in (first, second, first, second):
        query.processAllAvailable()
    for query in (first, second):
        query.stop()
    delays, found = _delays(root, skip=seconds // 3)
    expected = _triples(root)
    batch_s = {"first": _mean_batch(first), "second": _mean_batch(second)}
    return {
        "rows_a_second": 3 * rows,
        "batch_s": batch_s,
        "delay_p50_s": round(float(np.quantile(delays, 0.5)), 2),
        "delay_p99_s": round(float(np.quantile(delays, 0.99)), 2),
        "results": found,
        "equal": found == expected,
    }


def _land(root: Path, seconds: int, rows: int) -> None:
    """Put a file into each stream every second; event time goes with the clock."""
    random = np.random.default_rng(1)
    began = time.time()
    for second in range(seconds):
        time.sleep(max(0.0, began + second - time.time()))
        for stream in STREAMS:
            at = EPOCH_US + second * 1_000_000 + np.arange(rows) * (1_000_000 // rows)
            keys, landed = random.integers(0, 10 * rows, rows), np.full(rows, int(time.time() * 1e6))
            table = pa.table({"k": keys, "ts": pa.array(at, UTC), "landed": landed})
            pq.write_table(table, root / stream / f".{second:05}")
            (root / stream / f".{second:05}").rename(root / stream / f"{second:05}.parquet")


def _delays(root: Path, skip: int) -> tuple[np.ndarray, int]:
    """Return each result's delay in seconds, without those of the first batches; and the number of all results."""
    topic, delays, count = braided.topic(str(root / "triples")), [], 0
    settled = EPOCH_US + skip * 1_000_000
    for manifest in topic.manifests():
        count += manifest.rows
        if manifest.kind != "batch":
            continue
        done_us = (root / "triples" / "_manifests" / f"{manifest.slot:012}.json").stat().st_mtime * 1e6
        for file in manifest.files:
            table = pq.read_table(Path(topic.data) / file.name)
            landed = np.max([table[name].to_numpy() for name in ("landed", "landed_right", "landed_cell")], axis=0)
            late = table["ts"].cast(pa.int64()).to_numpy() >= settled
            delays.append((done_us - landed[late]) / 1e6)
    return np.concatenate(delays), count


def _triples(root: Path) -> int:
    with duckdb.connect() as db:
        [(count,)] = db.execute(f"""
            select count(*) from '{root}/calls/*.parquet' a join '{root}/alerts/*.parquet' b on a.k = b.k
            and abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 5000000 join '{root}/cells/*.parquet' c on a.k = c.k
            and abs(epoch_us(a.ts) - epoch_us(c.ts)) <= 5000000""").fetchall()
    return int(count)


def _mean_batch(query: StreamingQuery) -> float:
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    return round(statistics.mean(seconds[len(seconds) // 3 :]), 2)


# --- A late reader --------------------------------------------------------------------------------------------------


def _late(spark: SparkSession, root: Path, quick: bool) -> dict[str, Any]:
    batches, rows = (500, 100) if quick else (365 * 24, 100)
    shapes = {"compacted": (batches, True), "small": (batches, False), "large": (10, False)}
    found: dict[str, Any] = {"batches": batches, "rows": batches * rows}
    equal = True
    _read(spark, _year(root / "warm", 10, 100, compact=False), root / "warming")
    for shape, (cuts, compact) in shapes.items():
        path = _year(root / shape, cuts, batches * rows // cuts, compact=compact)
        seconds, count = _read(spark, path, root / f"{shape}_checkpoint")
        found[shape] = {"seconds": round(seconds, 2), "files": len(braided.topic(str(path)).files())}
        equal &= count == batches * rows
    return {**found, "equal": equal}


def _year(path: Path, batches: int, rows: int, *, compact: bool) -> Path:
    """Write a topic of so many batches of so many rows."""
    topic = create_topic(str(path), json.dumps(_schema()))
    writer = topic.claim("benchmark")
    for batch in range(batches):
        at = EPOCH_US + (batch * rows + np.arange(rows)) * 1_000_000
        table = pa.table({"k": np.arange(rows), "ts": pa.array(at, UTC), "landed": np.full(rows, batch)})
        name = f"{batch:012}/0.parquet"
        (Path(topic.data) / name).parent.mkdir(parents=True)
        pq.write_table(table, Path(topic.data) / name)
        writer.commit(batch, str(batch), [DataFile(name, rows, (Path(topic.data) / name).stat().st_size)])
        if compact and batch % COMPACTED_EVERY == COMPACTED_EVERY - 1:
            topic.compact()
    return path


def _schema() -> dict[str, Any]:
    from pyspark.sql.types import LongType, StructType, TimestampType

    schema: dict[str, Any] = (
        StructType().add("k", LongType()).add("ts", TimestampType()).add("landed", LongType()).jsonValue()
    )
    return schema


def _read(spark: SparkSession, path: Path, checkpoint: Path) -> tuple[float, int]:
    """Return how long a new query takes to copy the topic, and how many rows it wrote."""
    rows = braided.files(spark, str(path))
    began = time.perf_counter()
    out = f"{checkpoint}_out"
    query = braided.write_files(rows, out, checkpoint=str(checkpoint), trigger="available now")
    query.awaitTermination()
    return time.perf_counter() - began, sum(manifest.rows for manifest in braided.topic(out).manifests())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["chain", "late"], help="chain, late; default: both")
    parser.add_argument("--quick", action="store_true", help="small and short; the times mean nothing")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
