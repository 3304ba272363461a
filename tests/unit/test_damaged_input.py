"""What comes from outside may be anything: job files, files of storage, messages of peers, requests to a page.

Each either is taken or refused with an error of ours; no other exception, and no answer of a server that is missing.
"""

from __future__ import annotations

import contextlib
import json
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.damage import damaged_bytes, damaged_file, damaged_json
from support.dashboards import run_events
from support.fleets import agent, contact
from support.profiles import examples

from braided.errors import BraidedError, PeerError
from braided.fleet.applications import read_application
from braided.fleet.component_host import Job, Jobs
from braided.fleet.definition import component_of, job_of
from braided.fleet.event_log import Event, EventReader
from braided.fleet.fleet_peer import Peer
from braided.fleet.leases import Beat, Lease, Leases, Position
from braided.fleet.messages import Contact, Envelope, decode, encode, kinds
from braided.fleet.peer_loads import ComponentLoad
from braided.fleet.virtual_network import VirtualNetwork, run
from braided.jobs.job_reader import parse_job
from braided.routing.control_directory import ControlDir
from braided.routing.table import RoutingTable
from braided.storage.files import STORAGE, LocalFiles
from braided.storage.topic import Topic, create_topic
from braided.storage.writing import DataFile
from braided.ui.history import History
from braided.ui.history_events import check_event
from braided.ui.server import Server

JOB = """
name = "hits"
operator = "join.window"
checkpoint = "/shared/c"
trigger = "2 seconds"
[sources.calls]
path = "/shared/calls"
time = "ts"
watermark = "5 seconds"
max_files = 3
[sources.alerts]
format = "kafka"
options = { subscribe = "alerts", "kafka.password" = "${SECRET}" }
[tables.cells]
path = "/shared/cells"
[[steps]]
name = "pairs"
sql = '''SELECT * FROM calls c JOIN alerts a ON c.phone = a.phone'''
options = { control = "/shared/control" }
[[steps]]
name = "scores"
python = "fraud.scores:make"
inputs = ["pairs"]
[sink]
format = "topic"
path = "/shared/hits"
[needs]
cores = 2
memory = "2 GB"
[spark]
"spark.sql.session.timeZone" = "UTC"
"""
NORTH = contact("north")
RECORDS = {
    "leases/one/000000000000.json": Lease("one", 0, NORTH, "token").to_bytes(),
    "leases/one/000000000000.beat": Beat(3, Position(4, "x"), 2, "why", "failing", 5.0, 6.0).to_bytes(),
    "components/one.json": Job("one", "sum.x", ("/a",), ("/b",), "/c", JOB, 1.0, "sig").to_bytes(),
    "components/one.paused": b'{"at": 7.5}',
}


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    place = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as folder:
        yield Path(folder)


@settings(max_examples=examples(2000), deadline=None)
@given(text=damaged_bytes(JOB.encode()))
def test_job_files(memory: Path, text: bytes) -> None:
    words = text.decode(errors="replace")
    with contextlib.suppress(BraidedError):
        parse_job(words, "job.toml", {"SECRET": "s"})
    with contextlib.suppress(BraidedError):
        job_of(component_of(words, "job.toml"), memory, {"SECRET": "s"})


@settings(max_examples=examples(400), deadline=None)
@given(text=damaged_bytes(b'application = "x"\nlatency = "5 seconds"\n[[jobs]]\nfile = "one.toml"\nseconds = 0.4\n'))
def test_applications(memory: Path, text: bytes) -> None:
    (memory / "one.toml").write_text(JOB)
    (memory / "app.toml").write_bytes(text)
    with contextlib.suppress(BraidedError):
        read_application(memory / "app.toml").application()


@pytest.mark.parametrize("name", RECORDS)
@settings(max_examples=examples(600), deadline=None)
@given(data=st.data())
def test_files_of_a_fleet(memory: Path, name: str, data: st.DataObject) -> None:
    for other, content in RECORDS.items():
        path = memory / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.draw(damaged_file(content)) if other == name else content)
    files = LocalFiles(memory, STORAGE)
    leases, jobs = Leases(files), Jobs(files)
    for read in (lambda: leases.newest("one"), lambda: leases.beat_at("one", 0), lambda: jobs.read("one")):
        with contextlib.suppress(PeerError):
            read()
    with contextlib.suppress(PeerError):
        jobs.pause_of("one")


@settings(max_examples=examples(400), deadline=None)
@given(data=st.data())
def test_events(memory: Path, data: st.DataObject) -> None:
    folder = memory / "events" / "north"
    folder.mkdir(parents=True, exist_ok=True)
    event = Event(1.5, "north", "one", "started").to_bytes()
    (folder / "000000000000.jsonl").write_bytes(event + b"\n" + data.draw(damaged_file(event)) + b"\n" + event + b"\n")
    assert len(EventReader(LocalFiles(memory, STORAGE)).read()) >= 2


