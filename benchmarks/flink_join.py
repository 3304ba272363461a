"""Flink's interval join on the rows of a join workload: the rival outside Spark.

    python benchmarks/flink_join.py                     10 s window, 6 million rows a side
    python benchmarks/flink_join.py --quick             half a minute of event time

The files are laid out anew for Flink, which has no batches and gives no order between files. Each
side becomes two Parquet files, one for each of the two readers, with every other row in time order:

    left/ 00000 00001 ...      ->     0.parquet: rows 0 2 4 ...   reader 0, in time order
                                      1.parquet: rows 1 3 5 ...   reader 1, in time order

Each setting has its own JVM and runs three times there: once to warm up, once into the blackhole
sink, and once into a count and a checksum that must equal DuckDB's, as Spark's engines do in join.py.
With checkpoints it runs a fourth time, into Parquet files that are committed exactly once, as
`files_direct` does in join.py. The time is that of a whole job, its start included. One JSON line goes
to stdout.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from flink import FLINK, Checkpoints, add_options, environment, fetch_jars, in_flink, say, table_environment
from workloads import WORKLOADS, checksum, generate, oracle

SETTINGS: dict[str, dict[str, str]] = {
    "hashmap": {"state.backend.type": "hashmap"},
    "hashmap_checkpoints": {"state.backend.type": "hashmap", "execution.checkpointing.interval": "5 s"},
    "rocksdb_checkpoints": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "5 s",
        "execution.checkpointing.incremental": "true",
        "taskmanager.memory.managed.size": "1g",
    },
}
SINKS = {
    # The count is of every result row; with mini-batches Flink adds up locally before it shuffles.
    "counted": {
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "100000",
        "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    },
    # Files are committed by checkpoints, the last ones by one more at the end.
    "files": {
        "execution.checkpointing.checkpoints-after-tasks-finish": "true",
        "execution.checkpointing.interval": "1 s",
    },
}


def main() -> int:
    # So that the files, and the process being measured, go when this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _options()
    if options.one:
        print(json.dumps(_run(options.one, options.data, options.within)))
        return 0
    workload = WORKLOADS["w10_500k"]
    workload = replace(workload, rows=50_000, warm=2, measured=4) if options.quick else workload
    jars = fetch_jars(options.jars)
    python = environment(options.venv)
    root = Path(tempfile.mkdtemp(prefix="braided-flink-", dir=options.data))
    try:
        generate(workload, root / "spark")
        truth = oracle(workload, root / "spark")
        _lay_out(root)
        rows = 2 * sum(workload.batch_rows())
        say(f"{rows:,} rows in, {truth['count']:,} pairs")
        settings = {}
        for setting in options.settings:
            words = ["--one", setting, "--data", root / "flink", "--within", workload.within_s]
            settings[setting] = in_flink(__file__, words, python, jars, root / f"{setting}.log")
            for sink, result in settings[setting].items():
                result["rows_per_s"] = round(rows / result["seconds"])
                say(f"{setting}, {sink}: {result}")
            if "files" in settings[setting]:
                settings[setting]["files"] |= _written(root / "flink" / f"out-{setting}")
                shutil.rmtree(root / "flink" / f"out-{setting}")
            for sink in settings[setting].keys() - {"blackhole"}:
                result = settings[setting][sink]
                result["equal"] = all(result[what] == truth[what] for what in ("count", "checksum"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
    summary = {
        "benchmark": "flink_join",
        "date": datetime.date.today().isoformat(),
        "quick": options.quick,
        "flink": FLINK,
        "cpus": os.cpu_count(),
        "heap": "6g",
        "rows": rows,
        "oracle_count": truth["count"],
        "equal": all(r.get("equal", True) for s in settings.values() for r in s.values()),
        "settings": settings,
    }
    print(json.dumps(summary))
    return 0 if summary["equal"] else 1


def _run(setting: str, data: Path, within_s: int) -> dict[str, Any]:
    """Both sinks in this process's JVM, which a first run has warmed up."""
    _job(setting, "blackhole", data, within_s)
    commits = "execution.checkpointing.interval" in SETTINGS[setting]
    sinks = ("blackhole", "counted", *(("files",) if commits else ()))
    return {sink: _job(setting, sink, data, within_s) for sink in sinks}


