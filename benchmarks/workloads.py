"""The generated streams that the join benchmarks share, and what their join must give.

Each side is a directory of Parquet files, one file a micro-batch. Event time rises by one second
every `RATE` rows on both sides, so file b of the left and file b of the right cover the same time:

    left/   00000 | 00001 | 00002 | ...      modification times rise by 1 s a file, which is the
    right/  00000 | 00001 | 00002 | ...      order in which Spark's file source reads them

Times are whole milliseconds (ten rows a millisecond): Flink's event time knows nothing finer, and
all engines must be able to give the same result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

RATE = 10_000
"""Rows of event time a second, per side."""

EPOCH_US = 1_700_000_000_000_000
ARROW_ROW_BYTES = 24
"""k, ts and v are 8 bytes each and never null."""

P = 1_000_003
"""Modulus of the checksum: prime, and small enough that no sum of 10^12 rows overflows."""


@dataclass(frozen=True)
class Workload:
    """One shape of input: how it is cut into batches, and the bar that the speed-up must reach."""

    name: str
    within_s: int
    keys: int
    rows: int
    """Rows a batch, per side."""
    warm: int
    measured: int
    bar: float
    aim: float
    catch_up: int = 0
    """Batches of `catch_up_rows` a side that come first and fill the window."""
    catch_up_rows: int = 0
    lateness_s: int = 10
    disorder_s: float = 0.0
    """A row is up to this much older than its place in the file says; below `lateness_s`."""
    seed: int = 1
    partitions: int = 2
    hot: tuple[float, float] = (0.0, 0.0)
    """The share of the left and of the right rows that have one and the same key."""
    subject: str = "braided"
    """The engine whose speed-up is measured."""
    how: str = "inner"
    """The kind of the join; with "left", `braided_inner` is a rival by the inner one."""
    rivals: tuple[tuple[str, float], ...] = ()
    """Further engines of ours to compare with, each with its bar."""

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that take part by default."""
        ours = (self.subject, *(name for name, _ in self.rivals))
        if self.subject == "files_direct":
            return (*ours, "native_files_hdfs", "native_files_rocksdb_v4")
        return (
            *ours,
            *(() if self.bar == 0 else ("native_hdfs", "native_rocksdb_v4")),
            *(() if self.rivals else ("passthrough",)),
        )

    def batch_rows(self) -> list[int]:
        """Rows per side of every batch, in order."""
        return [self.catch_up_rows] * self.catch_up + [self.rows] * (self.warm + self.measured)

    def quick(self) -> Workload:
        """A like shape, seconds long, in which rows still expire: for trying, not for measuring."""
        shrink = 10 if self.catch_up else 1
        return replace(
            self,
            within_s=self.within_s // shrink,
            keys=self.keys // shrink,
            rows=min(self.rows, 40_000),
            warm=3,
            measured=4,
            catch_up=min(self.catch_up, 3),
        )


WORKLOADS = {
    w.name: w
    for w in (
        # The JVM goes on warming up for millions of rows: 8 x 500,000, 40 x 100,000.
        Workload("w10_500k", 10, 100_000, 250_000, warm=8, measured=16, bar=3.0, aim=5.0),
        Workload("w10_100k", 10, 100_000, 50_000, warm=40, measured=30, bar=1.5, aim=3.0),
        # +-100 s with ten times the keys: 2 matches a left row, as in the others, and 2.2 million
        # rows of state. Twelve large batches fill the window; then 115 small ones replace all they
        # left, so that what is measured is a state made of a hundred small batches.
        Workload(
            "w100b_20k", 100, 1_000_000, 10_000, warm=115, measured=30, bar=2.0, aim=2.0,
            catch_up=12, catch_up_rows=100_000,
        ),
        # One key is half of the left and a hundredth of the right stream: nearly all results are its own. The
        # first warm batches are those in which the routing adapts.
        Workload(
            "skew", 2, 100_000, 100_000, warm=7, measured=8, bar=3.0, aim=3.0, partitions=8, hot=(0.5, 0.01),
            lateness_s=1, subject="braided_adaptive", rivals=(("braided_hash", 1.3),),
        ),
        # What watching and steering costs where there is nothing to steer.
        Workload(
            "uniform8", 10, 100_000, 100_000, warm=12, measured=16, bar=0.0, aim=0.0, partitions=8,
            subject="braided_adaptive", rivals=(("braided_hash", 0.95),),
        ),
        # Parquet to Parquet. One result a row; 20 results a row; small batches, with state as large as the first's.
        Workload(
            "files_500k", 10, 100_000, 250_000, warm=8, measured=12, bar=10.0, aim=10.0,
            subject="files_direct", rivals=(("files_spark", 2.0),),
        ),
        Workload(
            "files_20x", 10, 5_000, 100_000, warm=6, measured=10, bar=4.0, aim=4.0,
            subject="files_direct", rivals=(("files_spark", 4.0),),
        ),
        Workload(
            "files_1k", 10, 100_000, 500, warm=40, measured=40, bar=1.5, aim=1.5,
            subject="files_direct", rivals=(("files_spark", 1.0),),
        ),
    )
}  # fmt: skip


