"""Braided's join against Spark's own stream-stream join, on the same files in the same run.

    python benchmarks/join.py                        every workload, one round
    python benchmarks/join.py --repeats 3 w10_500k   one workload, three rounds
    python benchmarks/join.py --how left w10_500k    left outer joins, and our inner one beside
    python benchmarks/join.py --quick                tries everything in a few minutes; its times mean nothing

Store provider and options differ between engines, so each measurement is a process and a JVM of its
own; the engines take turns, in another order each round. Every result is compared, by count and
checksum, with DuckDB's. Progress goes to stderr, one JSON line to stdout; the exit code is 1 when a
result is wrong. A bar that is missed is reported, and does not change the exit code.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engines import ENGINES, SAME_FOR_ALL, run
from workloads import WORKLOADS, Workload, generate, oracle

FIRST_BATCH_BAR_S = 10.0
HERE = Path(__file__).resolve().parent


def main() -> int:
    # So that the files, and the process being measured, go when this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _options()
    if options.one:
        engine, name = options.one
        outcome = run(engine, _workload(name, options), options.data, options.scratch)
        print(json.dumps(outcome))
        return 0
    root = Path(tempfile.mkdtemp(prefix="braided-join-", dir=options.data))
    try:
        summary = {
            "benchmark": "join",
            "date": datetime.date.today().isoformat(),
            "quick": options.quick,
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "driver_memory": SAME_FOR_ALL["spark.driver.memory"],
            "repeats": options.repeats,
            "numba_cache": options.numba_cache,
            "workloads": {name: _compare(_workload(name, options), options, root) for name in options.workloads},
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(json.dumps(summary))
    return 0 if all(w["equal"] for w in summary["workloads"].values()) else 1


def _compare(workload: Workload, options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """Run every engine on one workload, in turns, and reduce the runs to medians and ratios."""
    data = root / workload.name
    _say(f"{workload.name}: writing {2 * sum(workload.batch_rows()):,} rows")
    generate(workload, data)
    truth = oracle(workload, data)
    _say(f"{workload.name}: the oracle finds {truth['count']:,} pairs")
    engines = options.engines or workload.engines
    runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
    for turn in range(options.repeats):
        for i in range(len(engines)):
            engine = engines[(i + turn) % len(engines)]
            outcome = _measure(engine, workload, options, data, root)
            runs[engine].append(outcome)
            right = _is_right(outcome, truth)
            _say(
                f"{workload.name}: {engine}: {outcome['steady_s']:.3f} s a batch,"
                f" first {outcome['batch_s'][0]:.1f} s, {outcome.get('rows', outcome['count']):,} rows out,"
                f" {'right' if right else 'WRONG'}"
            )
    shutil.rmtree(data)
    return _reduce(workload, runs, truth)


def _measure(engine: str, workload: Workload, options: argparse.Namespace, data: Path, root: Path) -> dict[str, Any]:
    """One run in its own process; its stderr is shown only if it fails."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{engine}-", dir=root))
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if options.numba_cache == "fresh":
        # The first batch then includes compiling the kernels, as it does on a new machine.
        environment["NUMBA_CACHE_DIR"] = str(scratch / "numba")
    command = [sys.executable, __file__, "--one", engine, workload.name]
    command += ["--data", str(data), "--scratch", str(scratch), "--disorder", str(options.disorder)]
    command += ["--quick"] if options.quick else []
    command += ["--how", options.how, *(["--measured", str(options.measured)] if options.measured else [])]
    log = root / f"{engine}.log"
    with log.open("w") as stderr:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{engine} on {workload.name} failed:\n" + log.read_text()[-6_000:])
    shutil.rmtree(scratch, ignore_errors=True)
    return json.loads(done.stdout.splitlines()[-1])


def _is_right(outcome: dict[str, Any], truth: dict[str, int]) -> bool:
    prefix = "passed_" if outcome["engine"] == "passthrough" else ""
    return all(outcome[what] == truth[prefix + what] for what in ("count", "checksum"))


