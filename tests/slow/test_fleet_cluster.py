"""Peers whose executors are on a standalone cluster: cores and loads are those of the executors, jobs move, and peers may die."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from support.fleet_processes import JOIN, SparkPeers, Streams, rows_of, until

from braided.fleet.requests import ComponentRow
from braided.storage.topic import Topic

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
from cluster import LocalCluster


def test_a_job_runs_on_a_cluster_moves_and_is_taken_over(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 2, cores=2, memory="1g") as cluster:
        more = (
            "--master",
            cluster.url,
            "--cores",
            "2",
            "--conf",
            "spark.executor.memory=700m",
            "--conf",
            "spark.executor.cores=2",
        )
        peers = SparkPeers(tmp_path, more=more)
        try:
            for name in ("north", "south"):
                peers.start(name)
            _check(peers, tmp_path)
        finally:
            peers.close()


def _check(peers: SparkPeers, root: Path) -> None:
    streams = Streams(root, 400)
    streams.start()
    (root / "hits.toml").write_text(JOIN.format(root))

    def row(but: str = "") -> ComponentRow:
        with peers.fleet(but=but) as fleet:
            return fleet.status().components[0]

    def soon(holds: Callable[[], bool], what: str) -> None:
        until(lambda: (time.sleep(0.5), holds())[1], 300, what)

    with peers.fleet() as fleet:
        fleet.submit(root / "hits.toml")
        soon(lambda: {peer.cores for peer in fleet.status().peers} == {2.0}, "the executors' cores")
    until(lambda: rows_of(root / "hits") > 0, 300, "results")
    soon(lambda: (part := row().measured) is not None and part.load > 0 and (part.rate or 0) > 0, "a load")
    source = row().peer
    target = {"north": "south", "south": "north"}[source]
    with peers.fleet() as fleet:
        assert fleet.move("hits", target)
        soon(lambda: any(event.what.startswith("moved to") for event in fleet.events(component="hits")), "its event")
    before = rows_of(root / "hits")
    until(lambda: rows_of(root / "hits") > before, 300, "results after the move")
    with peers.fleet() as fleet:

        def loads() -> dict[str, float]:
            return {peer.contact.name: peer.load for peer in fleet.status().peers}

        soon(lambda: loads()[target] > loads()[source], "the load at the target, where the tasks run now")
    holder = row().peer
    assert holder == target
    peers.kill(holder)
    soon(lambda: row(holder).state == "orphaned", "a job that nobody runs")
    soon(lambda: row(holder).state == "running" and row(holder).peer != holder, "another peer")
    streams.end()
    wanted = duckdb.sql(
        f"""SELECT c.phone, c.id, a.id FROM '{root}/calls/*.parquet' c JOIN '{root}/alerts/*.parquet' a
            ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 10 SECOND AND c.ts + INTERVAL 10 SECOND"""
    ).fetchall()
    until(lambda: rows_of(root / "hits") >= len(wanted), 300, "all pairs")
    hits = duckdb.sql(f"SELECT phone, id, alert FROM read_parquet({Topic(str(root / 'hits')).files()!r})").fetchall()
    assert sorted(hits) == sorted(wanted)
    assert len(wanted) > 1000