def generate(workload: Workload, root: Path) -> None:
    """Write `root/left` and `root/right`; the same workload gives the same bytes every time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, side in enumerate(("left", "right")):
        (root / side).mkdir(parents=True)
        for b, columns in enumerate(_columns(workload, number)):
            k, t, v = columns
            table = pa.table({"k": k, "ts": pa.array(t, pa.timestamp("us", tz="UTC")), "v": v})
            assert table.nbytes == ARROW_ROW_BYTES * table.num_rows
            path = root / side / f"{b:05d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + b,) * 2)


def _columns(workload: Workload, number: int) -> Iterator[tuple]:
    import numpy as np

    rng = np.random.default_rng([workload.seed, number])
    start = 0
    for rows in workload.batch_rows():
        t = (np.arange(start, start + rows) * 1_000) // RATE
        if workload.disorder_s:
            t = t - rng.integers(0, int(workload.disorder_s * 1_000), rows)
        start += rows
        k = rng.integers(0, workload.keys, rows)
        if workload.hot[number]:
            k[rng.random(rows) < workload.hot[number]] = 7
        # v < 2^31: the checksum multiplies two of them.
        yield k, t * 1_000 + EPOCH_US, rng.integers(0, 1 << 31, rows)


def checksum(lv: str, rv: str, rest: str, *, modulo: str = "({}) % {}") -> str:
    """SQL for one result row's part of the checksum, from SQL for its values and `rest` of its columns.

    It depends on which left row met which right row (the product), and a sum of it on no order.
    Plain arithmetic rather than a hash function: Spark, Flink and DuckDB agree on it.
    """
    return f"{modulo.format(f'{lv} * {rv}', P)} + {modulo.format(rest, P)}"


def written_result(files: list[str]) -> dict[str, int]:
    """Count and checksum of results in Parquet files."""
    import duckdb

    part = checksum("v", "v_right", "k * 31 + epoch_us(ts) * 7 + epoch_us(ts_right) * 13")
    with duckdb.connect() as db:
        [(count, total)] = db.execute(f"select count(*), sum({part}) from read_parquet(?)", [files]).fetchall()
    return {"count": count, "checksum": int(total or 0)}


def oracle(workload: Workload, root: Path) -> dict[str, int]:
    """Count and checksum of the join by DuckDB, and of the input for the pass-through."""
    import duckdb

    us = workload.within_s * 1_000_000
    part = checksum("l.v", "r.v", "l.k * 31 + epoch_us(l.ts) * 7 + epoch_us(r.ts) * 13")
    left, right = (f"'{root}/{side}/*.parquet'" for side in ("left", "right"))
    with duckdb.connect() as db:
        [(count, total)] = db.execute(f"""
            select count(*), sum({part}) from {left} l join {right} r
            on l.k = r.k and epoch_us(r.ts) - epoch_us(l.ts) between -{us} and {us}""").fetchall()
        [(passed, passed_total)] = db.execute(
            f"select count(*), sum(v) from (from {left} union all from {right})"
        ).fetchall()
    return {
        "count": count,
        "checksum": int(total or 0),
        "passed_count": passed,
        "passed_checksum": int(passed_total),
    }
