"""`braided.match` by the length of its pattern, in one process, and beside Flink's MATCH_RECOGNIZE.

    python benchmarks/match.py                 speed in one process: patterns of one to eight symbols
    python benchmarks/match.py flink           the matches of seven patterns are Flink's; then speed over the same files
    python benchmarks/match.py speed           the speed alone
    python benchmarks/match.py --quick ...     small and short; the times mean nothing

Both find the matches of the patterns that both have: unique times, conditions that exclude each other, no greedy
quantifier at the end. For the speed, Flink (see flink.py) runs its job twice in one JVM, and so does Spark; the second
counts, with its start. Progress goes to stderr, one JSON line to stdout; the exit code is 1 when results differ.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink import add_options, environment, fetch_jars, in_flink, say, table_environment

if TYPE_CHECKING:
    import pyarrow as pa

KEYS = 100_000
ROWS = 6_000_000
FILES = 12
LATENESS = "10 seconds"


@dataclass(frozen=True)
class Pattern:
    """A pattern in words that both engines take."""

    pattern: str
    define: dict[str, str]
    measures: dict[str, str]
    after: str = "skip past last row"
    within: str = "10 minutes"


LOW, HIGH = "{0}.v < 50", "{0}.v >= 50"


def alternating(symbols: int) -> Pattern:
    """Return low and high values in turn."""
    names = "ABCDEFGH"[:symbols]
    define = {name: (LOW, HIGH)[at % 2].format(name) for at, name in enumerate(names)}
    return Pattern(" ".join(names), define, {"first_ms": "A.ms", "last_ms": f"{names[-1]}.ms"})


THREE = {"A": "A.v < 30", "B": "B.v >= 30 AND B.v < 70", "C": "C.v >= 70"}
PATTERNS = {
    "four in a row": alternating(4),
    "any number between": Pattern("A B* C", THREE, {"a": "A.ms", "n": "count(B.v)", "c": "C.ms"}),
    "one or more": Pattern(
        "A+ B", {"A": "A.v < 40", "B": "B.v >= 40"}, {"a": "first(A.ms)", "s": "sum(A.v)", "b": "B.ms"}
    ),
    "perhaps": Pattern("A B? C", THREE, {"a": "A.ms", "b": "last(B.ms)", "c": "C.ms"}),
    "three times, overlapping": Pattern(
        "A{3} B", {"A": "A.v < 50", "B": "B.v >= 50"}, {"a": "first(A.ms)", "b": "B.ms"}, "skip to next row"
    ),
    "as few as possible": Pattern("A B+? C", THREE, {"a": "A.ms", "low": "min(B.v)", "c": "C.ms"}),
    "above an earlier row": Pattern(
        "A B+ C",
        {"A": "A.v < 20", "B": "B.v > last(A.v) + 20 AND B.v < 90", "C": "C.v >= 90"},
        {"a": "A.ms", "high": "max(B.v)", "c": "C.ms"},
    ),
}
EARLIER = Pattern(
    "A B C D",
    {"A": "A.v < 50", "B": "B.v > A.v + 10", "C": "C.v > B.v - 30", "D": "D.v > A.v"},
    {"first_ms": "A.ms", "last_ms": "D.ms"},
)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _options()
    if options.one:
        print(json.dumps(_flink(options.one, options.data)))
        return 0
    summary = _by_length(options) if options.what == "local" else _against_flink(options)
    print(json.dumps({"benchmark": f"match {options.what}", "quick": options.quick, **summary}))
    return 0 if summary.get("equal", True) else 1


def events(rows: int, keys: int) -> pa.Table:
    """Return rows of random keys and values, a millisecond apart."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(7)
    ms = np.arange(rows, dtype=np.int64)
    return pa.table(
        {
            "k": random.integers(0, keys, rows),
            "ms": ms,
            "ts": pa.array(ms * 1_000, pa.timestamp("us")),
            "v": random.integers(0, 100, rows),
        }
    )


def _options_of(pattern: Pattern) -> dict[str, Any]:
    return {
        "key": "k",
        "time": "ts",
        "pattern": pattern.pattern,
        "define": pattern.define,
        "measures": pattern.measures,
        "within": pattern.within,
        "after": pattern.after,
        "lateness": LATENESS,
    }


