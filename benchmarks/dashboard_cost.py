"""What a dashboard costs a query: CPU seconds of its own threads over those of the whole query.

    python benchmarks/dashboard_cost.py                          the demo's join, one page open
    python benchmarks/dashboard_cost.py --rows 160000 --pages 4  small batches, four pages

The dashboard's part is measured by itself (CPU time of its callbacks and threads), since two runs of a query differ by
more than it costs. The whole is the CPU time of the driver, the JVM and all Python workers while the query runs. One
JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

import braided
from braided.cli.demo_parts import Skew
from braided.cli.demo_streams import WORKERS
from braided.cli.local_spark import local_session, quiet_output
from braided.spark.watching import Watch

CALLBACKS = ("started", "progressed", "ended", "_draw")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--seconds", type=int, default=64)
    parser.add_argument("--pages", type=int, default=1)
    parser.add_argument("--history", type=Path, help="a directory to keep the history in, for braided report")
    options = parser.parse_args()
    demo = Skew(rows=options.rows, seconds=options.seconds)
    with tempfile.TemporaryDirectory(prefix="braided-dashboard-") as name:
        folder = Path(name)
        (folder / "first").mkdir()
        demo.streams.write(folder / "first")
        with quiet_output(folder / "log"), local_session(folder, WORKERS) as spark:
            demo.start(spark, folder / "first").awaitTermination()  # starts processes, compiles
            time.sleep(2)  # its last batch is told of after it has ended
            (folder / "second").mkdir()
            for stream in ("calls", "numbers"):
                (folder / "second" / stream).symlink_to(folder / "first" / stream)
            found = measure(spark, demo, folder, options.pages, options.history or folder / "history")
    found |= {"rows": options.rows, "pages": options.pages, "date": str(datetime.date.today()), "cpus": os.cpu_count()}
    print(json.dumps(found))
    return 0


def measure(spark: Any, demo: Skew, folder: Path, pages: int, history: Path) -> dict[str, float]:
    """Run the query with a dashboard, and readers as browsers are."""
    callbacks = [0.0]
    for name in CALLBACKS:
        setattr(Watch, name, timed(getattr(Watch, name), callbacks))
    with braided.dashboard(spark, history=history) as page:
        readers = [threading.Thread(target=read, args=(page.url,), daemon=True) for _ in range(pages)]
        for reader in readers:
            reader.start()
        time.sleep(1)
        before, served = whole(), of_threads()
        query = demo.start(spark, folder / "second")
        query.awaitTermination()
        spent, served = whole() - before, of_threads() - served
        batches = len(query.recentProgress)
    own = callbacks[0] + served
    return {
        "batches": batches,
        "query_cpu_s": round(spent, 2),
        "callbacks_cpu_s": round(callbacks[0], 4),
        "server_cpu_s": round(served, 4),
        "share": round(own / spent, 5),
        "ms_a_batch": round(1000 * own / batches, 2),
    }


def timed(method: Any, spent: list[float]) -> Any:
    def call(*arguments: Any) -> Any:
        began = time.thread_time()
        try:
            return method(*arguments)
        finally:
            spent[0] += time.thread_time() - began

    return call


def read(url: str) -> None:
    """Read events to the end, in a process's own way of doing nothing with them."""
    try:
        with urllib.request.urlopen(f"{url}events") as stream:
            while stream.readline():
                pass
    except OSError:
        print("a reader was let go", file=sys.stderr)


def of_threads() -> float:
    """CPU seconds of the server's threads in this process, one of which answers each reader."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    ours = {number for number, name in names.items() if name == "braided-ui" or "process_request_thread" in name}
    return sum(t.user_time + t.system_time for t in psutil.Process().threads() if t.id in ours)


def whole() -> float:
    """CPU seconds of this process and of all below it, also of those that ended."""
    own = psutil.Process()
    times = [process.cpu_times() for process in [own, *own.children(recursive=True)]]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


if __name__ == "__main__":
    sys.exit(main())