def _reduce(workload: Workload, runs: dict[str, list[dict[str, Any]]], truth: dict[str, int]) -> dict[str, Any]:
    engines = {}
    for engine, outcomes in runs.items():
        steady = [s for o in outcomes for s in o["batch_s"][-workload.measured :]]
        median = statistics.median(steady)
        engines[engine] = {
            "median_s": round(median, 4),
            "mean_s": round(statistics.mean(steady), 4),
            "min_s": min(steady),
            "max_s": max(steady),
            "runs_median_s": [round(o["steady_s"], 4) for o in outcomes],
            "rows_per_s": round(2 * workload.rows / median),
            "first_batch_s": statistics.median(o["batch_s"][0] for o in outcomes),
            "state_disk_bytes": outcomes[-1]["state_disk_bytes"],
        }
        for name in ("stored_rows", "stored_bytes", "stored_over_arrow", "largest_over_mean", "decisions"):
            if name in outcomes[-1]:
                engines[engine][name] = outcomes[-1][name]
    summary = {
        "spark": next(iter(runs.values()))[0]["spark"],
        "shape": {k: v for k, v in asdict(workload).items() if k not in ("name", "bar", "aim", "rivals")},
        "oracle_count": truth["count"],
        "equal": all(_is_right(o, truth) for outcomes in runs.values() for o in outcomes),
        "engines": engines,
    }
    subject = workload.subject
    natives = [engine for engine in engines if engine.startswith("native")]
    if subject in engines and natives:
        summary["speedup"] = _speedup(workload, engines, natives)
    if subject in engines:
        for rival, bar in workload.rivals:
            if rival in engines:
                summary[f"over_{rival}"] = _over_rival(engines[subject], engines[rival], bar)
    if subject in engines and "passthrough" in engines:
        summary["braided_over_passthrough"] = round(
            engines[subject]["median_s"] / engines["passthrough"]["median_s"], 3
        )
    if subject == "braided" in engines and not workload.catch_up:  # a catch-up batch is larger than a steady one
        extra = engines["braided"]["first_batch_s"] - engines["braided"]["median_s"]
        summary["first_minus_steady_s"] = round(extra, 3)
        summary["first_batch_met"] = extra <= FIRST_BATCH_BAR_S
    return summary


def _speedup(workload: Workload, engines: dict[str, Any], natives: Sequence[str]) -> dict[str, Any]:
    """Ratios of steady batch times: above 1, Braided is the faster."""

    def over(native: str, statistic: str) -> float:
        return round(engines[native][statistic] / engines[workload.subject][statistic], 3)

    fastest = min(natives, key=lambda native: engines[native]["median_s"])
    subject = engines[workload.subject]
    turns = range(len(subject["runs_median_s"]))
    return {
        **{f"over_{native}": over(native, "median_s") for native in natives},
        "fastest_native": fastest,
        "over_fastest": over(fastest, "median_s"),
        "over_fastest_by_mean": over(min(natives, key=lambda n: engines[n]["mean_s"]), "mean_s"),
        "over_fastest_by_round": [
            round(
                min(engines[n]["runs_median_s"][i] for n in natives) / subject["runs_median_s"][i],
                3,
            )
            for i in turns
        ],
        "bar": workload.bar,
        "aim": workload.aim,
        "met": over(fastest, "median_s") >= workload.bar,
    }


def _over_rival(subject: dict[str, Any], rival: dict[str, Any], bar: float) -> dict[str, Any]:
    """The median, over alternating pairs of runs, of the rival's batch time over the subject's."""
    pairs = [
        round(theirs / ours, 3) for ours, theirs in zip(subject["runs_median_s"], rival["runs_median_s"], strict=True)
    ]
    ratio = statistics.median(pairs)
    return {"ratio": round(ratio, 3), "by_round": pairs, "bar": bar, "met": ratio >= bar}


def _workload(name: str, options: argparse.Namespace) -> Workload:
    workload = replace(WORKLOADS[name], disorder_s=options.disorder, how=options.how)
    if options.how != "inner":
        # At least 4 times Spark's own join at 500,000 rows a batch, 2.5 times at 100,000; 1.3 times the inner at most.
        bar = 4.0 if workload.rows >= 250_000 else 2.5
        workload = replace(workload, bar=bar, aim=bar, rivals=(("braided_inner", 1 / 1.3),))
    if options.measured:
        workload = replace(workload, warm=options.measured, measured=options.measured)
    return workload.quick() if options.quick else workload


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default: all")
    parser.add_argument("--engines", help=f"of {','.join(ENGINES)}; default: by workload")
    parser.add_argument("--repeats", type=int, default=1, help="rounds over all engines")
    parser.add_argument("--quick", action="store_true", help="small and short; the times mean nothing")
    parser.add_argument("--disorder", type=float, default=0.0, help="seconds of disorder, below the lateness")
    parser.add_argument("--how", choices=("inner", "left"), default="inner", help="the kind of the join")
    parser.add_argument("--measured", type=int, help="so many batches to warm up and to measure; default: by workload")
    parser.add_argument("--numba-cache", choices=("fresh", "kept"), default="fresh")
    parser.add_argument("--data", type=Path, help="folder for the files (removed at the end); default: temporary")
    parser.add_argument("--one", nargs=2, metavar=("ENGINE", "WORKLOAD"), help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.workloads = options.workloads or list(WORKLOADS)
    options.engines = options.engines.split(",") if options.engines else []
    for what, chosen, known in (
        ("workload", options.workloads, WORKLOADS),
        ("--engines", options.engines, ENGINES),
    ):
        if unknown := [name for name in chosen if name not in known]:
            parser.error(f"{what} {unknown[0]!r}: not one of {', '.join(known)}")
    if not 0 <= options.disorder < min(w.lateness_s for w in WORKLOADS.values()):
        parser.error(f"--disorder {options.disorder}: rows would be late; stay below the lateness")
    return options


if __name__ == "__main__":
    sys.exit(main())
