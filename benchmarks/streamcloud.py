"""StreamCloud's queries (IV.B and IV.C): merged into the joins' workers, unmerged, and native.

    python benchmarks/streamcloud.py                    both queries, all engines
    python benchmarks/streamcloud.py calls --rows 200000
    python benchmarks/streamcloud.py calls --quick      tries everything in a few minutes; its times mean nothing

`calls`: call records joined with those of the same caller within a minute, with their distance in time and space; of
pairs that are far apart, the number and the mean duration by district over one minute that advances every ten seconds.
`chain`: three stateful operators over streams of integers, as the query of Figure 8 has: two joins with filters between
them, and a windowed count and sum. (Which operators Figure 8 chains is not in its text; these are ours.)

The same files for all, each engine in a JVM of its own, one file a stream a batch. `merged` is `braided.sql`; `direct`
the same over `braided.files`; `unmerged` the same over inputs with watermarks, for which the aggregate stays Spark's,
and so does the reading; `native` is `spark.sql`. Closed windows are compared with DuckDB's. One JSON line goes to
stdout.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from aggregates import SETTINGS, open_session, run_apart

EPOCH_US = 1_700_000_040_000_000  # the start of a window of a minute
LATENESS = "10 seconds"
BAR = 5.0
CALLS = """
    SELECT {window}, a.district AS g, count(*) AS n, avg(a.duration) AS m FROM calls a JOIN calls b
    ON a.caller = b.caller AND b.ts BETWEEN a.ts - INTERVAL 60 SECONDS AND a.ts + INTERVAL 60 SECONDS
      AND (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y) > 2500 GROUP BY {group}, a.district"""
CHAIN = """
    SELECT {window}, p.k AS g, count(*) AS n, avg(q.v) AS m FROM first a
    JOIN second p ON a.k = p.k AND a.v % 2 = 0 AND p.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 5 SECONDS
    JOIN third q ON p.k = q.k AND q.v < 900 AND q.ts BETWEEN p.ts - INTERVAL 5 SECONDS AND p.ts + INTERVAL 5 SECONDS
    GROUP BY {group}, p.k"""


@dataclass(frozen=True)
class Shape:
    """A query, its streams, and how many rows each has in a batch and in a second of event time."""

    text: str
    streams: tuple[str, ...]
    time: str
    rows: int
    rate: int
    keys: int
    batches: int = 16
    measured: int = 8
    size_s: int = 60
    slide_s: int = 10

    def table(self, stream: int, batch: int) -> pa.Table:
        """Return one batch of a stream; the same every time."""
        random = np.random.default_rng([stream, batch])
        at = EPOCH_US + (batch * self.rows + np.arange(self.rows)) * (1_000_000 // self.rate)
        columns = {"ts": pa.array(at, pa.timestamp("us", "UTC"))}
        if self.streams == ("calls",):
            columns |= {
                "caller": pa.array(random.integers(0, self.keys, self.rows)),
                "duration": pa.array(random.integers(1, 600, self.rows, dtype=np.int32)),
                "district": pa.array(random.integers(0, 50, self.rows, dtype=np.int32)),
                "x": pa.array(random.integers(0, 100, self.rows)),
                "y": pa.array(random.integers(0, 100, self.rows)),
            }
        else:
            columns |= {name: pa.array(random.integers(0, n, self.rows)) for name, n in (("k", self.keys), ("v", 1000))}
        return pa.table(columns)


SHAPES = {
    "calls": Shape(CALLS, ("calls",), "a.ts", rows=100_000, rate=10_000, keys=50_000),
    "chain": Shape(
        CHAIN, ("first", "second", "third"), "p.ts", rows=200_000, rate=10_000, keys=20_000, batches=12, measured=6,
        size_s=10,
    ),
}  # fmt: skip
QUICK = {"rows": 2_000, "rate": 200, "keys": 300, "batches": 12, "measured": 2}


def main() -> int:
    options = _options()
    if options.one:
        print(
            json.dumps(
                _run(options.one, shape_of(options.query, options.quick, options.rows), options.data, options.scratch)
            )
        )
        return 0
    summary: dict[str, Any] = {"benchmark": "streamcloud", "quick": options.quick}
    equal = True
    for query in [options.query] if options.query else SHAPES:
        root = Path(tempfile.mkdtemp(prefix="braided-streamcloud-"))
        try:
            shape = shape_of(query, options.quick, options.rows)
            generate(shape, root / "data")
            truth = oracle(shape, root / "data")
            found = {engine: _measure(engine, query, options, root, truth) for engine in options.engines}
        finally:
            shutil.rmtree(root, ignore_errors=True)
        summary[query] = found
        for ours, rival in itertools.product(("merged", "direct"), ("unmerged", "native")):
            if {ours, rival} <= set(options.engines):
                found[f"{ours}_over_{rival}"] = round(found[rival]["median_s"] / found[ours]["median_s"], 2)
        equal &= all(found[engine]["equal"] for engine in options.engines)
    summary["bar"] = {"over_native": BAR}
    print(json.dumps(summary))
    return 0 if equal else 1


def shape_of(query: str, quick: bool, rows: int | None = None) -> Shape:
    """Return a query with its streams, of so many rows a batch."""
    shape = SHAPES[query]
    return Shape(**{**vars(shape), **(QUICK if quick else {} if rows is None else {"rows": rows})})


def generate(shape: Shape, root: Path) -> None:
    """Write the files of all streams, a batch each."""
    for number, stream in enumerate(shape.streams):
        (root / stream).mkdir(parents=True)
        for batch in range(shape.batches):
            path = root / stream / f"{batch:05}.parquet"
            pq.write_table(shape.table(number, batch), path)
            os.utime(path, (1_700_000_000 + batch,) * 2)  # the order in which Spark reads them


def _measure(engine: str, query: str, options: argparse.Namespace, root: Path, truth: dict[Any, Any]) -> dict[str, Any]:
    scratch = Path(tempfile.mkdtemp(prefix=f"{engine}-", dir=root))
    words = [query, "--one", engine, "--data", str(root / "data"), "--scratch", str(scratch)]
    words += [] if options.rows is None else ["--rows", str(options.rows)]
    outcome = run_apart(__file__, words + ["--quick"] * options.quick)
    rows = outcome.pop("rows")
    outcome["closed"] = len(rows)
    wanted = [truth.get((start, group), (0, 0.0)) for start, group, _, _ in rows]
    outcome["equal"] = bool(rows) and all(
        count == n and abs(mean - m) < 1e-5 for (_, _, n, m), (count, mean) in zip(rows, wanted, strict=True)
    )
    print(f"{query}, {engine}: {outcome}", file=sys.stderr)
    return outcome


def _run(engine: str, shape: Shape, data: Path, scratch: Path) -> dict[str, Any]:
    import braided

    spark = open_session(engine, scratch)
    window = f"window({shape.time}, '{shape.size_s} seconds', '{shape.slide_s} seconds')"
    text = shape.text.format(window="window.start AS s", group=window)
    streams = {
        name: braided.files(spark, str(data / name), max_files=1)
        if engine == "direct"
        else spark.readStream.schema(spark.read.parquet(str(data / name)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(data / name))
        for name in shape.streams
    }
    if engine in ("merged", "direct"):
        result = braided.sql(spark, text, streams, lateness=LATENESS)
    else:
        streams = {name: frame.withWatermark("ts", LATENESS) for name, frame in streams.items()}
        for name, frame in streams.items():
            frame.createOrReplaceTempView(name)
        result = braided.sql(spark, text, streams) if engine == "unmerged" else spark.sql(text)
    query = (
        result.writeStream.format("parquet")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(scratch / "out"))
    )
    query.awaitTermination()
    seconds = [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress if p["numInputRows"]]
    rows = spark.read.parquet(str(scratch / "out")).selectExpr("unix_micros(s)", "g", "n", "m").collect()
    measured = seconds[-shape.measured :]
    spark.stop()
    return {"median_s": round(statistics.median(measured), 3), "rows": [list(row) for row in rows]}


def oracle(shape: Shape, data: Path) -> dict[Any, Any]:
    """Return the truth: count and mean by the start of a window and the group."""
    import duckdb

    size, slide = shape.size_s * 1_000_000, shape.slide_s * 1_000_000
    # A row is in every window that begins within the size before it.
    starts = f"unnest([(epoch_us({shape.time}) // {slide} - i) * {slide} for i in range({size // slide})]) AS s"
    inner = shape.text.format(window=starts, group="1").replace("GROUP BY 1", "GROUP BY s")
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name in shape.streams:
            database.execute(f"create view {name} as from '{data}/{name}/*.parquet'")
        rows = database.execute(inner).fetchall()
    return {(start, group): (n, mean) for start, group, n, mean in rows}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="?", choices=list(SHAPES))
    parser.add_argument("--engines", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--rows", type=int, help="of a stream in a batch")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
