"""The optimisation master and the launching of applications, on a virtual fleet."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fleet_model import SETTINGS, ModelFleet, covered
from support.fleets import contact

from braided.errors import PeerError
from braided.fleet.component_host import Job
from braided.fleet.composition import Application, Step
from braided.fleet.contact_buckets import key_of
from braided.fleet.fleet_peer import Settings
from braided.fleet.launch import Launcher
from braided.fleet.master import INTERVAL, NAME, REST, Master, make_problem
from braided.fleet.peer_loads import ComponentLoad
from braided.fleet.survey import Description
from braided.fleet.virtual_network import run
from braided.storage.topic import Topic


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


async def _fleet(root: Path, names: str) -> ModelFleet:
    fleet = ModelFleet(root, seed=4, settings=SETTINGS)
    for name in names:
        await fleet.start(name)
    for host in fleet.hosts.values():
        host.load = lambda host=host: host.part * len(host._running)  # type: ignore[misc]
        host.part = 0.1
    await asyncio.sleep(20)
    return fleet


def _master(fleet: ModelFleet, name: str) -> Master:
    peer = fleet.peers[name]
    return Master(peer, evaluations=2000)


def test_components_with_much_traffic_come_together_and_stay(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root, "ab")
        jobs = [fleet.job("one"), fleet.job("two", "one"), fleet.job("three"), fleet.job("four", "three")]
        for job in jobs:
            await fleet.peers["a"].submit(job)
        await fleet.wait_for(lambda: all(fleet.holders(job.name) for job in jobs), 60, "placing the components")
        for name, target in (("one", "a"), ("two", "b"), ("three", "a"), ("four", "b")):
            if fleet.holders(name) != [target]:
                assert await fleet.peers["a"].move(name, contact(target))
        for host in fleet.hosts.values():
            host.rates = {"one": 500.0, "three": 300.0}
        moved = await _master(fleet, "a").step()
        assert len(moved) in (2, 3)
        assert fleet.holders("one") == fleet.holders("two")
        assert fleet.holders("three") == fleet.holders("four")
        assert moved[0].reason.startswith("placement: fitness -")
        assert await _master(fleet, "b").step() == []
        fleet.last = fleet.until()
        topics = [Topic(job.outputs[0]) for job in jobs]
        await fleet.wait_for(lambda: all(covered(topic) == fleet.last for topic in topics), 60, "the end of the input")
        assert fleet.network.failures == []

    run(play())


def test_little_traffic_is_not_worth_a_move(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root, "ab")
        for job in (fleet.job("one"), fleet.job("two", "one")):
            await fleet.peers["a"].submit(job)
        await fleet.wait_for(lambda: all(fleet.holders(name) for name in ("one", "two")), 60, "placing the components")
        if fleet.holders("one") == fleet.holders("two"):
            other = "b" if fleet.holders("two") == ["a"] else "a"
            assert await fleet.peers["a"].move("two", contact(other))
        for host in fleet.hosts.values():
            host.rates = {"one": 20.0}
        assert await _master(fleet, "a").step() == []

    run(play())


def test_what_somebody_has_moved_stays_for_a_while(root: Path) -> None:
    """A hot peer's component would else come back to the traffic that it left, and make the peer hot again."""

    async def play() -> None:
        fleet = await _fleet(root, "ab")
        master = _master(fleet, "a")
        assert master._resting({"one": 3, "two": 0}) == set()  # of what was before this master nothing is known
        assert master._resting({"one": 4, "two": 0}) == {"one"}
        await asyncio.sleep(0.6 * REST * INTERVAL)
        assert master._resting({"one": 4, "two": 1}) == {"one", "two"}
        await asyncio.sleep(0.6 * REST * INTERVAL)
        assert master._resting({"one": 4, "two": 1}) == {"two"}
        await asyncio.sleep(0.6 * REST * INTERVAL)
        assert master._resting({"one": 4}) == set()
        hosts = [(contact(name), Description(0.5, 2.0, ("sum.*",), (), {})) for name in "ab"]
        problem = make_problem([fleet.job("one"), fleet.job("two")], hosts, np.array([0, 1]), {"two"})
        assert problem.allowed.tolist() == [[True, True], [False, True]]

    run(play())


