"""What a user asks of a fleet: submit, status, move, drain and events, over TLS to peers with model components."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.fleet_model import ModelHost, covered

from braided.errors import JobError, PeerError
from braided.fleet.agent_machine import RealMachine
from braided.fleet.component_host import Job
from braided.fleet.definition import job_of
from braided.fleet.fleet_peer import Peer, Settings
from braided.fleet.messages import Contact
from braided.fleet.requests import PeerRow
from braided.storage.topic import Topic

pytest.importorskip("cryptography", reason="braided[peers] is not installed")

import braided
from braided.cli import main
from braided.cli.history_commands import FleetPlace
from braided.fleet.hosting.process import leave
from braided.fleet.identity import Identity, Token, new_token
from braided.fleet.transport import Transport
from braided.ui.history_events import check_event

SETTINGS = Settings(period=0.3, ttl=4.0, span=3.0, rehearsal=10.0, start=5.0)
JOB = """
name = "one"
operator = "sum.numbers"
checkpoint = "{0}/c"
[sources.numbers]
path = "{0}/numbers"
[sink]
format = "topic"
path = "{0}/out"
"""


class Peers:
    """Two peers with model components, on a loop in a thread of its own."""

    def __init__(self, root: Path) -> None:
        self.token = root / "token"
        new_token().write(self.token)
        self.storage = str(root / "storage")
        self.loop = asyncio.new_event_loop()
        self.peers: dict[str, Peer] = {}
        self.hosts: dict[str, ModelHost] = {}
        self._closing: dict[str, list[Callable[[], Coroutine[Any, Any, None]]]] = {}
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        for name in ("north", "south"):
            self.start(name)

    def start(self, name: str) -> None:
        asyncio.run_coroutine_threadsafe(self._start(name), self.loop).result(30)

    def stop(self, name: str) -> None:
        """End a peer as SIGTERM does, after it has given its jobs away or stopped them."""
        asyncio.run_coroutine_threadsafe(leave(self.peers[name]), self.loop).result(30)
        self.kill(name)
        del self.peers[name]

    def kill(self, name: str) -> None:
        """End a peer; its name is free then."""
        for call in self._closing.pop(name):
            asyncio.run_coroutine_threadsafe(call(), self.loop).result(30)

    @property
    def address(self) -> str:
        return self.peers["north"].agent.contact.address

    async def _start(self, name: str) -> None:
        transport = Transport(Identity(name, Token.read(self.token)))
        machine = RealMachine(transport.send)
        contact = await transport.start()
        machine.contact = contact  # type: ignore[attr-defined]
        host = ModelHost(machine, lambda: int((time.time() % 1000) * 50))  # type: ignore[arg-type]
        host.load = lambda: 0.1 if name == "north" else 0.3
        peer = Peer(contact, machine, host, self.storage, SETTINGS)
        transport.receive = peer.agent.receive
        try:
            await peer.start([other.agent.contact for other in self.peers.values()])
        except PeerError:
            await machine.close()
            await transport.close()
            raise
        self.peers[name], self.hosts[name] = peer, host
        self._closing[name] = [machine.close, transport.close]

    def close(self) -> None:
        for name in list(self._closing):
            self.kill(name)
        self.loop.call_soon_threadsafe(self.loop.stop)


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    made = Peers(tmp_path_factory.mktemp("fleet"))
    yield made
    made.close()


def _write(folder: Path, text: str = JOB) -> Path:
    file = folder / "one.toml"
    file.write_text(text.format(folder))
    return file


def _operate(fleet: Any, address: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Pause, resume and restart the job `one` at north."""

    def row() -> Any:
        return next(row for row in fleet.status().components if row.name == "one")

    capsys.readouterr()
    begun = time.time()
    assert main(["fleet", "pause", "one", *address]) == 0
    _until(lambda: row().state == "paused" and row().is_released, "a job that is paused")
    assert begun <= row().since <= time.time()
    assert main(["fleet", "pause", "one", *address]) == 0
    assert main(["fleet", "retry", "one", *address]) == 1
    assert "component='one': is paused; run braided fleet resume one first" in capsys.readouterr().err
    assert main(["fleet", "resume", "one", *address]) == 0
    assert "one: runs at " in capsys.readouterr().out
    _until(lambda: row().state == "running", "a job that runs again")
    epoch, peer = row().epoch, row().peer
    assert main(["fleet", "restart", "one", *address]) == 0
    assert (row().epoch, row().peer) == (epoch + 1, peer)
    assert main(["fleet", "events", "--job", "one", "--since", "1 hour", "--json", *address]) == 0
    events = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {event["component"] for event in events} == {"one"}
    assert all(earlier["at"] <= later["at"] <= time.time() for earlier, later in pairwise(events))
    assert "paused" in [event["what"] for event in events]
    told = fleet.follow(since=begun, component="one", every=0.01)
    assert next(told).at >= begun
    assert main(["fleet", "logs", "one", *address]) == 0
    assert "has no log lines about it" in capsys.readouterr().out
    if peer == "south":
        fleet.move("one", "north")


