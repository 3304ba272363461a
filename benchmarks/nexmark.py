"""NEXMark's queries with joins: Braided, Spark's own operators, Flink, Bytewax and Pathway on the same events.

    python benchmarks/nexmark.py                           every query and engine, uniform and skewed
    python benchmarks/nexmark.py --queries q3 q20 --loads default --engines braided spark
    python benchmarks/nexmark.py --events 4000000 --batch 1000000 --files 2    fewer, larger batches
    python benchmarks/nexmark.py --quick                   tries everything in a few minutes; its times mean nothing
    python benchmarks/nexmark.py --table runs.jsonl        the table of runs that were made one by one

Each engine has a process of its own in which it answers the queries one after the other, each on the first batches
before it is measured. The time is that of a whole job on a warm engine, from start to end. Count and checksum of every
result are compared with DuckDB's over the same files. Queries without a bound on time are bounded by 10 seconds,
for all engines: at this rate nothing is lost by that, which `--uncapped` has DuckDB confirm. One JSON line and a table
go to stdout.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from flink import FLINK, add_options, environment, fetch_jars, in_flink, say
from nexmark_data import LOADS, Load, generate, truth
from nexmark_queries import QUERIES

ON_SPARK = ("braided", "spark", "spark_rocksdb")
OTHERS = ("flink", "bytewax", "pathway")
DEFAULT = ("braided", "spark", "flink", "bytewax", "pathway")
HERE = Path(__file__).parent


def main() -> int:
    # So that the files, and the process being measured, go when this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = _options()
    if options.table:
        runs = [json.loads(line) for path in options.table for line in path.read_text().splitlines() if line[:1] == "{"]
        print(table(runs))
        return 0
    if options.one:
        from nexmark_spark import run

        print(json.dumps(run(options.one, options.queries, options.data, options.cutoff, options.files)))
        return 0
    found: dict[str, Any] = {}
    versions = {"braided": importlib.metadata.version("pyspark"), "spark": importlib.metadata.version("pyspark")}
    for name in options.loads:
        load = _sized(LOADS[name], options)
        root = Path(tempfile.mkdtemp(prefix="braided-nexmark-", dir=options.data))
        try:
            size = generate(load, root)
            answers = {query: truth(query, load, root) for query in options.queries}
            say(f"{name}: {load.events:,} events of {size / 1e6:,.0f} MB; {answers}")
            found[name] = {"rows": answers, "engines": {}}
            if options.uncapped:
                found[name]["cap_loses_nothing"] = {
                    query: truth(query, load, root, capped=False) == answers[query] for query in options.queries
                }
            for engine in options.engines:
                outcome, versions[engine] = _measure(engine, options, root, load)
                found[name]["engines"][engine] = {
                    query: _judged(outcome.get(query, {"error": "not written for this engine"}), answers[query], load)
                    for query in options.queries
                }
                say(f"{name}, {engine}: {found[name]['engines'][engine]}")
        finally:
            shutil.rmtree(root, ignore_errors=True)
    summary = {
        "benchmark": "nexmark",
        "date": datetime.date.today().isoformat(),
        "quick": options.quick,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {engine: versions[engine] for engine in options.engines},
        "events": load.events,
        "rate": load.rate,
        "batch": load.batch,
        "files": load.files,
        "loads": found,
    }
    print(json.dumps(summary))
    print(table([summary]))
    outcomes = [q for each in found.values() for e in each["engines"].values() for q in e.values()]
    return 0 if all(outcome.get("equal", True) for outcome in outcomes) else 1


def _sized(load: Load, options: argparse.Namespace) -> Load:
    load = load.quick() if options.quick else load
    sizes = {"events": options.events, "batch": options.batch, "files": options.files}
    return replace(load, **{name: size for name, size in sizes.items() if size})


def _measure(engine: str, options: argparse.Namespace, root: Path, load: Load) -> tuple[dict[str, Any], str]:
    """Return what an engine took for each query, in a process of its own, and its version."""
    log = root / f"{engine}.log"
    if engine in ON_SPARK:
        words = [
            "--one",
            engine,
            "--data",
            root,
            "--cutoff",
            load.cutoff_ms,
            "--files",
            load.files,
            "--queries",
            *options.queries,
        ]
        around = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        return _apart(sys.executable, __file__, words, log, around), importlib.metadata.version("pyspark")
    if engine == "flink":
        jars, python = fetch_jars(options.jars), environment(options.venv)
        words = [root, load.cutoff_ms, *options.queries]
        return in_flink(str(HERE / "nexmark_flink.py"), words, python, jars, log), FLINK
    from nexmark_rivals import RIVALS, rival_environment

    rival = RIVALS[engine]
    queries = [query for query in options.queries if query in rival.queries]
    python = rival_environment(rival, (options.rivals or options.venv.parent) / engine)
    outcome = _apart(python, rival.script, [root, load.cutoff_ms, *queries], log, {}) if queries else {}
    return {**{query: {"error": why} for query, why in rival.without.items()}, **outcome}, rival.version


def _apart(python: str | Path, script: str | Path, words: list[Any], log: Path, around: dict[str, str]) -> Any:
    with log.open("w") as stderr:
        done = subprocess.run(
            [str(word) for word in (python, script, *words)], env=os.environ | around, stdout=subprocess.PIPE,
            stderr=stderr, text=True, check=False,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n" + log.read_text()[-6_000:])
    return json.loads(done.stdout.splitlines()[-1])


def _judged(outcome: dict[str, Any], wanted: dict[str, Any], load: Load) -> dict[str, Any]:
    if "error" in outcome:
        return outcome
    rate = round(load.events / outcome["seconds"])
    return outcome | {"events_per_s": rate, "equal": all(outcome[what] == wanted[what] for what in wanted)}


def table(runs: list[dict[str, Any]]) -> str:
    """Return runs as Markdown: a row for each query and load, the seconds and (CPU seconds) of each engine.

    Of several runs of a cell the fastest counts: what else the machine does only makes one slower.
    """
    cells: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    versions: dict[str, str] = {}
    for run in runs:
        versions |= run["versions"]
        for load, found in run["loads"].items():
            for engine, queries in found["engines"].items():
                for query, outcome in queries.items():
                    row = cells.setdefault((query, load), {})
                    row[engine] = min(row.get(engine, outcome), outcome, key=lambda each: each.get("seconds", 1e9))
    engines = list(versions)
    lines = ["| query | events | " + " | ".join(f"{e} {versions[e]}" for e in engines) + " | over Spark | over Flink |"]
    lines.append("|---" * (len(engines) + 4) + "|")
    for query, load in sorted(cells, key=lambda cell: (int(cell[0][1:]), list(LOADS).index(cell[1]))):
        row = cells[query, load]
        times = [_cell(row.get(engine)) for engine in engines]
        ratios = [_ratio(row, rival) for rival in ("spark", "flink")]
        lines.append(f"| {query} | {load} | " + " | ".join([*times, *ratios]) + " |")
    return "\n".join(lines)


def _cell(outcome: dict[str, Any] | None) -> str:
    if outcome is None:
        return ""
    if "error" in outcome:
        return "no"
    return f"{outcome['seconds']:.1f} ({outcome['cpu_s']:.0f})" + ("" if outcome["equal"] else " wrong")


def _ratio(row: dict[str, dict[str, Any]], rival: str) -> str:
    ours, theirs = (row.get(engine, {}).get("seconds") for engine in ("braided", rival))
    return f"{theirs / ours:.1f}x" if ours and theirs else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=["uniform", "skewed"])
    parser.add_argument("--engines", nargs="+", choices=(*ON_SPARK, *OTHERS), default=list(DEFAULT))
    parser.add_argument("--events", type=int, help="how many; default: 2 million")
    parser.add_argument("--batch", type=int, help="events of a batch; default: 200,000")
    parser.add_argument("--files", type=int, help="files of a stream in a batch, and tasks that read them; default: 1")
    parser.add_argument("--quick", action="store_true", help="small; the times mean nothing")
    parser.add_argument("--uncapped", action="store_true", help="ask DuckDB whether the cap on joins loses anything")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of earlier runs' lines instead")
    add_options(parser)
    parser.add_argument("--rivals", type=Path, help="folder of Bytewax's and Pathway's environments; made if not there")
    parser.add_argument("--one", choices=ON_SPARK, help=argparse.SUPPRESS)
    parser.add_argument("--cutoff", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