def test_a_problem_is_made_of_what_peers_measure(root: Path) -> None:
    fleet = ModelFleet(root, seed=1)
    jobs = [fleet.job("one"), fleet.job("two", "one")]
    a, b = contact("a"), contact("b")
    reports = [
        (a, Description(0.5, 2.0, ("sum.*",), (ComponentLoad("one", "sum", 0.3, rate=9.0),), {b.node: 0.004})),
        (b, Description(0.9, 1.0, ("sum.*", "x"), (ComponentLoad("two", "sum", 0.9),), {a.node: 0.002})),
    ]
    problem = make_problem(jobs, reports, np.array([0, 1]))
    assert problem.traffic.tolist() == [[0.0, 9.0], [0.0, 0.0]]
    assert problem.latency.tolist() == [[0.0, 0.004], [0.004, 0.0]]
    assert problem.cpu.tolist() == pytest.approx([0.6, 0.9])
    assert problem.limits.tolist() == pytest.approx([2 * (0.5 - 0.2), 0.9])  # what runs there may stay
    with pytest.raises(PeerError, match=r"load=-1, cores=1\.0: write a load"):
        Description(-1, 1.0, (), (), {})


async def _launch(launcher: Launcher, application: Application) -> list[Job]:
    composition, contacts = await launcher.composed(application)
    assert await launcher.start(application, composition, contacts) == {}
    return launcher.jobs(application, composition)


def test_an_application_is_launched_and_a_second_one_shares_it(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root, "abc")
        steps = (
            Step("clean", "sum.numbers", ("t",), "x", 0.1, 0.1),
            Step("add", "sum.numbers", ("clean",), "y", 0.1, 0.1),
        )
        jobs = await _launch(fleet.peers["b"].launcher, Application("first", steps, 5.0))
        assert [job.name for job in jobs] == ["first.clean", "first.add"]
        assert jobs[1].inputs == jobs[0].outputs == (f"{root}/topics/first.clean",)
        await fleet.wait_for(lambda: all(len(fleet.holders(job.name)) == 1 for job in jobs), 10, "its start")
        other = (
            Step("tidy", "sum.numbers", ("t",), "x", 0.1, 0.1),
            Step("count", "sum.numbers", ("tidy",), "z", 0.1, 0.1),
        )
        more = await _launch(fleet.peers["c"].launcher, Application("second", other, 5.0))
        assert [job.name for job in more] == ["second.count"]
        assert more[0].inputs == (f"{root}/topics/first.clean",)
        composition, _ = await fleet.peers["a"].launcher.composed(Application("second", other, 5.0))
        assert all(placed.shared for placed in composition.placed)
        with pytest.raises(PeerError, match=r"latency=0.1: the fastest composition takes 0.2\d* s"):
            await fleet.peers["a"].launcher.composed(Application("third", other, 0.1))
        with pytest.raises(PeerError, match="operator='max': no peer can host it"):
            await fleet.peers["a"].launcher.composed(Application("third", (Step("s", "max", ("t",)),), 1.0))
        assert fleet.network.failures == []

    run(play())


def test_four_idle_peers_are_quiet(root: Path) -> None:
    async def play() -> float:
        fleet = ModelFleet(root, seed=4, settings=Settings())
        for name in "abcd":
            await fleet.start(name)
        await asyncio.sleep(60)
        before = fleet.network.sent
        await asyncio.sleep(600)
        return (fleet.network.sent - before) / 600

    assert run(play()) < 10


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(PeerError, match="span=0: write a number of seconds above 0"):
        Settings(span=0)
    with pytest.raises(PeerError, match="evaluations=0: write at least 1, or None"):
        Settings(evaluations=0)


def test_the_master_is_one_peer_and_another_after_its_death(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root, "abcd")

        def masters() -> list[str]:
            return [
                name
                for name, peer in fleet.peers.items()
                if peer.discovery.is_nearest(key_of(NAME)) and not fleet.machines[name].is_dead
            ]

        (first,) = masters()
        fleet.kill(first)
        await fleet.wait_for(lambda: len(masters()) == 1, 120, "a new master")
        assert masters() != [first]

    run(play())