def _job(setting: str, sink: str, data: Path, within_s: int) -> dict[str, Any]:
    checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=data))
    env = table_environment(
        SETTINGS[setting] | SINKS.get(sink, {}) | {"execution.checkpointing.dir": checkpoints.as_uri()}
    )
    for side in ("left", "right"):
        env.execute_sql(f"""
            create table {side}_side (
                k bigint, ms bigint, v bigint,
                ts as to_timestamp_ltz(ms, 3), watermark for ts as ts - interval '10' second
            ) with ({_parquet(data / side)})""")
    joined = f"""
        from left_side l join right_side r on l.k = r.k
        and r.ts between l.ts - interval '{within_s}' second and l.ts + interval '{within_s}' second"""
    with Checkpoints(checkpoints) as seen:
        started = time.perf_counter()
        if sink == "counted":
            # The modulus is cast: mod(bigint, int) is an int in Flink, and a sum of ints wraps round.
            part = checksum("l.v", "r.v", "l.k * 31 + l.ms * 7000 + r.ms * 13000", modulo="mod({}, cast({} as bigint))")
            with env.execute_sql(f"select count(*), sum({part}) {joined}").collect() as rows:
                last = None
                for row in rows:  # a changelog: the last row is the answer
                    last = row
            assert last is not None
            answer = {"count": last[0], "checksum": last[1]}
        else:
            to = "'connector' = 'blackhole'" if sink == "blackhole" else _parquet(data / f"out-{setting}")
            env.execute_sql(f"""
                create table results (k bigint, ms bigint, v bigint, ms_right bigint, v_right bigint) with ({to})""")
            env.execute_sql(f"insert into results select l.k, l.ms, l.v, r.ms, r.v {joined}").wait()
            answer = {}
        seconds = time.perf_counter() - started
    shutil.rmtree(checkpoints, ignore_errors=True)
    return answer | {"seconds": round(seconds, 3), "checkpoints": seen.highest}


def _parquet(folder: Path) -> str:
    return f"'connector' = 'filesystem', 'path' = '{folder.as_uri()}', 'format' = 'parquet'"


def _written(folder: Path) -> dict[str, Any]:
    """Return the count and checksum of the committed files of a job; others have names that begin with a dot."""
    import duckdb

    part = checksum("v", "v_right", "k * 31 + ms * 7000 + ms_right * 13000")
    files = [str(path) for path in folder.iterdir() if not path.name.startswith(".")]
    found = duckdb.execute(f"select count(*), sum({part})::bigint from read_parquet($files)", {"files": files})
    return dict(zip(("count", "checksum"), found.fetchall()[0], strict=True))


def _lay_out(root: Path) -> None:
    """Write the Spark files' rows again, as one file for each of the two readers."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for side in ("left", "right"):
        folder = root / "flink" / side
        folder.mkdir(parents=True)
        table = pa.concat_tables(pq.read_table(f) for f in sorted(glob.glob(f"{root}/spark/{side}/*.parquet")))
        ms = pc.divide(table["ts"].cast(pa.int64()), 1_000)
        table = pa.table({"k": table["k"], "ms": ms, "v": table["v"]})
        for reader in range(2):
            every_other = pa.array(range(reader, table.num_rows, 2), pa.int64())
            pq.write_table(table.take(every_other), folder / f"{reader}.parquet")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--quick", action="store_true", help="small and short; the times mean nothing")
    add_options(parser)
    parser.add_argument("--one", choices=SETTINGS, help=argparse.SUPPRESS)
    parser.add_argument("--within", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