@settings(max_examples=examples(600), deadline=None)
@given(data=st.data())
def test_manifests(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        topic = create_topic(f"{folder}/t", "{}")
        writer = topic.claim("one", epoch=3)
        for batch in range(3):
            writer.commit(batch, "d", [DataFile(f"{batch:012d}/x.parquet", 5, 10)])
        chosen = data.draw(st.sampled_from(sorted(path for path in Path(folder).rglob("*.json"))))
        chosen.write_bytes(data.draw(damaged_file(chosen.read_bytes())))
        for use in (
            lambda: list(Topic(f"{folder}/t").manifests()),
            lambda: Topic(f"{folder}/t").latest(),
            lambda: Topic(f"{folder}/t").readers(),
            lambda: Topic(f"{folder}/t").claim("one", epoch=7),
        ):
            with contextlib.suppress(BraidedError):
                use()


@settings(max_examples=examples(600), deadline=None)
@given(data=st.data())
def test_control_directories(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        control = ControlDir(f"{folder}/control")
        control.claim("q", "join")
        control.pin(0, "q", RoutingTable.hashed(3))
        chosen = data.draw(st.sampled_from(sorted(path for path in Path(folder).rglob("*.json"))))
        chosen.write_bytes(data.draw(damaged_file(chosen.read_bytes())))
        for use in (
            lambda: control.claim("q", "join"),
            control.owner,
            lambda: control.pin(0, "q"),
            lambda: control.pin(1, "q"),
        ):
            with contextlib.suppress(BraidedError):
                use()


def _example(kind: Any) -> Any:
    """A message of a kind, with something in every field."""
    made: dict[str, Any] = {}
    for name, field in kind.__dataclass_fields__.items():
        made[name] = _VALUES[str(field.type)] if str(field.type) in _VALUES else _guess(str(field.type))
    return kind.read(made)


_JOB_JSON = json.loads(RECORDS["components/one.json"])
_CONTACT = {"node": NORTH.node, "address": NORTH.address, "name": NORTH.name}
_VALUES: dict[str, Any] = {
    "str": "sum.x", "int": 1, "float": 1.5, "bool": True, "Contact": _CONTACT, "Job": _JOB_JSON,
    "component_host.Job": _JOB_JSON, "Position": {"batch": 1, "offsets": "x"}, "dict[str, float]": {"a": 1.0},
    "tuple[str, ...]": ["sum.x"], "tuple[float, ...]": [1.0, 2.0, 3.0], "tuple[Contact, ...]": [_CONTACT] * 3,
    "tuple[ComponentLoad, ...]": [{"name": "one", "operator": "sum.x", "load": 0.5}],
}  # fmt: skip


def _guess(hint: str) -> Any:
    return [] if hint.startswith("tuple") else "a" * 40


def _frames() -> list[bytes]:
    frames = []
    for kind in kinds().values():
        with contextlib.suppress(PeerError):
            frames.append(encode(Envelope(NORTH, 1, False, _example(kind))))
    return frames


FRAMES = _frames()


@settings(max_examples=examples(1500), deadline=None)
@given(data=st.data())
def test_messages(data: st.DataObject) -> None:
    assert len(FRAMES) > 25
    frame = data.draw(damaged_file(data.draw(st.sampled_from(FRAMES))))
    with contextlib.suppress(PeerError):
        assert isinstance(decode(frame).sender, Contact)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_a_peer_goes_on_whatever_it_is_sent(memory: Path, data: st.DataObject) -> None:
    async def play() -> None:
        network = VirtualNetwork(seed=1)
        speaker, machine = agent(network, "south")
        host: Any = _Idle()
        peer = Peer(speaker.contact, machine, host, str(memory / "fleet"))
        machine.receive = peer.agent.receive
        await peer.start()
        for frame in data.draw(st.lists(st.sampled_from(FRAMES), min_size=3, max_size=12)):
            sent = json.loads(frame)
            if data.draw(st.booleans()):
                sent["body"] = data.draw(damaged_json(sent["body"]))
            machine.arrive(NORTH.node, json.dumps(sent).encode())
            await machine.sleep(data.draw(st.floats(0, 3)))
        await machine.sleep(400)
        assert network.failures == []

    run(play())


class _Idle:
    """A host that offers nothing and runs nothing."""

    cores = 1.0

    def offers(self) -> tuple[str, ...]:
        return ("sum.*",)

    def measure(self) -> Any:
        from braided.fleet.peer_loads import Measured

        return Measured(0.1, (ComponentLoad("one", "sum.x", 0.1),))

    def check(self, job: Job) -> None:
        raise PeerError("nothing runs here")

    async def rehearse(self, job: Job) -> None:
        raise PeerError("nothing runs here")

    start = stop = rehearse

    def kill(self, name: str) -> None:
        pass


@settings(max_examples=examples(600), deadline=None)
@given(data=st.data())
def test_histories(data: st.DataObject) -> None:
    event = data.draw(damaged_json(data.draw(st.sampled_from(list(run_events(2, "q"))))))
    with contextlib.suppress(BraidedError):
        check_event(event, "history")


REQUEST = b"GET /events?token=abc HTTP/1.1\r\nHost: localhost:80\r\nCookie: braided_token=x\r\nAuthorization: Bearer x\r\nLast-Event-ID: ab-3\r\n"


@pytest.fixture(scope="module", params=["127.0.0.1", "0.0.0.0"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    made = Server(History(), host=request.param)
    yield made
    made.close()


@settings(max_examples=examples(300), deadline=None)
@given(text=damaged_bytes(REQUEST))
@example(text=REQUEST.replace(b"localhost:80", b"["))
@example(text=REQUEST.replace(b"/events", b"//[/events"))
def test_requests_to_a_page(server: Server, text: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(text + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(64)
    assert answer or not text.split(b"\n")[0].strip(), text
