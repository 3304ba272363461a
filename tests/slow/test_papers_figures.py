"""`braided papers --quick`: every figure of SSP, StreamCloud and GreedyDual-Join, its shape, and the same bytes twice."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braided.cli import main
from braided.sim.cluster import Cluster, Copies
from braided.sim.server_kernel import Costs

PAPERS = ("ssp", "streamcloud", "gdj", "ablations")
FIGURES = {
    "ssp": 4,
    "streamcloud": 9,
    "gdj": 13,
    "ablations": 1,
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """All figures' data, by slug; made twice, and equal to the byte."""
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "again")]
    for folder in folders:
        for paper in PAPERS:
            assert main(["papers", "--only", paper, "--quick", "--out", str(folder)]) == 0
    first, again = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert first == again
    return {Path(name).stem: json.loads(text) for name, text in first.items() if name.endswith(".json")}


def test_every_figure_says_what_it_is(figures: dict[str, dict[str, Any]]) -> None:
    for paper, count in FIGURES.items():
        mine = [data for data in figures.values() if data["paper"] == paper]
        assert len(mine) == count, paper
        for data in mine:
            assert data["parameters"], data["title"]
            assert data["differences"], data["title"]
            assert data["verdicts"], data["title"]
            numbers = [v for panel in data["panels"] for values in panel["series"].values() for v in values]
            assert numbers, data["title"]
            assert np.isfinite(numbers).all(), data["title"]


def series(data: dict[str, Any], panel: int = 0) -> dict[str, list[float]]:
    found: dict[str, list[float]] = data["panels"][panel]["series"]
    return found


def test_servers_per_join_have_an_optimum_between_few_and_all(figures: dict[str, dict[str, Any]]) -> None:
    data = figures["ssp_4_throughput"]
    sizes, done = data["panels"][0]["x"], series(data)["SSP as in its text"]
    best = sizes[int(np.argmax(done))]
    assert 10 <= best <= 30
    assert done[-1] < 0.8 * max(done)
    # The paper says about 15; where it is not inside 10 to 20 the verdict has the reason.
    assert 10 <= best <= 20 or any("idle" in verdict for verdict in data["verdicts"])


def test_an_adaptive_master_is_never_far_below_a_static_one(figures: dict[str, dict[str, Any]]) -> None:
    samples = series(figures["ssp_7_adaptation"])
    assert sum(samples["partition=ssp"]) >= 0.98 * sum(samples["SSP, static"])


@pytest.mark.parametrize("name", ["7a_map", "7b_join", "7c_aggregate", "7d_product", "7e_fixed"])
def test_operators_scale_out_nearly_linearly_and_queues_show_where_they_end(
    figures: dict[str, dict[str, Any]], name: str
) -> None:
    data = figures[f"streamcloud_{name}"]
    throughput, use, queue = (series(data, panel) for panel in range(3))
    sizes = [int(label.split()[0]) for label in throughput]
    most = [max(values) for values in throughput.values()]
    assert most == sorted(most)
    for small, large in ((2, 3), (3, 4)):  # 20 and 40, 40 and 64 processors
        assert most[large] / most[small] >= 0.8 * sizes[large] / sizes[small]
    for label in throughput:
        assert max(use[label]) <= 1.0
        assert queue[label] == sorted(queue[label])
    loads = np.array(data["panels"][0]["x"])
    one, *_, largest = throughput
    assert use[one][-1] > 0.9
    assert use[largest][0] < 0.3
    if name in ("7a_map", "7c_aggregate"):  # below saturation what arrives is processed, above it no longer
        assert throughput[largest][0] == pytest.approx(loads[0], rel=0.05)
        assert throughput[one][-1] < 0.5 * loads[-1]


