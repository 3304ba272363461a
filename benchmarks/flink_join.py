"""Flink's interval join on the rows of a join workload: the rival outside Spark.

    python benchmarks/flink_join.py                     10 s window, 6 million rows a side
    python benchmarks/flink_join.py --quick             half a minute of event time

Flink needs a Python environment of its own (its pyarrow and pandas are older than Spark's): it is
made at `--venv` with pip on first use, and the jars that pip does not bring (Parquet, and the Hadoop
classes it refers to) are fetched into `--jars` by Maven. Nothing of it is part of this repository.

The files are laid out anew for Flink, which has no batches and gives no order between files. Each
side becomes two Parquet files, one for each of the two readers, with every other row in time order:

    left/ 00000 00001 ...      ->     0.parquet: rows 0 2 4 ...   reader 0, in time order
                                      1.parquet: rows 1 3 5 ...   reader 1, in time order

Each setting has its own JVM and runs three times there: once to warm up, once into the blackhole
sink, and once into a count and a checksum that must equal DuckDB's, as Spark's engines do in join.py.
The time is that of a whole job, its start included. One JSON line goes to stdout.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from workloads import WORKLOADS, Workload, checksum, generate, oracle

FLINK = "2.3.0"
JARS = (
    f"org.apache.flink:flink-sql-parquet:{FLINK}",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
)
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
SAME_FOR_ALL = {
    "parallelism.default": "2",
    # Saves Flink the copies between chained operators.
    "pipeline.object-reuse": "true",
    # Otherwise a bounded job idles at its end until one more checkpoint.
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
    "table.local-time-zone": "UTC",
}
# The count is of every result row; with mini-batches Flink adds up locally before it shuffles.
COUNTED = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "100000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
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
    jars = _fetch(options.jars)
    python = _environment(options.venv)
    root = Path(tempfile.mkdtemp(prefix="braided-flink-", dir=options.data))
    try:
        generate(workload, root / "spark")
        truth = oracle(workload, root / "spark")
        _lay_out(root)
        rows = 2 * sum(workload.batch_rows())
        _say(f"{rows:,} rows in, {truth['count']:,} pairs")
        settings = {}
        for setting in options.settings:
            settings[setting] = _measure(setting, workload, python, jars, root)
            for sink, result in settings[setting].items():
                result["rows_per_s"] = round(rows / result["seconds"])
                _say(f"{setting}, {sink}: {result}")
            counted = settings[setting]["counted"]
            counted["equal"] = all(counted[what] == truth[what] for what in ("count", "checksum"))
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
        "equal": all(s["counted"]["equal"] for s in settings.values()),
        "settings": settings,
    }
    print(json.dumps(summary))
    return 0 if summary["equal"] else 1


def _run(setting: str, data: Path, within_s: int) -> dict[str, Any]:
    """Both sinks in this process's JVM, which a first run has warmed up."""
    _job(setting, "blackhole", data, within_s)
    return {sink: _job(setting, sink, data, within_s) for sink in ("blackhole", "counted")}


def _job(setting: str, sink: str, data: Path, within_s: int) -> dict[str, Any]:
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    checkpoints = Path(tempfile.mkdtemp(prefix="checkpoints-", dir=data))
    configuration = Configuration()
    conf = SAME_FOR_ALL | SETTINGS[setting] | {"execution.checkpointing.dir": checkpoints.as_uri()}
    for name, value in (conf | (COUNTED if sink == "counted" else {})).items():
        configuration.set_string(name, value)
    env = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    for side in ("left", "right"):
        env.execute_sql(f"""
            create table {side}_side (
                k bigint, ms bigint, v bigint,
                ts as to_timestamp_ltz(ms, 3), watermark for ts as ts - interval '10' second
            ) with ('connector' = 'filesystem', 'path' = '{(data / side).as_uri()}', 'format' = 'parquet')""")
    joined = f"""
        from left_side l join right_side r on l.k = r.k
        and r.ts between l.ts - interval '{within_s}' second and l.ts + interval '{within_s}' second"""
    with _Checkpoints(checkpoints) as seen:
        started = time.perf_counter()
        if sink == "blackhole":
            env.execute_sql("""
                create table nowhere (
                    k bigint, ms bigint, v bigint, ms_right bigint, v_right bigint
                ) with ('connector' = 'blackhole')""")
            env.execute_sql(f"insert into nowhere select l.k, l.ms, l.v, r.ms, r.v {joined}").wait()
            answer = {}
        else:
            # The modulus is cast: mod(bigint, int) is an int in Flink, and a sum of ints wraps round.
            part = checksum("l.v", "r.v", "l.k * 31 + l.ms * 7000 + r.ms * 13000", modulo="mod({}, cast({} as bigint))")
            with env.execute_sql(f"select count(*), sum({part}) {joined}").collect() as rows:
                last = None
                for row in rows:  # a changelog: the last row is the answer
                    last = row
            assert last is not None
            answer = {"count": last[0], "checksum": last[1]}
        seconds = time.perf_counter() - started
    shutil.rmtree(checkpoints, ignore_errors=True)
    return answer | {"seconds": round(seconds, 3), "checkpoints": seen.highest}


class _Checkpoints:
    """Counts a job's checkpoints by watching their folder: a job that ends removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.highest = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Checkpoints:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            found = [int(p.name[4:]) for p in self.folder.glob("*/chk-*") if (p / "_metadata").exists()]
            self.highest = max([self.highest, *found])


def _measure(setting: str, workload: Workload, python: Path, jars: list[Path], root: Path) -> dict[str, Any]:
    environment = os.environ | {
        "HADOOP_CLASSPATH": os.pathsep.join(map(str, jars)),
        "JVM_ARGS": "-Xmx6g",
        "TZ": "UTC",
    }
    command = [python, __file__, "--one", setting, "--data", root / "flink", "--within", workload.within_s]
    log = root / f"{setting}.log"
    with log.open("w") as stderr:
        done = subprocess.run(
            [str(word) for word in command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{setting} failed:\n" + log.read_text()[-6_000:])
    return json.loads(done.stdout.splitlines()[-1])


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


def _fetch(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    jars = []
    for coordinates in JARS:
        _, artifact, version = coordinates.split(":")
        jars.append(folder / f"{artifact}-{version}.jar")
        if not jars[-1].exists():
            _say(f"fetching {coordinates}")
            fetch = [
                "mvn",
                "-q",
                "-B",
                "dependency:copy",
                f"-Dartifact={coordinates}",
                f"-DoutputDirectory={folder}",
            ]
            subprocess.run(fetch, check=True, stdout=sys.stderr)
    return jars


def _environment(folder: Path) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        _say(f"installing apache-flink {FLINK} into {folder}")
        subprocess.run(["python3.11", "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", f"apache-flink=={FLINK}"]
        subprocess.run(install, check=True, stdout=sys.stderr)
    return python


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    cache = Path(tempfile.gettempdir()) / "braided-flink"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--quick", action="store_true", help="small and short; the times mean nothing")
    parser.add_argument("--venv", type=Path, default=cache / "venv", help="made if it is not there")
    parser.add_argument("--jars", type=Path, default=cache / "jars")
    parser.add_argument("--data", type=Path, help="folder for the files (removed at the end); default: temporary")
    parser.add_argument("--one", choices=SETTINGS, help=argparse.SUPPRESS)
    parser.add_argument("--within", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
