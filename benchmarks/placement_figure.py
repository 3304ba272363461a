"""EBS's Figure 6b: traffic between two nodes while that of 8 detectors swings, every 100 s, between two patterns.

    python benchmarks/placement_figure.py [--out docs/how-to]      # writes peers_6b.svg; prints one line of JSON

A cycle is what the optimisation master does: 5 s of measurements, half a second of search, then at most three moves,
each as long as a planned move takes on Spark. Search and choice of moves are the master's own. Beside it the paper's
static allocation, and the best one at every moment (exhaustive search).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
from support.generators.hierarchies import swing
from support.placements import exhaustive

from braided.charts import Frame, draw_chart
from braided.fleet.master import COST, LIMIT
from braided.fleet.placement.cuckoo import SECONDS, search
from braided.fleet.placement.problem import Allocation, Problem
from braided.fleet.placement.worthwhile import worthwhile

LASTS, SWAP, TICK = 300.0, 100.0, 0.5
MEASURES, MOVES = 5.0, 2.5
"""Seconds of measurements, and of one move."""
STATIC = np.array([0, 1, 0, 1, 1, 0, 1, 0])
"""Detectors 0, 2, 5 and 7 on one node, the others on the other."""
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #5d6b7a }
.end { text-anchor: end } .mid { text-anchor: middle } .grid { stroke: #e3e8ed }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round }
.s0 { stroke: #b4459c } .s1 { stroke: #2563eb } .s2 { stroke: #17212b; stroke-dasharray: 2 3 }
text.s0 { stroke: none; fill: #b4459c } text.s1 { stroke: none; fill: #2563eb } text.s2 { stroke: none; fill: #17212b }
.title { font-size: 14px; font-weight: 600; fill: #17212b }
"""


def problem_of(traffic: np.ndarray) -> Problem:
    """Eight detectors on two nodes, each of which has room for five."""
    return Problem(traffic, np.array([[0.0, 0.005], [0.005, 0.0]]), np.ones(8), np.full(2, 5.0))


def remote(traffic: np.ndarray, at: Allocation) -> float:
    """Events a second between the nodes."""
    return float(traffic[at[:, None] != at[None, :]].sum())


def play(seed: int) -> tuple[list[float], list[float]]:
    """Return seconds, and the traffic that the master leaves at each."""
    times = np.arange(0, LASTS, TICK)
    traffic = [swing(int(second // SWAP)) for second in times]
    at, waiting, seen = STATIC.copy(), list[tuple[float, int, int]](), 0.0
    left = []
    for number, second in enumerate(times):
        while waiting and waiting[0][0] <= second:
            _, component, target = waiting.pop(0)
            at[component] = target
            seen = second  # it measures anew once all have moved
        if not waiting and second - seen >= MEASURES:
            measured = np.mean(traffic[max(0, number - int(MEASURES / TICK)) : number], axis=0)
            problem = problem_of(measured)
            found = search(problem, at, seed=seed + number, seconds=SECONDS)
            steps = worthwhile(problem, at, found.allocation, cost=COST, limit=LIMIT)
            waiting = [
                (second + SECONDS + MOVES * (1 + place), component, target)
                for place, (component, _, target) in enumerate(steps)
            ]
            seen = second
        left.append(remote(traffic[number], at))
    return times.tolist(), left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "how-to")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    times, moved = play(given.seed)
    best = [exhaustive(problem_of(swing(pattern))) for pattern in (0, 1)]
    patterns = [int(second // SWAP) for second in times]
    static = [remote(swing(pattern), STATIC) for pattern in patterns]
    ideal = [remote(swing(pattern), best[pattern % 2]) for pattern in patterns]
    frame = Frame(width=860, height=300, top=36, right=110)
    chart = draw_chart(times, {"static": static, "master": moved, "best": ideal}, x_end=LASTS, frame=frame)
    chart = "\n".join(line for line in chart.splitlines() if not line.startswith("<circle"))
    title = f'<text class="title" x="{frame.left}" y="20">Events a second between two nodes</text>'
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "peers_6b.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.width} {frame.height}" role="img" '
        f'aria-label="Traffic between two nodes: static, with the master, and the best">\n<style>{STYLE}</style>\n'
        f'<rect width="{frame.width}" height="{frame.height}" fill="#fff"/>\n{title}\n{chart}\n</svg>\n'
    )
    means = {name: float(np.mean(line)) for name, line in (("static", static), ("master", moved), ("best", ideal))}
    late = [
        next(second - start for second, a, b in zip(times, moved, ideal, strict=True) if second >= start and a <= b)
        for start in np.arange(0, LASTS, SWAP)
    ]
    print(json.dumps({"benchmark": "placement_figure", **means, "seconds_to_the_best": late}))


if __name__ == "__main__":
    main()