def test_the_more_subclusters_the_more_is_idle_or_distributed(figures: dict[str, dict[str, Any]]) -> None:
    rows = series(figures["streamcloud_7f_strategies"])
    for values in rows.values():
        assert values == sorted(values)
    assert rows["subquery-cluster"][-1] > 1.5 * rows["operator-cluster"][-1]
    costs = figures["streamcloud_9_costs"]
    at = {name: place for place, name in enumerate(costs["panels"][0]["x"])}
    parts = series(costs)
    assert parts["idle"][at["operator"]] > parts["idle"][at["subquery"]]
    for place in at.values():
        assert sum(parts[part][place] for part in parts) == pytest.approx(1.0, abs=1e-4)


def test_instances_per_node_rise_to_the_cores_of_a_node(figures: dict[str, dict[str, Any]]) -> None:
    rows = series(figures["streamcloud_10_instances"])
    last = [values[-1] for values in rows.values()]
    assert last[0] < last[1] < last[-1]
    assert last[-1] > 0.95 * max(last)  # where three fill the cores, the fourth only spreads rows less evenly
    seconds = series(figures["streamcloud_10_measured"], 1)
    one, two = (jvm + python for jvm, python in zip(seconds["JVM"], seconds["Python"], strict=True))
    assert two < 2 * one  # a quick figure has a second of CPU time, which other work on the machine lengthens


def test_short_bursts_show_in_stack_distances_and_buffers(figures: dict[str, dict[str, Any]]) -> None:
    bursts, plain = (panel["series"] for panel in figures["gdj_2_1b_distances"]["panels"])
    assert max(np.array(bursts["trace"]) - bursts["permuted"]) > 0.3
    assert max(np.abs(np.array(plain["trace"]) - plain["permuted"])) < 0.05
    buffers = figures["gdj_4_buffer_size"]["panels"]
    for panel in buffers:
        for values in panel["series"].values():
            assert values == sorted(values)
    in_bursts = buffers[0]["series"]
    assert all(ours > prob for ours, prob in zip(in_bursts["GDJ"], in_bursts["PROB"], strict=True))
    for panel in buffers:
        for policy in ("GDJ", "PROB", "FIFO", "RAND", "RECENT"):
            assert all(
                found <= most + 1e-9
                for found, most in zip(panel["series"][policy], panel["series"]["limit"], strict=True)
            )
    sampled = figures["gdj_9_sampling"]["panels"][0]["series"]
    assert sampled["GDJ"][0] > sampled["GDJ"][-1]


def test_no_mechanism_is_for_nothing(figures: dict[str, dict[str, Any]]) -> None:
    data = figures["ablations"]
    left = dict(zip(data["parameters"]["mechanisms"], series(data)["without it"], strict=True))
    assert max(left.values()) <= 1.02
    for name in ("grids (SSP instead)", "subqueries (operators)", "processors by cost", "credits (FIFO)"):
        assert left[name] < 0.9, name


def test_ten_thousand_servers_and_a_million_rows_take_less_than_a_minute() -> None:
    random = np.random.default_rng(1)
    servers, rows = 10_000, 1_000_000
    cluster = Cluster(random.uniform(1e3, 5e3, servers), np.full(servers, 1000), 1, Costs(50.0, 10.0, 10.0, False))
    times = np.sort(random.uniform(0, 100, rows))
    targets = random.integers(0, servers, rows)
    sides = random.integers(0, 2, rows)
    parts = []
    for side in (0, 1):
        mine = sides == side
        ones = np.ones(mine.sum(), np.bool_)
        parts.append(Copies.of(targets[mine], times[mine], 0, side, np.zeros(len(ones), np.int64), ones))
    started = time.process_time()
    cluster.run(Copies.merge(parts), [np.arange(servers)], 200.0)
    assert time.process_time() - started < 60
    assert int(cluster.state.received.sum()) == rows
    assert int(cluster.state.processed.sum()) == rows
    # Each server gets half a row a second of each stream, so that a row meets five of the ten seconds before it.
    assert cluster.state.comparisons.sum() == pytest.approx(rows * 5, rel=0.1)
