"""The states of jobs, what operators order, and the events that a fleet keeps: each seen by whoever asks."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.fleet_model import ModelFleet, ModelHost, covered
from support.fleets import agent, contact

from braided.fleet.component_host import Pause
from braided.fleet.event_log import EventLog, EventReader
from braided.fleet.fleet_peer import Settings
from braided.fleet.hosting.driver_log import lines_of
from braided.fleet.hosting.pace import Pace, offsets_between
from braided.fleet.hosting.warning_events import warnings_noted
from braided.fleet.job_states import STATES, state_of
from braided.fleet.leases import FAILURES, Beat, Lease, Position
from braided.fleet.messages import LIMIT, Done, Envelope, Request, encode
from braided.fleet.peer_loads import Measured
from braided.fleet.requests import (
    ComponentRow,
    Components,
    Drain,
    Events,
    ListComponents,
    ListEvents,
    Log,
    MoveTo,
    Restart,
    Resume,
    Retry,
    Submitted,
    Undrain,
)
from braided.fleet.requests import Pause as PauseRequest
from braided.fleet.virtual_network import VirtualNetwork, run
from braided.storage.files import STORAGE, LocalFiles
from braided.storage.topic import Topic
from braided.ui.metrics import _JOB_STATES

SETTINGS = Settings(period=2.0, span=12.0, evaluations=100, start=20.0)
TWO_PERIODS = 2 * SETTINGS.span / 6
"""Of the beats of a lease, by which others see a state."""


@pytest.fixture
def root() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


async def _fleet(root: Path, names: str = "abc") -> ModelFleet:
    fleet = ModelFleet(root, seed=7, settings=SETTINGS)
    for name in names:
        await fleet.start(name)
    return fleet


async def _ask(fleet: ModelFleet, request: Request, *, to: str = "a", patience: float = 60.0) -> object:
    asking = next(name for name, machine in fleet.machines.items() if not machine.is_dead and name != to)
    return await fleet.peers[asking].agent.ask(contact(to), request, patience)


async def _row(fleet: ModelFleet, to: str = "a") -> ComponentRow:
    reply = await _ask(fleet, ListComponents(), to=to)
    assert isinstance(reply, Components), reply
    return reply.rows[0]


async def _sees(fleet: ModelFleet, state: str, seconds: float = TWO_PERIODS, to: str = "a") -> ComponentRow:
    """The row of the job, once it is in a state; within two periods."""
    ends = asyncio.get_running_loop().time() + seconds + 2.5  # a peer that does not answer is waited for
    while (row := await _row(fleet, to)).state != state:
        assert asyncio.get_running_loop().time() < ends, f"{row.state}, not {state}"
        await asyncio.sleep(0.25)
    return row


def test_every_state_is_seen_within_two_periods(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root)
        for host in fleet.hosts.values():
            host.offered = ()
        begun = fleet.machines["a"].time()
        await fleet.peers["a"].submit(fleet.job("one"))
        await _sees(fleet, "starting", 0)
        for name, host in fleet.hosts.items():
            host.offered = ("sum.*",)
            await fleet.peers[name].discovery.register("sum.*")
        row = await _sees(fleet, "running", 60)
        assert begun < row.since < fleet.machines["a"].time()

        is_slow = {"one"}
        for host in fleet.hosts.values():
            _slow(host, is_slow)
        await _sees(fleet, "behind")
        is_slow.clear()
        await _sees(fleet, "running")

        assert await _ask(fleet, PauseRequest("one")) == Done()
        paused = await _sees(fleet, "paused")
        await asyncio.sleep(10 * SETTINGS.span)
        assert await _row(fleet) == paused  # nobody starts it
        assert "is paused" in str(await _ask(fleet, MoveTo("one", "b")))
        assert isinstance(await _ask(fleet, Resume("one")), Submitted)
        await _sees(fleet, "running")

        for host in fleet.hosts.values():
            host.fails = {"one": "a fault"}
        row = await _sees(fleet, "failing")
        assert (row.failures, row.problem) == (1, "a fault")
        await fleet.wait_for(lambda: _beat(fleet).failures == 3, 600, "three failures")
        assert (await _sees(fleet, "failing", 0)).since == row.since
        await fleet.wait_for(lambda: _beat(fleet).is_failed, 6000, "six failures")
        assert (await _sees(fleet, "failed", 0)).failures == FAILURES
        for host in fleet.hosts.values():
            host.fails = {}
        assert isinstance(await _ask(fleet, Retry("one")), Submitted)
        row = await _sees(fleet, "running")

        others = [name for name in fleet.peers if name != row.peer]
        for name in others:
            fleet.hosts[name].refuses = True
        fleet.machines[row.peer].spawn(_drain(fleet, row.peer))
        await _sees(fleet, "draining")
        assert isinstance(await _ask(fleet, Undrain(), to=row.peer), Done)
        await _sees(fleet, "running")

        fleet.kill(row.peer)
        dead = await _sees(fleet, "orphaned", to=others[0])
        assert dead.peer == row.peer
        for name in others:
            fleet.hosts[name].refuses = False
        await _sees(fleet, "running", 3 * SETTINGS.span, to=others[0])
        fleet.last = fleet.until()
        await fleet.wait_for(lambda: covered(Topic(str(root / "topics" / "one"))) == fleet.last, 60, "all results")
        assert fleet.network.failures == []

    run(play())


def _slow(host: ModelHost, names: set[str]) -> None:
    measure = host.measure

    def measured() -> Measured:
        taken = measure()
        return replace(taken, components=tuple(replace(p, is_behind=p.name in names) for p in taken.components))

    host.measure = measured  # type: ignore[method-assign]


async def _drain(fleet: ModelFleet, peer: str) -> None:
    await fleet.peers[peer].agent.ask(contact(peer), Drain(), 600)


def _beat(fleet: ModelFleet) -> Beat:
    leases = fleet.peers["a"].holding.leases
    lease = leases.newest("one")
    assert lease is not None
    return leases.beat_of(lease)


def test_a_restart_goes_on_where_the_job_was_and_a_move_to_its_peer_is_no_error(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root)
        await fleet.peers["a"].submit(fleet.job("one"))
        await fleet.wait_for(lambda: bool(fleet.holders("one")), 60, "the start")
        (holder,) = fleet.holders("one")
        assert await _ask(fleet, MoveTo("one", holder)) == Done(True, "already runs there")
        reply = await _ask(fleet, Restart("one"))
        assert isinstance(reply, Submitted), reply
        assert (reply.peer, _beat(fleet).failures) == (holder, 0)
        assert (await _row(fleet)).epoch == 1
        fleet.last = fleet.until()
        await fleet.wait_for(lambda: covered(Topic(str(root / "topics" / "one"))) == fleet.last, 60, "all results")

    run(play())


def test_events_outlive_the_peers_that_noted_them(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root)
        await fleet.peers["a"].submit(fleet.job("one"))
        await fleet.wait_for(lambda: bool(fleet.holders("one")), 60, "the start")
        (holder,) = fleet.holders("one")
        survivor = next(name for name in fleet.peers if name != holder)
        fleet.machines[holder].storage_is_cut = True  # events wait meanwhile
        fleet.peers[holder].holding.note("", "while storage is away")
        await asyncio.sleep(2)
        fleet.machines[holder].storage_is_cut = False
        await asyncio.sleep(10)
        fleet.kill(holder)
        await fleet.wait_for(lambda: bool({*fleet.holders("one")} - {holder}), 60, "another host")
        await asyncio.sleep(2)
        reply = await _ask(fleet, ListEvents(), to=survivor)
        assert isinstance(reply, Events)
        told = [(event.peer, event.component, event.what) for event in reply.rows]
        assert ("a", "", f"peer a has joined at {contact('a').address}") in told
        assert (holder, "", "while storage is away") in told
        assert (holder, "one", "started with epoch 0") in told
        died = f"peer {holder} has failed or is disconnected: its lease has expired"
        assert [component for _, component, what in told if what == died] == ["one"]
        assert len(told) == len(set(told))
        after = await _ask(fleet, ListEvents(after=reply.last), to=survivor)
        assert isinstance(after, Events)
        assert after.rows == ()
        newest = await _ask(fleet, ListEvents(component="one", newest=1), to=survivor)
        assert isinstance(newest, Events)
        assert [event.what for event in newest.rows] == [f"started with epoch {_row_epoch(fleet)}"]

    run(play())


def _row_epoch(fleet: ModelFleet) -> int:
    leases = fleet.peers[next(name for name in fleet.peers if not fleet.machines[name].is_dead)].holding.leases
    lease = leases.newest("one")
    assert lease is not None
    return lease.epoch


def test_files_of_events_are_bounded_and_a_line_cut_short_is_left_out(root: Path) -> None:
    async def play() -> None:
        network = VirtualNetwork(seed=1)
        speaker, _ = agent(network, "a")
        files = LocalFiles(root, STORAGE)
        log, reader = EventLog(speaker, files, size=1000, kept=3), EventReader(files)
        for number in range(200):
            log.add("one", f"event {number}")
            if number % 10 == 9:
                assert await log.flush()
                assert reader.read()[-1].event.what == f"event {number}"
        names = sorted(files.names("events/a"))
        assert len(names) <= 4
        assert sum(len(files.read(f"events/a/{name}") or b"") for name in names) < 4 * 2500
        assert len(reader.read()) == 200  # who has read them keeps them
        files.append(f"events/a/{names[-1]}", b'{"at": 3')
        assert len(reader.read()) == 200
        again = EventLog(speaker, files, size=1000, kept=3)  # a peer that was restarted begins a file
        again.add("one", "last")
        assert await again.flush()
        assert reader.read()[-1].event.what == "last"

    run(play())


LEASE = Lease("one", 3, contact("a"), "token")


@pytest.mark.parametrize(
    ("lease", "beat", "pause", "answers", "state"),
    [
        (None, Beat(0), None, False, ("starting", 0.0)),
        (None, Beat(0), Pause(7.0), False, ("paused", 7.0)),
        (LEASE, Beat(0), None, True, ("starting", 0.0)),
        (LEASE, Beat(4, None, 0, "", "behind", 5.0, 9.0), None, True, ("behind", 5.0)),
        (LEASE, Beat(4, None, 0, "", "running", 5.0, 9.0), None, False, ("orphaned", 9.0)),
        (LEASE, Beat(4, None, 0, "", "running", 5.0, 9.0), Pause(7.0), True, ("draining", 7.0)),
        (LEASE, Beat(4, Position(), 0, "", "orphaned", 5.0, 9.0), Pause(7.0), True, ("paused", 7.0)),
        (LEASE, Beat(4, Position(), 0, "", "starting", 5.0, 9.0), None, True, ("starting", 5.0)),
        (LEASE, Beat(4, Position(), 2, "why", "failing", 5.0, 9.0), None, True, ("failing", 5.0)),
        (LEASE, Beat(4, Position(), FAILURES, "why", "failed", 5.0, 9.0), None, False, ("failed", 5.0)),
        (LEASE, Beat(4, Position()), None, True, ("orphaned", 0.0)),
        (LEASE, Beat(4, None, 0, "", "made up", 5.0, 9.0), None, True, ("starting", 5.0)),
    ],
)
def test_states(lease: Lease | None, beat: Beat, pause: Pause | None, answers: bool, state: tuple[str, float]) -> None:
    assert state_of(lease, beat, pause, answers=answers) == state


def test_the_log_of_a_job_is_what_its_query_has_logged(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    ours = "24/05/01 10:00:00 ERROR [stream execution thread for one [id = 3, runId = 4]] MicroBatchExecution: "
    other = ours.replace("one", "another")
    log.write_text(f"begin\n{ours}first\n\tat a.B(C.scala:3)\n{other}secret\n\tat d\n{ours}last\n")
    assert lines_of(log, "one") == f"{ours}first\n\tat a.B(C.scala:3)\n{ours}last"
    assert lines_of(log, "on") == lines_of(tmp_path / "none", "one") == ""
    log.write_text("".join(f"{ours}{number} {'ä' * 500}\n" for number in range(1000)))
    reply = Log("n" * 100, lines_of(log, "one"))
    assert reply.text.splitlines()[-1].startswith(f"{ours}999 ")
    assert len(encode(Envelope(contact("a"), 2**40, True, reply))) <= LIMIT


def test_warnings_of_a_driver_become_events() -> None:
    noted: list[tuple[str, str]] = []

    async def play() -> None:
        with warnings_noted(lambda job, what: noted.append((job, what))):
            log = logging.getLogger("braided.spark")
            await asyncio.to_thread(log.warning, "%d rows came late", 3, extra={"query": "hits"})
            log.info("nothing to say")
            await asyncio.sleep(0)
        logging.getLogger("braided").warning("after its end")
        await asyncio.sleep(0)

    asyncio.run(play())
    assert noted == [("hits", "warning: 3 rows came late")]


def test_metrics_know_all_states() -> None:
    assert _JOB_STATES == STATES


def test_a_query_falls_behind_when_its_last_batches_say_so() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    assert [pace.look(batch, 3.0, 2.0, None, True) for batch in (1, 2, 2, 3)] == [False, False, False, True]
    assert not pace.look(4, 1.0, 2.0, None, True)
    growing = Pace(lambda: now)
    assert [growing.look(batch, 3.0, None, rows, True) for batch, rows in ((1, 10), (2, 20), (3, 30), (4, 25))] == [
        False, False, True, False,
    ]  # fmt: skip
    hangs = Pace(lambda: now)
    assert not hangs.look(1, 3.0, 2.0, 0, True)
    now = 34.0
    assert not hangs.look(1, 3.0, 2.0, 0, True)
    now = 36.0
    assert hangs.look(1, 3.0, 2.0, 0, True)
    assert not hangs.look(1, 3.0, 2.0, 0, False)  # it waits for input
    assert offsets_between('{"a":{"0":5}}', '{"a":{"0":7,"1":4},"b":{"0":1}}') == 7
    assert offsets_between('{"a":{"0":5}}', "no JSON") is None
