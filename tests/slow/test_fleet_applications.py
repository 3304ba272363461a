"""An application on real Spark: composed, launched and shared by the command line; peers that are told to stop leave."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.fleet_processes import JOIN, SparkPeers, Streams, rows_of, two_peers, until

from braided.cli import main
from braided.fleet.leases import Leases
from braided.storage.files import LocalFiles
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")
pytestmark = pytest.mark.spark

EVEN = """
name = "even"
operator = "filter.phone"
checkpoint = "{0}/checkpoints/even"
trigger = "500 milliseconds"
[sources.hits]
format = "topic"
path = "{0}/hits"
[[steps]]
name = "even"
sql = "SELECT phone, id, alert FROM hits WHERE phone % 2 = 0"
[sink]
format = "topic"
path = "{0}/even"
"""
APPLICATION = """
application = "{0}"
latency = "{1}"
[[jobs]]
file = "hits.toml"
seconds = 0.4
[[jobs]]
file = "even.toml"
seconds = 0.2
"""


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[SparkPeers]:
    with two_peers(SparkPeers(tmp_path)) as made:
        yield made


class _Typed:
    """What a user types, and reads."""

    def __init__(self, peers: SparkPeers, capsys: pytest.CaptureFixture[str]) -> None:
        self._peers, self._capsys = peers, capsys

    def __call__(self, *words: str, fails: bool = False) -> Any:
        running = next(name for name, process in self._peers.processes.items() if process.poll() is None)
        where = ["--peer", self._peers.addresses[running], "--token-file", str(self._peers.token)]
        self._capsys.readouterr()
        code = main(["fleet", *words, *where, *([] if fails else ["--json"])])
        said = self._capsys.readouterr()
        assert bool(code) == fails, said
        return said.err if fails else json.loads(said.out)


def _leave(peers: SparkPeers, name: str) -> None:
    process = peers.processes[name]
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0


def test_an_application_is_shared_and_goes_on_when_its_peers_are_told_to_stop(
    peers: SparkPeers, capsys: pytest.CaptureFixture[str]
) -> None:
    root, typed = peers.root, _Typed(peers, capsys)
    streams = Streams(root, 400)
    for name, text in (("hits", JOIN), ("even", EVEN)):
        (root / f"{name}.toml").write_text(text.format(root))
    # How long a step takes is learned from peers that have just started, and busy ones take long.
    for name, latency in (("first", "10 minutes"), ("second", "10 minutes"), ("hasty", "100 milliseconds")):
        (root / f"{name}.toml").write_text(APPLICATION.format(name, latency))

    assert "the fastest composition takes 0.6" in typed("submit", str(root / "hasty.toml"), fails=True)
    dry = typed("submit", str(root / "first.toml"), "--dry-run")
    assert [row["job"] for row in dry["rows"]] == ["first.hits", "first.even"]
    assert typed("status")["components"] == []
    typed("submit", str(root / "first.toml"))
    streams.start()
    topics = root / "storage" / "topics"
    until(lambda: rows_of(topics / "first.even") > 0, 300, "results of the second job")
    shared = typed("submit", str(root / "second.toml"))["rows"]
    assert [row["shared"] for row in shared] == ["first.hits", "first.even"]

    jobs = ("first.hits", "first.even")
    leases = Leases(LocalFiles(root / "storage"))

    def holders() -> list[str]:
        return [lease.holder.name for lease in map(leases.newest, jobs) if lease is not None]

    epochs = {job: lease.epoch for job in jobs if (lease := leases.newest(job)) is not None}
    leaving = holders()[0]
    moving = [job for job, holder in zip(jobs, holders(), strict=True) if holder == leaving]
    _leave(peers, leaving)
    assert leaving not in holders()
    for job in moving:  # moved, not revived after an expiry
        lease = leases.newest(job)
        assert lease is not None
        assert lease.epoch == epochs[job] + 1
    streams.end()
    wanted = duckdb.sql(
        f"""SELECT c.phone, c.id, a.id FROM '{root}/calls/*.parquet' c JOIN '{root}/alerts/*.parquet' a
            ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 10 SECOND AND c.ts + INTERVAL 10 SECOND
            WHERE c.phone % 2 = 0"""
    ).fetchall()
    until(lambda: rows_of(topics / "first.even") >= len(wanted), 300, "all results")
    files = Topic(str(topics / "first.even")).files()
    assert sorted(duckdb.sql(f"SELECT phone, id, alert FROM read_parquet({files!r})").fetchall()) == sorted(wanted)
    assert len(wanted) > 100

    (last,) = set(holders())
    _leave(peers, last)  # nobody takes them: they end between two batches, and their leases are free
    for job in jobs:
        lease = leases.newest(job)
        assert lease is not None
        assert leases.beat_of(lease).released is not None