def _by_length(options: argparse.Namespace) -> dict[str, Any]:
    """Patterns of one to eight symbols, and one whose conditions refer to earlier symbols, on one core."""
    import pyarrow as pa

    import braided

    pa.set_cpu_count(1)
    rows, keys = (ROWS // 60, KEYS // 60) if options.quick else (ROWS // 3, KEYS)
    table = events(rows, keys)
    found = {}
    for name, pattern in {
        **{f"{symbols} symbols": alternating(symbols) for symbols in range(1, 9)},
        "4 symbols, earlier ones in conditions": EARLIER,
    }.items():
        seconds = []
        for _ in range(1 + options.repeats):
            started = time.process_time()
            result = braided.local.match(table, batch_rows=500_000, **_options_of(pattern))
            seconds.append(time.process_time() - started)
        found[name] = {
            "rows_per_cpu_s": round(rows / statistics.median(seconds[1:])),
            "matches": result.table.num_rows,
        }
        say(f"{name}: {found[name]}")
    return {"rows": rows, "keys": keys, "patterns": found}


def _against_flink(options: argparse.Namespace) -> dict[str, Any]:
    import pyarrow.parquet as pq

    import braided

    jars, python = fetch_jars(options.jars), environment(options.venv)
    root = Path(tempfile.mkdtemp(prefix="braided-match-", dir=options.data))
    try:
        small = events(100_000, 1_000)
        _write_for_flink(small, root / "small")
        equal = {}
        for name, pattern in (PATTERNS if options.what == "flink" else {}).items():
            theirs = in_flink(__file__, ["--one", name, "--data", root / "small"], python, jars, root / "log")
            ours = braided.local.match(small, **_options_of(pattern)).table
            rows = sorted(tuple(row.values()) for row in ours.to_pylist())
            equal[name] = rows == sorted(map(tuple, theirs["rows"]))
            say(f"{name}: {len(rows):,} matches, Flink {len(theirs['rows']):,}, equal: {equal[name]}")
        rows, keys = (ROWS // 20, KEYS // 20) if options.quick else (ROWS, KEYS)
        table = events(rows, keys)
        _write_for_flink(table, root / "large")
        for number in range(FILES):
            part = table.slice(number * rows // FILES, rows // FILES)
            (root / "spark").mkdir(exist_ok=True)
            pq.write_table(part, root / "spark" / f"{number:05}.parquet")
        flink = in_flink(__file__, ["--one", "speed", "--data", root / "large"], python, jars, root / "log")
        spark = _spark(root, rows)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    speed = {
        "flink_s": flink["seconds"],
        "braided_s": spark["seconds"],
        "braided_batch_s": spark["batch_s"],
        "times": round(flink["seconds"] / spark["seconds"], 2),
    }
    say(f"{rows:,} rows: {speed}")
    return {"equal": all(equal.values()), "patterns": equal, "rows": rows, "keys": keys, "speed": speed}


def _write_for_flink(table: pa.Table, folder: Path) -> None:
    """Write a file for each of two readers, with every other row in order of time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for reader in range(2):
        every_other = pa.array(range(reader, table.num_rows, 2), pa.int64())
        pq.write_table(table.select(["k", "ms", "v"]).take(every_other), folder / f"{reader}.parquet")


def _flink(name: str, data: Path) -> dict[str, Any]:
    """Return the matches of a pattern, or how long the second of two runs took that only counted them."""
    pattern = PATTERNS["four in a row"] if name == "speed" else PATTERNS[name]
    env = table_environment({"state.backend.type": "hashmap"})
    env.execute_sql(f"""
        create table events (
            k bigint, ms bigint, v bigint,
            ts as to_timestamp_ltz(ms, 3), watermark for ts as ts - interval '10' second
        ) with ('connector' = 'filesystem', 'path' = '{data.as_uri()}', 'format' = 'parquet')""")
    measures = ", ".join(f"{text} as {column}" for column, text in pattern.measures.items())
    define = ", ".join(f"{symbol} as {text}" for symbol, text in pattern.define.items())
    amount, unit = pattern.within.split()
    matched = f"""
        select * from events match_recognize (
            partition by k order by ts measures {measures} one row per match after match {pattern.after}
            pattern ({pattern.pattern}) within interval '{amount}' {unit.removesuffix("s")}
            define {define})"""
    if name != "speed":
        with env.execute_sql(matched).collect() as rows:
            return {"rows": [list(row) for row in rows]}
    seconds = 0.0
    columns = ", ".join(f"{column} bigint" for column in ("k", *pattern.measures))
    env.execute_sql(f"create table nowhere ({columns}) with ('connector' = 'blackhole')")
    for _ in range(2):
        started = time.perf_counter()
        env.execute_sql(f"insert into nowhere {matched}").wait()
        seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 3)}


def _spark(root: Path, rows: int) -> dict[str, Any]:
    from engines import SAME_FOR_ALL
    from pyspark.sql import SparkSession

    import braided

    conf = {**SAME_FOR_ALL, **braided.SPARK_CONF, "spark.sql.shuffle.partitions": "2", "spark.local.dir": str(root)}
    spark = SparkSession.builder.master("local[2]").appName("benchmark-match").config(map=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    seconds, batches = 0.0, []
    for attempt in range(2):
        source = braided.files(spark, str(root / "spark"), max_files=1)
        started = time.perf_counter()
        matched = braided.match(source, **_options_of(PATTERNS["four in a row"]))
        sink = matched.writeStream.format("noop").option("checkpointLocation", str(root / f"checkpoint{attempt}"))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - started
        batches = [p["durationMs"]["triggerExecution"] / 1_000 for p in query.recentProgress if p["numInputRows"]]
    spark.stop()
    return {"seconds": round(seconds, 3), "batch_s": statistics.median(batches[2:]), "rows": rows}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("local", "flink", "speed"), default="local")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small and short; the times mean nothing")
    add_options(parser)
    parser.add_argument("--one", choices=[*PATTERNS, "speed"], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
