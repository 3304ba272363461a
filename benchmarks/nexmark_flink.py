"""NEXMark's queries in Flink's SQL, in Flink's own Python; a part of `nexmark.py`.

Each query runs on the first batches, then into the blackhole sink, which is timed, then into a count and a checksum.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flink import table_environment
from nexmark_queries import QUERIES
from processes import cpu_seconds

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment

SETTINGS = {
    "state.backend.type": "hashmap",
    # Spark commits every batch.
    "execution.checkpointing.interval": "5 s",
    # What Flink's own runs of NEXMark are set to.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}
COLUMNS = {
    "person": "id bigint, name string, emailAddress string, creditCard string, city string, state string, ms bigint",
    "auction": """id bigint, itemName string, description string, initialBid bigint, reserve bigint, ms bigint,
        expires_ms bigint, seller bigint, category bigint, expires AS to_timestamp_ltz(expires_ms, 3)""",
    "bid": "auction bigint, bidder bigint, price bigint, channel string, url string, ms bigint",
}


def main() -> int:
    options = _options()
    print(json.dumps({name: _measure(name, options.root, options.cutoff) for name in options.queries}))
    return 0


def _measure(name: str, root: Path, cutoff_ms: int) -> dict[str, Any]:
    try:
        _job(name, root / "warm" / "flink", None)
        thrown = _job(name, root / "flink", None)
        counted = _job(name, root / "flink", cutoff_ms)
    except Exception as error:
        causes = [line.strip() for line in str(error).splitlines() if "Caused by" in line or "Exception" in line]
        return {"error": (causes or [str(error)])[-1][:300]}
    return counted | thrown | {"counted_s": counted["seconds"]}


def _job(name: str, data: Path, cutoff_ms: int | None) -> dict[str, Any]:
    asked = QUERIES[name]
    checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=data))
    env = table_environment(SETTINGS | {"execution.checkpointing.dir": checkpoints.as_uri()})
    for stream in asked.streams:
        _declare(env, stream, data / stream)
    for view in asked.flink_views():
        env.execute_sql(view)
    started, before = time.perf_counter(), cpu_seconds()
    answer: dict[str, Any] = {}
    if cutoff_ms is None:
        from pyflink.table import TableDescriptor

        env.sql_query(asked.text("flink")).execute_insert(TableDescriptor.for_connector("blackhole").build()).wait()
    else:
        count, total = asked.totals("flink", cutoff_ms)
        last = None
        with env.execute_sql(f"SELECT {count}, {total} FROM ({asked.text('flink')})").collect() as rows:
            for row in rows:  # a changelog: the last row is the answer
                last = row
        answer = dict(zip(("count", "checksum"), last or (0, 0), strict=True))
    seconds, used = time.perf_counter() - started, cpu_seconds() - before
    shutil.rmtree(checkpoints, ignore_errors=True)
    return answer | {"seconds": round(seconds, 3), "cpu_s": round(used, 2)}


def _declare(env: TableEnvironment, stream: str, folder: Path) -> None:
    env.execute_sql(f"""
        CREATE TABLE {stream} ({COLUMNS[stream]}, extra string, `dateTime` AS to_timestamp_ltz(ms, 3),
        WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND)
        WITH ('connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'parquet')""")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("cutoff", type=int)
    parser.add_argument("queries", nargs="+", choices=QUERIES)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
