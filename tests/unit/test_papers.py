"""The simulated cluster: it repeats itself, agrees with the local runtime, and its figures have the papers' shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from support.operators import join_operator

from braided.balance.controller import Controller
from braided.cli import main
from braided.local.runtime import LocalRuntime
from braided.routing.start import first_table
from braided.sim import papers
from braided.sim.cluster import Cluster, Copies
from braided.sim.figure import Figure, Panel, draw
from braided.sim.join import SimulatedJoin
from braided.sim.papers import Reproduction
from braided.sim.server_kernel import Costs
from braided.sim.ssp import Setup, simulate
from braided.sim.streamcloud import Setup as StreamSetup
from braided.sim.streamcloud import capacity, mapped
from braided.sim.streamcloud import simulate as simulate_stream
from braided.time.clocks import Window

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
SMALL = Setup(joins=3, servers=12, seconds=200.0)


def test_two_runs_with_one_seed_are_equal_and_another_seed_differs() -> None:
    first, again, other = (simulate(replace(SMALL, seed=seed), "ssp", 4) for seed in (7, 7, 8))
    assert first.comparisons.tobytes() == again.comparisons.tobytes()
    assert first.use.tobytes() == again.use.tobytes()
    assert first.decisions == again.decisions
    assert first.throughput != other.throughput


@pytest.mark.parametrize("way", ["llf", "paper", "static", "ssp", "grid"])
def test_with_time_and_memory_every_pair_is_compared_once(way: str) -> None:
    """Whatever the routing, and while masters change: the pairs of a nested loop, no more and no fewer."""
    ample = replace(SMALL, joins=1, speeds=(1e9, 2e9), memory=(30_000, 40_000), turn=50.0)
    assert simulate(ample, way, 4).throughput == simulate(ample, "llf", 1).throughput
    streams = {}
    from braided.sim import ssp

    real = ssp.arrivals

    def noted(rates: object, every: float, seed: tuple[int, ...]) -> object:
        streams[seed[-1]] = real(rates, every, seed)  # type: ignore[arg-type]
        return streams[seed[-1]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssp, "arrivals", noted)
        done = simulate(ample, way, 4)
    pairs = int((np.abs(streams[0][:, None] - streams[1][None, :]) <= ample.window).sum())
    assert done.throughput == pairs
    assert done.dropped == 0


@pytest.mark.parametrize("scheme", ["ssp", "grid"])
def test_the_simulator_agrees_with_the_local_runtime(scheme: str) -> None:
    """The same streams in both: rows and results per worker, copies and the shape that the controller chose."""
    workers, batches, span = 6, 12, 2 * SECOND
    window = Window(-span, span, (0, 0))
    rows = (300, 1200)
    moments = [
        np.sort(np.random.default_rng([3, side]).integers(0, batches * SECOND, batches * rows[side])) for side in (0, 1)
    ]
    controller = Controller(first_table(scheme, workers, keyed=True, version=1), window, measure="work", slots=workers)
    runtime = LocalRuntime(join_operator((SCHEMA, SCHEMA), window, on="k"), workers, controller=controller)
    cluster = Cluster(np.full(workers, 1e12), np.full(workers, 50_000), 1, Costs(1.0, 1.0, 2.0, False))
    join = SimulatedJoin(0, np.arange(workers), scheme, 2.0, 1, results=0.01, measure="work")
    keys = np.random.default_rng(4)
    work, copies = np.zeros(workers), 0
    for batch in range(batches):
        now = [t[(t >= batch * SECOND) & (t < (batch + 1) * SECOND)] for t in moments]
        tasks = []
        for side, times in enumerate(now):
            columns = [keys.integers(0, 100, len(times)), times, np.arange(len(times))]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
            tasks.append((side, [pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)]))
        for _ in runtime.run_batch(tasks):
            pass
        work += [report["last"]["rows"] + report["last"]["results"] for report in runtime.reports]
        copies += sum(report.copies for report in runtime.routed)
        cluster.run(Copies.merge(join.send((now[0] / SECOND, now[1] / SECOND))), [np.arange(workers)], batch + 1.0)
        join.observe(cluster, batch + 1.0, 1.0)
    simulated = (cluster.state.received + 0.01 * cluster.state.comparisons)[:, 0]
    grid = controller.table.grids[int(controller.table.live[0, 0])]
    assert join.shape == grid.shape
    assert [d.action for d in join.decisions if d.action != "weights"] == [
        d.action for d in runtime.decisions if d.action != "weights"
    ]
    assert simulated.sum() == pytest.approx(work.sum(), rel=0.05)
    assert simulated == pytest.approx(work, rel=0.2)
    assert join.copies == pytest.approx(copies, rel=0.2)


def test_a_full_queue_replaces_the_oldest_row_or_drops_the_newcomer() -> None:
    for drop_new, compared in ((False, 1), (True, 0)):
        cluster = Cluster(np.array([1e9]), np.array([2]), 1, Costs(1.0, 1.0, 100.0, drop_new))
        sides, times = [0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0]
        parts = [
            Copies.of(np.zeros(1), np.array([t]), 0, side, np.zeros(1, np.int64), np.array([True]))
            for side, t in zip(sides, times, strict=True)
        ]
        cluster.run(Copies.merge(parts), [np.array([0])], 9.0)
        assert int(cluster.state.comparisons.sum()) == compared


def test_throughput_rises_with_servers_and_falls_with_too_many() -> None:
    """SSP's Figure 4. The optimum is not where the paper has it: docs/papers/papers_ssp.md has the reason."""
    done = {k: simulate(Setup(seconds=100.0), "paper", k).throughput for k in (1, 10, 25, 100)}
    assert done[1] < done[10] < done[25]
    assert done[100] < 0.9 * done[25]
    assert simulate(Setup(seconds=100.0), "grid", 100).throughput > done[25]


