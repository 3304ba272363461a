"""Three peers with five jobs and a Kafka broker, as processes, under faults and orders by seed: the rows are DuckDB's.

BRAIDED_FAULTS, BRAIDED_SEED: how many faults, and which. A seed repeats their kinds, their order and how long they last;
what runs at a peer just then also depends on the machine.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from support.fleet_processes import COUNTS, JOIN, SparkPeers, Streams, rows_of, until
from support.kafka_topics import CONNECTOR, Broker, Numbers, Topics, fetch

from braided.errors import PeerError
from braided.fleet.client import Fleet
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")
pytestmark = pytest.mark.spark

NAMES = ("north", "south", "west")
FAULTS = int(os.environ.get("BRAIDED_FAULTS", "20"))
SEED = int(os.environ.get("BRAIDED_SEED", "1"))
SHORT, LONG = 3.0, 18.0
"""Seconds of a fault: within a lease of 12 s, or longer, so that others take the jobs."""
PATIENCE = 240.0
"""Seconds after a fault within which every job has written again."""
FILTER = """
name = "{1}"
operator = "filter.{1}"
checkpoint = "{0}/checkpoints/{1}"
trigger = "2 seconds"
[sources.rows]
{2}
[[steps]]
name = "{1}"
sql = "{3}"
[sink]
format = "topic"
path = "{0}/{1}"
[spark]
"spark.sql.session.timeZone" = "UTC"
"""
KAFKA = """format = "kafka"
[sources.rows.options]
subscribe = "numbers"
startingOffsets = "earliest"
"kafka.bootstrap.servers" = "${BROKER}"
"""


def jobs(root: Path) -> dict[str, str]:
    """The five jobs: a join, Spark's windows, what reads the join's results, a filter of files, and one of Kafka."""
    slow = '"500 milliseconds"', '"2 seconds"'
    return {
        "hits": JOIN.format(root).replace(*slow),
        "counts": COUNTS.format(root).replace(*slow),
        "even": FILTER.format(
            root, "even", f'format = "topic"\npath = "{root}/hits"', "SELECT id, alert FROM rows WHERE phone % 2 = 0"
        ),
        "few": FILTER.format(root, "few", f'path = "{root}/calls"', "SELECT phone, id FROM rows WHERE phone < 20"),
        "numbers": FILTER.format(
            root, "numbers", KAFKA, "SELECT CAST(CAST(value AS STRING) AS BIGINT) AS number FROM rows"
        ),
    }


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as running:
        monkeypatch.setenv("BROKER", running.servers)
        yield running


@pytest.fixture
def peers(broker: Broker, tmp_path: Path) -> Iterator[SparkPeers]:
    jars = ",".join(map(str, fetch(CONNECTOR, tmp_path / "connector")))
    made = SparkPeers(tmp_path, command=("-m", "braided", "peer", "--conf", f"spark.jars={jars}"))
    try:
        for name in NAMES:
            made.start(name)
        yield made
    finally:
        made.close()


class Faults:
    """Done one after the other: each begins, lasts, and ends."""

    def __init__(self, peers: SparkPeers, seed: int) -> None:
        self.peers, self.random = peers, random.Random(seed)
        self.told: list[str] = []
        self._kinds: tuple[Callable[[str, float], None], ...] = (
            self.kill, self.kill_jvm, self.kill_driver, self.stop, self.stop_jvm, self.stop_driver, self.end,
            self.move, self.drain, self.restart,
        )  # fmt: skip

    def do(self, faults: int, check: Callable[[str], None]) -> None:
        """Do so many faults, each kind as often as the others; `check` after each."""
        order = [self._kinds[number % len(self._kinds)] for number in range(faults)]
        self.random.shuffle(order)
        for number, kind in enumerate(order, 1):
            name, seconds = self._busy(), self.random.choice((SHORT, LONG)) * self.random.uniform(0.8, 1.2)
            what = f"{number}: {kind.__name__} at {name} for {seconds:.0f} s"
            self.told.append(what)
            print(f"{time.strftime('%X')} {what}", flush=True)
            kind(name, seconds)
            check(what)

    def _busy(self) -> str:
        """Return a peer that runs something."""
        with self.peers.fleet() as fleet:
            holders = sorted({row.peer for row in fleet.status().components} & set(NAMES))
        return self.random.choice(holders or NAMES)

    def kill(self, name: str, seconds: float, which: str = "both") -> None:
        self.peers.kill(name, which)
        time.sleep(max(seconds, 6.0))  # its name is free only then
        self.peers.start(name)

    def kill_jvm(self, name: str, seconds: float) -> None:
        self.kill(name, seconds, "jvm")

    def kill_driver(self, name: str, seconds: float) -> None:
        self.kill(name, seconds, "driver")

    def stop(self, name: str, seconds: float, which: str = "both") -> None:
        stopped = self.peers.targets(name, which)
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for process in stopped:
            process.send_signal(signal.SIGCONT)

    def stop_jvm(self, name: str, seconds: float) -> None:
        self.stop(name, seconds, "jvm")

    def stop_driver(self, name: str, seconds: float) -> None:
        self.stop(name, seconds, "driver")

    def end(self, name: str, seconds: float) -> None:
        """Let a peer end in order: it gives its jobs to others."""
        self.peers.processes[name].send_signal(signal.SIGTERM)
        assert self.peers.processes[name].wait(PATIENCE) == 0
        time.sleep(seconds)
        self.peers.start(name)

    def move(self, name: str, seconds: float) -> None:
        for job in ("hits", "numbers"):
            self._order(lambda fleet, job=job: fleet.move(job, self.random.choice(NAMES)))  # type: ignore[misc]

    def drain(self, name: str, seconds: float) -> None:
        self._order(lambda fleet: fleet.drain(name))
        time.sleep(seconds)
        self._order(lambda fleet: fleet.undrain(name))

    def restart(self, name: str, seconds: float) -> None:
        for job in ("counts", "even"):
            self._order(lambda fleet, job=job: fleet.restart(job))  # type: ignore[misc]

    def _order(self, order: Callable[[Fleet], object]) -> None:
        """Order something. A refusal is no fault: the job runs on, or is taken over."""
        with self.peers.fleet() as fleet:
            try:
                order(fleet)
            except PeerError as error:
                self.told.append(f"   refused: {error}")


def test_faults_of_processes_lose_and_double_nothing(broker: Broker, peers: SparkPeers, tmp_path: Path) -> None:
    topics = Topics(broker.servers)
    topics.make("numbers", 3)
    streams, numbers = Streams(tmp_path, 200), Numbers(topics)
    streams.start()
    numbers.start()
    texts = jobs(tmp_path)
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
        with peers.fleet() as fleet:
            fleet.submit(tmp_path / f"{name}.toml")
    faults = Faults(peers, SEED)

    def all_go_on(what: str) -> None:
        before = {name: rows_of(tmp_path / name) for name in texts}
        late = lambda: [name for name in texts if rows_of(tmp_path / name) <= before[name]]  # noqa: E731
        began = time.monotonic()
        while late():
            assert time.monotonic() < began + PATIENCE, f"{late()} do not go on after {what}\n{status()}"
            time.sleep(0.5)

    def status() -> str:
        with peers.fleet() as fleet:
            found = fleet.status()
            events = [f"{event.peer} {event.component} {event.what}" for event in fleet.events()[-30:]]
        return "\n".join([*map(str, found.peers), *map(str, found.components), *events])

    try:
        all_go_on("the start")
        faults.do(FAULTS, all_go_on)
        streams.end()
        numbers.end()
        _check(tmp_path, numbers.count)
    except BaseException as error:
        told = "\n".join(faults.told)
        raise AssertionError(f"seed {SEED}: {type(error).__name__}: {error}\n{told}") from error
    with peers.fleet() as fleet:
        epochs = {row.name: row.epoch for row in fleet.status().components}
    print(f"seed {SEED}: {FAULTS} faults, epochs {epochs}")
    assert sum(epochs.values()) >= FAULTS / 2


def _check(root: Path, numbers: int) -> None:
    """Wait for all results, and compare them with DuckDB's."""
    join = f"""'{root}/calls/*.parquet' c JOIN '{root}/alerts/*.parquet' a
        ON c.phone = a.phone AND a.ts BETWEEN c.ts - INTERVAL 10 SECOND AND c.ts + INTERVAL 10 SECOND"""
    wanted = {
        "hits": duckdb.sql(f"SELECT c.phone, c.id, a.id FROM {join}").fetchall(),
        "even": duckdb.sql(f"SELECT c.id, a.id FROM {join} WHERE c.phone % 2 = 0").fetchall(),
        "few": duckdb.sql(f"SELECT phone, id FROM '{root}/calls/*.parquet' WHERE phone < 20").fetchall(),
        "numbers": duckdb.sql(f"SELECT range FROM range({numbers})").fetchall(),
        # The last window is closed by nothing.
        "counts": duckdb.sql(
            f"""SELECT epoch_us(time_bucket(INTERVAL 5 SECOND, ts)) AS start, count(*) FROM '{root}/calls/*.parquet'
                GROUP BY start ORDER BY start"""
        ).fetchall()[:-1],
    }
    for name, rows in wanted.items():
        until(lambda name=name, rows=rows: rows_of(root / name) >= len(rows), PATIENCE, f"all rows of {name}")  # type: ignore[misc]
    for name, rows in wanted.items():
        columns = "epoch_us(start), count" if name == "counts" else "*"
        found = duckdb.sql(f"SELECT {columns} FROM read_parquet({Topic(str(root / name)).files()!r})").fetchall()
        assert sorted(found) == sorted(rows), f"{name}: {len(found)} rows, {len(rows)} in DuckDB"
        assert len(rows) > 20, f"{name}: only {len(rows)} rows"
        print(f"{name}: {len(rows)} rows are DuckDB's")
