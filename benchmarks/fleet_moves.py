"""What a planned move of a job costs: the gap in its output, with a rehearsal and without; CPU of idle peers.

    python benchmarks/fleet_moves.py [--moves 4] [--idle 60]

Peers are processes with a Spark application on one core each. The job is a braided join with a learned lateness and a
control directory, triggered every half second. A gap is the longest time between two manifests of the output from just
before the order until five seconds after the move. `cold` are peers that answer without having rehearsed, each with a
fresh Spark application; `rehearsed` ones have rehearsed for this move alone, in a fresh application the first time.
Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet_processes import JOIN, SparkPeers, Streams, longest_gap, rows_of, until

from braided.peers.client import Fleet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=4, help="of each kind (%(default)s)")
    parser.add_argument("--rows", type=int, default=400, help="calls a file, four files a second (%(default)s)")
    parser.add_argument("--idle", type=float, default=60, help="seconds for which idle peers are watched (%(default)s)")
    arguments = parser.parse_args()
    found = {
        "rehearsed": _gaps(arguments.moves, arguments.rows, is_cold=False),
        "cold": _gaps(arguments.moves, arguments.rows, is_cold=True),
        "idle_cores": _idle(arguments.idle),
    }
    print(json.dumps(found))


def _gaps(moves: int, rows: int, *, is_cold: bool) -> dict[str, object]:
    """Move a job so many times to a peer that was just started; then, unless cold, back and forth."""
    command = (str(Path(__file__)), "--without-rehearsal") if is_cold else ("-m", "braided.cli", "peer")
    fresh, warm, orders = [], [], []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        peers = SparkPeers(root)
        streams = Streams(root, rows)
        try:
            peers.start("north")
            streams.start()
            (root / "hits.toml").write_text(JOIN.format(root))
            with peers.fleet() as fleet:
                fleet.submit(root / "hits.toml")
                until(lambda: rows_of(root / "hits") > 0, 120, "results")
                at = "north"
                for number in range(moves):
                    name = f"peer{number}"
                    peers.start(name, command)
                    time.sleep(5)
                    fresh.append(_move(fleet, root, name, orders))
                    if number:
                        peers.kill(at)
                    at = name
                    if not is_cold:
                        warm.append(_move(fleet, root, "north", orders))
                        at = "north"
                        peers.kill(name)
        finally:
            streams.end()
            peers.close()
    return {"fresh_peer_s": fresh, "warm_peer_s": warm, "median_fresh_s": statistics.median(fresh), "orders_s": orders}


def _move(fleet: Fleet, root: Path, name: str, orders: list[float]) -> float:
    begun = time.time()
    fleet.move("hits", name)
    orders.append(round(time.time() - begun, 2))
    time.sleep(5)
    return round(longest_gap(root / "hits", begun), 2)


def _idle(seconds: float) -> list[float]:
    """The cores that each of four idle peers uses: its driver, and its whole process tree."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        peers = SparkPeers(Path(folder), lease="30 seconds", period="5 seconds")
        try:
            for number in range(4):
                peers.start(f"peer{number}")
            time.sleep(20)
            before = [_cpu(process.pid) for process in peers.processes.values()]
            time.sleep(seconds)
            after = [_cpu(process.pid) for process in peers.processes.values()]
        finally:
            peers.close()
    pairs = zip(before, after, strict=True)
    return [tuple(round((b - a) / seconds, 4) for a, b in zip(x, y, strict=True)) for x, y in pairs]  # type: ignore[misc]


def _cpu(pid: int) -> tuple[float, float]:
    driver = psutil.Process(pid)
    own = sum(driver.cpu_times()[:2])
    return own, own + sum(sum(child.cpu_times()[:2]) for child in driver.children(recursive=True))


if __name__ == "__main__":
    if "--without-rehearsal" in sys.argv:
        import braided.fleet.host
        from braided.cli import main as command_line

        braided.fleet.host.rehearse = lambda *arguments: None
        sys.argv.remove("--without-rehearsal")
        sys.exit(command_line(["peer", *sys.argv[1:]]))
    main()