def _until(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.02)


@pytest.mark.long
def test_a_job_is_submitted_moved_and_drained(peers: Peers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = _write(tmp_path)
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        would = fleet.submit(job, dry_run=True)
        assert (would.component, would.peer) == ("one", "north")
        assert would.reason == "peer north is the least loaded, 0.10 of its 1 cores; south 0.30"
        assert fleet.status().components == ()
        assert fleet.submit(job).peer == "north"
        status = fleet.status()
        assert [row.contact.name for row in status.peers] == ["north", "south"]
        (row,) = status.components
        assert (row.name, row.peer, row.epoch, row.output) == ("one", "north", 0, f"{tmp_path}/out")
        assert row.measured is not None
        _until(lambda: covered(Topic(f"{tmp_path}/out")) > 0, "results")
        fleet.move("one", "south")
        assert fleet.status().components[0].peer == "south"
        assert "moved to south: ordered by a user" in [event.what for event in fleet.events() if event.peer == "north"]
        assert fleet.move("one", "south") is False
        with pytest.raises(PeerError, match="peer='west': does not answer; there are north, south"):
            fleet.move("one", "west")
        with pytest.raises(PeerError, match="component='two': unknown component of this fleet"):
            fleet.move("two", "south")
        with pytest.raises(PeerError, match="component='one': the fleet has a component of this name; choose another"):
            fleet.submit(job)
        two = job.read_text().replace('"one"', '"two"')
        for text, message in (
            (two, "belongs to component 'one'; give a new one"),
            (two.replace('/c"', '/c2"'), "component 'one' writes there; give another"),
            (
                two.replace('/c"', '/c2"').replace('/out"', '/out2"').replace("sum.", "max."),
                "'max.numbers': no peer offers it",
            ),
        ):
            (tmp_path / "two.toml").write_text(text)
            with pytest.raises(PeerError, match=message):
                fleet.submit(tmp_path / "two.toml")
        address = ["--peer", peers.address, "--token-file", str(peers.token)]
        assert main(["fleet", "status", *address]) == 0
        assert re.search(r"one +running +\d{4}-\d\d-\d\d \S+ +south", capsys.readouterr().out)
        assert main(["fleet", "events", "--json", *address]) == 0
        assert any(event["component"] == "one" for event in json.loads(capsys.readouterr().out))
        assert main(["fleet", "move", "one", "nowhere", *address]) == 1
        assert "braided fleet: peer='nowhere': does not answer" in capsys.readouterr().err
        assert main(["fleet", "move", "one", "nowhere", "--json", *address]) == 1
        refused = json.loads(capsys.readouterr().out)
        assert (refused["command"], refused["exit"]) == ("fleet", 1)
        assert refused["error"].startswith("peer='nowhere'")
        assert fleet.drain("south") == []
        assert fleet.status().components[0].peer == "north"
        with pytest.raises(PeerError, match="peer south is about to leave"):
            fleet.move("one", "south")
        assert [row.drains for row in fleet.status().peers] == [False, True]
        assert main(["fleet", "undrain", "south", *address]) == 0
        assert not any(row.drains for row in fleet.status().peers)
        assert fleet.move("one", "south") is True
        fleet.move("one", "north")
        _operate(fleet, address, capsys)
        assert main(["fleet", "remove", "one", *address]) == 0
        assert fleet.status().components == ()
        _until(lambda: "one" not in peers.peers["north"].holding.names, "the end of what was removed")
        with pytest.raises(PeerError, match="component='one': a component of this name was removed; choose another"):
            fleet.submit(job)
        with pytest.raises(PeerError, match="component='two': unknown component of this fleet"):
            fleet.remove("two")
    # Users come and go: peers neither take them for peers nor keep connections to them.
    for peer in peers.peers.values():
        met = peer.discovery.buckets.closest(peer.agent.contact.number, 100)
        assert {contact.name for contact in met} <= {"north", "south"}


@pytest.mark.long
def test_a_peer_that_cannot_is_not_called_the_one_that_runs_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = Peers(tmp_path)
    try:
        with braided.Fleet(peers.address, token_file=peers.token) as fleet:
            job = _write(tmp_path)
            with monkeypatch.context() as patched:
                patched.setattr(peers.hosts["north"], "offers", tuple)  # as of a peer whose JVM hangs
                would = fleet.submit(job, dry_run=True)
                assert (would.peer, would.reason) == ("south", "peer south is the least loaded, 0.30 of its 1 cores")
            peers.hosts["north"].refuses = True
            runs = fleet.submit(job)
            assert runs.peer == "south"
            assert runs.reason.startswith("peer south is the least loaded, 0.30 of its 1 cores; peer north: ")
    finally:
        peers.close()


@pytest.mark.long
def test_a_job_that_no_peer_can_run_is_not_kept(peers: Peers, tmp_path: Path) -> None:
    text = JOB.replace('"one"', '"bad"')
    for host in peers.hosts.values():
        host.refuses = True
    try:
        with braided.Fleet(peers.address, token_file=peers.token) as fleet:
            with pytest.raises(PeerError, match=r"component='bad': peers? north.*: no room"):
                fleet.submit(_write(tmp_path, text))
            assert "bad" not in [row.name for row in fleet.status().components]
    finally:
        for host in peers.hosts.values():
            host.refuses = False


@pytest.mark.long
def test_a_job_that_has_failed_says_why_and_is_retried_by_hand_or_submitted_again(
    peers: Peers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("braided.fleet.leases.FAILURES", 2)
    monkeypatch.setattr("braided.fleet.lease_holder.FAILURES", 2)
    job = _write(tmp_path, JOB.replace('"one"', '"failing"'))
    address = ["--peer", peers.address, "--token-file", str(peers.token)]
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:

        def row() -> Any:
            return next(row for row in fleet.status().components if row.name == "failing")

        def fail() -> None:
            for host in peers.hosts.values():
                host.fails = {"failing": "ZeroDivisionError: the seventh call (fraud.py, line 6, in score)"}
            _until(lambda: row().is_failed, "a job that has failed")
            for host in peers.hosts.values():
                host.fails = {}

        fleet.submit(job)
        fail()
        assert main(["fleet", "status", *address]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"failing +failed +\d{4}-", shown)
        assert "failing: failed 2 times in a row: ZeroDivisionError: the seventh call (fraud.py, line 6" in shown
        assert "failing: fix the cause, then run: braided fleet retry failing" in shown
        assert main(["fleet", "retry", "failing", *address]) == 0
        assert f"failing: runs at {row().peer} again" in capsys.readouterr().out
        assert not row().is_failed
        assert main(["fleet", "retry", "failing", *address]) == 1
        assert "component='failing': has not failed; it runs at" in capsys.readouterr().err
        assert main(["fleet", "retry", "nothing", *address]) == 1
        assert "component='nothing': unknown component of this fleet" in capsys.readouterr().err
        fail()
        job.write_text(job.read_text() + "[needs]\ncores = 1\n")
        with pytest.raises(PeerError, match="the fleet has a component of this name; choose another"):
            fleet.submit(job)
        assert fleet.submit(_write(tmp_path, JOB.replace('"one"', '"failing"'))).reason == "tried again"
        assert not row().is_failed
        fleet.remove("failing")


@pytest.mark.long
def test_a_job_whose_sink_cannot_be_made_is_refused_and_can_be_submitted_again(
    peers: Peers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _write(tmp_path, JOB.replace('"one"', '"sunk"'))
    (tmp_path / "out").write_text("not a directory")
    address = ["--peer", peers.address, "--token-file", str(peers.token)]
    assert main(["fleet", "submit", str(job), *address]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "braided fleet: component='sunk': peer" in shown.err
    assert "could not start" in shown.err
    assert f"{tmp_path}/out" in shown.err
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        assert "sunk" not in [row.name for row in fleet.status().components]
        (tmp_path / "out").unlink()
        assert main(["fleet", "submit", str(job), *address]) == 0
        assert "sunk: runs at " in capsys.readouterr().out
        (row,) = [row for row in fleet.status().components if row.name == "sunk"]
        assert (row.failures, row.is_released) == (0, False)
        _until(lambda: covered(Topic(f"{tmp_path}/out")) > 0, "results")
        fleet.remove("sunk")


@pytest.mark.long
def test_an_application_of_which_a_job_cannot_start_says_so(
    peers: Peers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = JOB.format(tmp_path).replace('"one"', '"first"')
    (tmp_path / "first.toml").write_text(first)
    app = tmp_path / "app.toml"
    app.write_text('application = "half"\nlatency = "3 seconds"\n[[jobs]]\nfile = "first.toml"\n')
    topics = Path(peers.storage) / "topics"
    topics.mkdir(exist_ok=True)
    (topics / "half.first").write_text("not a directory")
    address = ["--peer", peers.address, "--token-file", str(peers.token)]
    assert main(["fleet", "submit", str(app), *address]) == 1
    shown = capsys.readouterr()
    assert "braided fleet: half.first: peer " in shown.err
    assert "could not start" in shown.err
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        fleet.remove("half.first")


def test_a_fleet_goes_on_with_another_token_and_the_old_one_opens_nothing(tmp_path: Path) -> None:
    peers = Peers(tmp_path)
    old = tmp_path / "old"
    shutil.copy(peers.token, old)
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        fleet.submit(_write(tmp_path))
        _until(lambda: covered(Topic(f"{tmp_path}/out")) > 0, "results")
    for name in ("north", "south"):
        peers.stop(name)
    peers.token.unlink()
    new_token().write(peers.token)
    done = covered(Topic(f"{tmp_path}/out"))
    try:
        for name in ("north", "south"):
            peers.start(name)
        _until(lambda: covered(Topic(f"{tmp_path}/out")) > done, "results with the new token")
        with pytest.raises(PeerError, match="the token is wrong"):
            braided.Fleet(peers.address, token_file=old)
    finally:
        peers.close()


def test_a_page_shows_who_hosts_what(peers: Peers, tmp_path: Path) -> None:
    text = JOB.replace('"one"', '"shown"').replace("/c", "/c3").replace("/out", "/out3")
    events: list[dict[str, Any]] = []
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        fleet.submit(_write(tmp_path, text))
        with FleetPlace(peers.address, peers.token).follow(events.append):
            _until(lambda: len(events) > 0, "the fleet's answer")
        fleet.remove("shown")
    shown = check_event(events[0], "fleet")
    assert [peer["name"] for peer in shown["peers"]] == ["north", "south"]
    assert [peer["load"] for peer in shown["peers"]] == [0.1, 0.3]
    [job] = [job for job in shown["components"] if job["name"] == "shown"]
    assert (job["peer"], job["operator"], job["output"]) == ("north", "sum.numbers", f"{tmp_path}/out3")
    assert any(one["component"] == "shown" for one in shown["happened"])
    assert all(abs(one["time"] / 1000 - time.time()) < 600 for one in shown["happened"])


def test_when_the_peer_that_is_asked_is_gone_another_one_answers(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braided.fleet.client._SOON", 0.3)
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        known = [row.contact.name for row in fleet.status().peers]
        fleet._peer = Contact("ab" * 20, "127.0.0.1:1", "gone")
        assert [row.contact.name for row in fleet.status().peers] == known
        fleet._peer = Contact("ab" * 20, "127.0.0.1:1", "gone")
        fleet._addresses = ["127.0.0.1:1"]
        with pytest.raises(PeerError, match=r"no peer answers any more; tried 127.0.0.1:1"):
            fleet.status()


def test_strangers_are_refused(peers: Peers, tmp_path: Path) -> None:
    with pytest.raises(
        PeerError, match=r"address='127.*': the token is wrong; the process that listens there has a certific"
    ):
        braided.Fleet(peers.address, token="x" * 40)
    with pytest.raises(PeerError, match=r"address='127.0.0.1:1': no peer of this fleet answers there"):
        braided.Fleet("127.0.0.1:1", token="x" * 40)
    with pytest.raises(PeerError, match="token, token_file: give one of them"):
        braided.Fleet(peers.address)
    peers.token.chmod(0o644)
    try:
        with pytest.raises(PeerError, match="other users can read it; run chmod 600"):
            braided.Fleet(peers.address, token_file=peers.token)
    finally:
        peers.token.chmod(0o600)


@pytest.mark.long
def test_a_second_peer_of_one_name_is_refused_with_the_address_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peers = Peers(tmp_path)
    try:
        first = peers.peers["north"]
        with pytest.raises(PeerError, match=f"name='north': the peer at {first.agent.contact.address} has this name"):
            peers.start("north")
        # The command notices it before it starts Spark, and a token that does not fit too.
        new_token().write(tmp_path / "other")
        monkeypatch.setattr("braided.fleet.hosting.spark_session.peer_session", None)
        monkeypatch.setattr("braided.cli.peer_command.find_java_problem", lambda: None)
        line = ["peer", "--name", "north", "--listen", "127.0.0.1:0", "--join", peers.address, "--token-file"]
        assert main([*line, str(peers.token)]) == 2
        assert f"braided peer: name='north': the peer at {first.agent.contact.address}" in capsys.readouterr().err
        assert main([*line, str(tmp_path / "other")]) == 2
        assert f"braided peer: address='{peers.address}': the token is wrong" in capsys.readouterr().err
        with braided.Fleet(peers.address, token_file=peers.token) as fleet:
            assert [row.contact.name for row in fleet.status().peers] == ["north", "south"]
            # Names that became equal all the same, as when a peer was stopped while another one took its name.
            contacts = [first.agent.contact, replace(first.agent.contact, node="ab" * 20, address="127.0.0.1:9")]

            async def both() -> list[PeerRow]:
                return [PeerRow(contact, 0.1, 1.0) for contact in contacts]

            fleet._peers = both  # type: ignore[method-assign]
            with pytest.raises(PeerError, match=r"peer='north': the peers at 127.* have this name; stop all but one"):
                fleet.drain("north")
        assert not first.holding.is_closing
        peers.kill("north")
        peers.start("north")
        assert peers.peers["north"].agent.contact != first.agent.contact
    finally:
        peers.close()


def test_lists_come_in_pages(peers: Peers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("braided.fleet.requests.PAGE", 1)
    jobs = peers.peers["north"].holding.jobs
    for name in ("a", "b", "c"):
        jobs.add(Job(f"page.{name}", "nobody.has.this"))
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        status = fleet.status()
    assert [row.name for row in status.components if row.name.startswith("page.")] == ["page.a", "page.b", "page.c"]
    assert len(status.peers) == 2


def test_an_application_is_composed_and_its_jobs_read_each_others_topics(
    peers: Peers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = JOB.format(tmp_path).replace('"one"', '"first"')
    (tmp_path / "first.toml").write_text(first)
    second = first.replace('"first"', '"second"').replace("/out", "/end").replace("/numbers", "/out")
    (tmp_path / "second.toml").write_text(second)
    app = tmp_path / "app.toml"
    app.write_text(
        """application = "sums"
latency = "3 seconds"
[[jobs]]
file = "second.toml"
[[jobs]]
file = "first.toml"
seconds = 0.5
"""
    )
    address = ["--peer", peers.address, "--token-file", str(peers.token)]
    assert main(["fleet", "submit", str(app), "--dry-run", *address]) == 0
    assert "sums.first" in capsys.readouterr().out
    with braided.Fleet(peers.address, token_file=peers.token) as fleet:
        assert "sums.first" not in [row.name for row in fleet.status().components]
        launched = fleet.launch(app)
        assert [row.job for row in launched.rows] == ["sums.first", "sums.second"]
        jobs = peers.peers["north"].holding.jobs
        assert jobs.read("sums.second").inputs == jobs.read("sums.first").outputs
        assert jobs.read("sums.first").outputs == (f"{peers.storage}/topics/sums.first",)
        job = job_of(jobs.read("sums.second"), str(tmp_path))
        assert job.sources["numbers"].path == f"{peers.storage}/topics/sums.first"
        assert (job.name, job.sink.path) == ("sums.second", f"{peers.storage}/topics/sums.second")
        app.write_text(app.read_text().replace("3 seconds", "100 milliseconds").replace("sums", "fast"))
        with pytest.raises(PeerError, match=r"the fastest composition takes 0.* most of it step 'first'"):
            fleet.launch(app)
        for old, new, message in (
            ("latency =", "latencies =", "line 2: latencies: unknown key"),
            ("100 milliseconds", "soon", "line 2: latency: 'soon': write a duration"),
            ("seconds = 0.5", "seconds = -1", "line 7: jobs.1.seconds: -1: write a number"),
            ("first.toml", "none.toml", "none.toml: No such file"),
        ):
            other = tmp_path / "other.toml"
            other.write_text(app.read_text().replace(old, new))
            with pytest.raises(JobError, match=message):
                fleet.launch(other)
