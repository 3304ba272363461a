"""A long run: does memory stay flat under a steady load, and does a join recover from more than it can take?

    python benchmarks/soak.py                       30 minutes at a steady rate
    python benchmarks/soak.py --ramp                the rate doubles until it is too much, and falls again
    python benchmarks/soak.py --minutes 2           for trying

NEXMark's bids meet their auctions within 10 seconds in a `braided.join` with routing that adapts. Files of one second
of events are made before, and linked into the directories that the query reads when their time has come:

    steady   1 1 1 1 1 1 1 1 ...           files a second
    --ramp   1 2 4 8 16 8 4 2 1            a ninth of the time each

Memory is that of the driver's Python process, the JVM and all Python workers (/proc, shared pages once). How far behind
the query is, is the time since the oldest file that no batch has read was due. All results are compared with DuckDB's
over the same files. One JSON line goes to stdout, `--plots` gets a picture.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow.parquet as pq
from engines import SAME_FOR_ALL
from flink import say
from nexmark_data import truth_of
from soak_watch import KINDS, Watch, growth, thinned
from support.generators.nexmark import nexmark_events
from workloads import checksum

import braided
from braided.sim.figure import Figure, Panel, draw
from braided.spark.conf import SPARK_CONF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

RAMP = (1, 2, 4, 8, 16, 8, 4, 2, 1)
COLUMNS = {"auction": ["id", "dateTime", "seller", "reserve"], "bid": ["auction", "bidder", "price", "dateTime"]}
FLAT = 0.1
"""A series that grows by less than this share of its mean is flat."""


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="braided-soak-", dir=options.data))
    try:
        due = _due(options.minutes * 60, options.ramp)
        say(f"making {len(due):,} files of {options.rate:,} events")
        _make(root, len(due), options.rate)
        found, watch = _run(root, due, options)
        found["equal"] = _oracle(root) == [found.pop("count"), found.pop("checksum")]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    name = "ramp" if options.ramp else "steady"
    if options.plots:
        options.plots.mkdir(parents=True, exist_ok=True)
        (options.plots / f"soak_{name}.svg").write_text(draw(_picture(name, watch)))
    summary = {
        "benchmark": "soak", "kind": name, "date": datetime.date.today().isoformat(), "cpus": os.cpu_count(),
        "minutes": options.minutes, "rate": options.rate, **found,
    }  # fmt: skip
    print(json.dumps(summary))
    return 0 if summary["equal"] and summary["verdict"] in ("flat", "recovers") else 1


def _due(seconds: float, ramp: bool) -> list[float]:
    """Return when each file comes, in seconds from the start."""
    steps = RAMP if ramp else (1,)
    length = seconds / len(steps)
    due: list[float] = []
    for number, rate in enumerate(steps):
        due += [number * length + at / rate for at in range(int(length * rate))]
    return due


def _make(root: Path, files: int, rate: int) -> None:
    for stream in COLUMNS:
        (root / "made" / stream).mkdir(parents=True)
        (root / "in" / stream).mkdir(parents=True)
    for number, events in enumerate(nexmark_events(events=files * rate, rate=rate, batch=rate)):
        for stream, table in (("auction", events.auctions), ("bid", events.bids)):
            pq.write_table(table.select(COLUMNS[stream]), root / "made" / stream / f"{number:06}.parquet")


def _run(root: Path, due: list[float], options: argparse.Namespace) -> tuple[dict[str, Any], Watch]:
    spark = _session(root, options)
    watch = Watch(max(0.5, options.minutes * 60 / 400), lambda: _behind(watch, due))
    spark.streams.addListener(watch)
    _link(root, 0)  # so that there is a schema
    query = _start(spark, root)
    query.processAllAvailable()  # Python processes start and load, the JVM compiles
    watch.began = time.monotonic()
    watch.start()
    feeder = threading.Thread(target=_feed, args=(root, due, watch), daemon=True)
    feeder.start()
    while feeder.is_alive() and query.isActive:
        feeder.join(1)
    fed = time.monotonic()
    query.processAllAvailable()
    drained = time.monotonic() - fed
    watch.stop()
    if query.exception() is not None:
        raise RuntimeError(f"the query failed: {query.exception()}")
    query.stop()
    _settled(watch, 2 * len(due))
    found = _verdict(watch, options.ramp)
    found |= {"drained_s": round(drained, 2), "batches": len(watch.batches)}
    found |= {what: sum(batch[what] for batch in watch.batches) for what in ("count", "checksum")}
    found["decisions"] = len(braided.report(query).to_dict()["routing"].get("decisions", []))
    spark.stop()
    return found, watch


def _session(root: Path, options: argparse.Namespace) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = SAME_FOR_ALL | SPARK_CONF | {
        "spark.driver.memory": options.heap, "spark.local.dir": str(root / "local"),
        "spark.sql.shuffle.partitions": "4", "spark.sql.streaming.numRecentProgressUpdates": "20",
    }  # fmt: skip
    spark = SparkSession.builder.master("local[2]").appName("soak").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _start(spark: SparkSession, root: Path) -> StreamingQuery:
    from pyspark.sql import functions as F

    bids, auctions = (braided.files(spark, str(root / "in" / stream)) for stream in ("bid", "auction"))
    joined = braided.join(
        bids, auctions, on=[("auction", "id")], time="dateTime", within="10 seconds", lateness="4 seconds",
        control=str(root / "control"), name="soak",
    )  # fmt: skip
    part = checksum("price", "seller", "bidder * 31 + unix_millis(dateTime) * 7 + unix_millis(dateTime_right) * 13")
    counted = F.count(F.lit(1)).alias("count"), F.sum(F.expr(part)).alias("checksum")
    sink = joined.observe("soak", *counted).writeStream.format("noop")
    return sink.option("checkpointLocation", str(root / "checkpoint")).start()


def _feed(root: Path, due: list[float], watch: Watch) -> None:
    for number in range(1, len(due)):
        time.sleep(max(0.0, watch.began + due[number] - time.monotonic()))
        _link(root, number)


def _link(root: Path, number: int) -> None:
    for stream in ("auction", "bid"):
        name = f"{number:06}.parquet"
        os.link(root / "made" / stream / name, root / "in" / stream / name)


def _behind(watch: Watch, due: list[float]) -> float:
    """Return the seconds since the oldest file that no batch has read was due."""
    oldest = watch.files_done // 2
    return max(0.0, time.monotonic() - watch.began - due[oldest]) if oldest < len(due) else 0.0


def _settled(watch: Watch, files: int) -> None:
    """Wait for the listener, which is told after a batch."""
    deadline = time.monotonic() + 30
    while watch.files_done < files and time.monotonic() < deadline:
        time.sleep(0.1)


def _verdict(watch: Watch, ramp: bool) -> dict[str, Any]:
    minutes = [sample["minute"] for sample in watch.samples]
    behind = [sample["behind"] for sample in watch.samples]
    found: dict[str, Any] = {
        "memory_mb": {kind: round(watch.samples[-1][kind]) for kind in KINDS},
        "batch_s": round(statistics.median(batch["seconds"] for batch in watch.batches), 3),
        "most_behind_s": round(max(behind), 2),
    }
    if ramp:
        step = len(behind) // len(RAMP)
        before, after = statistics.median(behind[step // 2 : step]), statistics.median(behind[-step // 2 :])
        found |= {"behind_before_s": round(before, 2), "behind_after_s": round(after, 2)}
        return found | {"verdict": "recovers" if after < 2 * before + 1 else "does not recover"}
    grows = {kind: growth(minutes, [sample[kind] for sample in watch.samples]) for kind in KINDS}
    later = [batch["minute"] for batch in watch.batches]
    grows["batches"] = growth(later, [batch["seconds"] for batch in watch.batches])
    found["growth"] = {name: round(share, 3) for name, share in grows.items()}
    return found | {"verdict": "flat" if all(share < FLAT for share in grows.values()) else "not flat"}


def _oracle(root: Path) -> list[int]:
    part = checksum("B.price", "A.seller", "B.bidder * 31 + epoch_ms(B.dateTime) * 7 + epoch_ms(A.dateTime) * 13")
    text = f"""SELECT count(*), sum({part}) FROM bid B JOIN auction A ON B.auction = A.id
        AND B.dateTime BETWEEN A.dateTime - INTERVAL '10' SECOND AND A.dateTime + INTERVAL '10' SECOND"""
    return truth_of(text, {stream: root / "in" / stream for stream in COLUMNS})


def _picture(name: str, watch: Watch) -> Figure:
    minutes = thinned([sample["minute"] for sample in watch.samples])
    later = thinned([batch["minute"] for batch in watch.batches])
    panels = [
        Panel("Memory", "minutes", "MB", minutes, {k: thinned([s[k] for s in watch.samples]) for k in KINDS}),
        Panel("Batches", "minutes", "seconds", later, {"batch": thinned([b["seconds"] for b in watch.batches])}),
        Panel("Behind", "minutes", "seconds", minutes, {"behind": thinned([s["behind"] for s in watch.samples])}),
    ]
    title = {"steady": "A steady load", "ramp": "A load that rises above what can be taken, and falls"}[name]
    return Figure(name, f"soak_{name}", title, panels)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="default: 30, with --ramp 3")
    parser.add_argument("--rate", type=int, help="events in a file; default: 10,000, with --ramp 25,000")
    parser.add_argument("--ramp", action="store_true")
    parser.add_argument("--heap", default="2g", help="the most that the JVM may take for objects")
    parser.add_argument("--plots", type=Path, help="folder for the picture")
    parser.add_argument("--data", type=Path, help="folder for the files (removed at the end); default: temporary")
    options = parser.parse_args()
    options.minutes = options.minutes or (3 if options.ramp else 30)
    options.rate = options.rate or (25_000 if options.ramp else 10_000)
    return options


if __name__ == "__main__":
    sys.exit(main())