def test_an_adaptive_master_is_never_far_below_a_static_one() -> None:
    setup = Setup(seconds=1000.0, turn=500.0)
    static, adaptive = (simulate(setup, way, 5) for way in ("static", "ssp"))
    assert "master" in {decision["action"] for decision in adaptive.decisions}
    assert adaptive.throughput >= 0.98 * static.throughput


def test_the_command_writes_figures_and_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = Panel("two", "x", "y", [1, 2], {"a": [1, 3]})
    made = Reproduction(Figure("9", "ssp_9", "Two", [panel]), {"seed": 1}, ("none",), ("met",))
    monkeypatch.setattr(
        "braided.cli.papers_command.papers", lambda data: {"ssp": [lambda quick, tell: (tell("going"), [made])[1]]}
    )
    assert main(["papers", "--only", "ssp", "--quick", "--out", str(tmp_path / "a")]) == 0
    printed = capsys.readouterr()
    assert "  met\n" in printed.out
    assert "going" in printed.err
    data = json.loads((tmp_path / "a" / "ssp_9.json").read_text())
    assert (data["verdicts"], data["panels"][0]["series"]) == (["met"], {"a": [1, 3]})
    assert (tmp_path / "a" / "ssp_9.svg").read_text().startswith("<svg")
    assert {"ssp", "streamcloud", "gdj"} <= set(papers.papers())
    (tmp_path / "file").touch()
    assert main(["papers", "--out", str(tmp_path / "file")]) == 1
    assert "give a writable folder" in capsys.readouterr().err


def test_weights_by_cpu_time_settle_where_pairs_cost_more_than_copies() -> None:
    """Servers of 1,000 to 5,000 units, loaded and not drowned; corrections that go too far lose 5% and never end."""
    setup = Setup(seconds=300.0, comparison=7.0)
    static, adaptive = (simulate(setup, way, 5) for way in ("static", "ssp"))
    assert adaptive.throughput > 1.02 * static.throughput
    assert sum(decision["action"] == "weights" for decision in adaptive.decisions) < 30


SVG = "{http://www.w3.org/2000/svg}"
PAGES = Path(__file__).parents[2] / "docs" / "papers"
LETTER = 7.0
"""About how wide a letter of a label is."""


@pytest.mark.parametrize("path", sorted(PAGES.glob("*.svg")), ids=lambda path: path.stem)
def test_the_labels_of_the_pages_figures_are_inside_and_apart(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    width = float(root.attrib["width"])
    for panel in root.iter(f"{SVG}g"):
        left = float(panel.attrib["transform"].removeprefix("translate(").split()[0])
        spans: dict[str, list[tuple[float, float]]] = {}
        for text in panel.iter(f"{SVG}text"):
            long, at = LETTER * len(text.text or ""), left + float(text.attrib["x"])
            start = at - {"middle": long / 2, "end": long}.get(text.attrib.get("text-anchor", ""), 0)
            assert start >= left - 1, (path.stem, text.text)
            assert start + long <= width + LETTER, (path.stem, text.text)
            spans.setdefault(text.attrib["y"], []).append((start, start + long))
        for line in spans.values():
            for (_, end), (start, _) in pairwise(sorted(line)):
                assert start >= end - LETTER / 2, path.stem


def test_every_bar_has_its_word() -> None:
    panel = Panel("bars", "policy", "recall", ["a long name", "another long name", "third"], {"x": [1.0, 2.0, 3.0]})
    drawn = draw(Figure("1", "one", "bars", [panel]))
    assert all(f">{word}</text>" in drawn for word in panel.x)


def test_queues_of_an_overloaded_processor_grow_with_the_load() -> None:
    """Of the last batch only the rows that came in time wait."""
    setup = StreamSetup()
    most = capacity(mapped, 1, setup)
    queues = [simulate_stream(mapped, load, 1, setup).queue for load in np.geomspace(0.5 * most, 80 * most, 30)]
    assert queues == sorted(queues)
