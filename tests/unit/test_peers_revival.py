"""Revival: every job of a peer that dies or hangs runs again soon, in fleets of any size, where it may run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fleet_model import ModelFleet, covered
from support.fleets import contact

from braided.fleet.component_host import Job
from braided.fleet.contact_buckets import key_of
from braided.fleet.fleet_peer import Settings
from braided.fleet.virtual_network import run
from braided.storage.topic import Topic

SETTINGS = Settings(span=10.0, evaluations=100)
"""The times that users get, with the lease of the report."""
LIMIT = 3 * SETTINGS.span


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory where there is one: every file is written to disk otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def _nearest(names: list[str], key: str) -> list[str]:
    return sorted(names, key=lambda name: contact(name).number ^ key_of(key))


def _operator_of(names: list[str], guardian: str) -> str:
    """An operator that a peer is the guardian of."""
    return next(name for name in (f"sum.{n}" for n in range(100_000)) if _nearest(names, name)[0] == guardian)


async def _fleet(root: Path, count: int, settings: Settings = SETTINGS) -> ModelFleet:
    """Peers that offer everything, as they do unless somebody says otherwise."""
    fleet = ModelFleet(root, seed=count, settings=settings)
    for number in range(count):
        await fleet.start(f"p{number}", offers=("*",))
    return fleet


async def _place(fleet: ModelFleet, name: str, operator: str, at: str) -> Job:
    job = fleet.job(name, operator=operator)
    holding = fleet.peers[at].holding
    holding.jobs.add(job)
    await holding.take(job, 0)
    return job


async def _runs_elsewhere(fleet: ModelFleet, jobs: list[str], lost: str) -> float:
    """Wait until all jobs run at other peers than the one lost; return the seconds that it took."""
    before = asyncio.get_running_loop().time()
    await fleet.wait_for(
        lambda: all(set(fleet.holders(job)) - {lost} for job in jobs), LIMIT, "jobs of the lost peer run again"
    )
    return asyncio.get_running_loop().time() - before


def _events(fleet: ModelFleet, component: str) -> list[str]:
    return [
        event.what for peer in fleet.peers.values() for event in peer.holding.events if event.component == component
    ]


@pytest.mark.parametrize("which", ["agent and JVM", "JVM"])
def test_a_guardian_that_gets_no_reports_of_loads_revives_a_job_too(root: Path, which: str) -> None:
    async def play() -> None:
        fleet = await _fleet(root, 4)
        names = list(fleet.peers)
        *_, guardian = _nearest(names, "*")  # not among the three nearest
        host = next(name for name in names if name != guardian)
        await _place(fleet, "one", _operator_of(names, guardian), host)
        await asyncio.sleep(180)
        assert fleet.holders("one") == [host]
        if which == "JVM":
            fleet.hang(host)
        else:
            fleet.machines[host].pause()
            fleet.engines[host].pause()
        await _runs_elsewhere(fleet, ["one"], host)
        if which != "JVM":
            fleet.machines[host].resume()
            fleet.engines[host].resume()
            await fleet.wait_for(lambda: len(fleet.holders("one")) == 1, 10, "one owner")
        fleet.last = fleet.until()
        await fleet.wait_for(lambda: covered(Topic(str(root / "topics" / "one"))) == fleet.last, 60, "all results")
        assert fleet.network.failures == []

    run(play())


@pytest.mark.parametrize("which", ["dead", "hangs"])
@pytest.mark.parametrize("count", [4, 10, pytest.param(100, marks=pytest.mark.slow)])
def test_every_job_of_a_lost_peer_runs_again_within_three_leases(root: Path, count: int, which: str) -> None:
    async def play() -> None:
        fleet = await _fleet(root, count)
        fleet.last = 0  # no input
        names = list(fleet.peers)
        lost = _nearest(names, "*")[1]
        # Of the operators one has the lost peer itself as its guardian; the most jobs have the same one, as with `sql`.
        guardians = [lost, *(name for name in names if name != lost)][: min(count, 8)]
        operators = [*(_operator_of(names, guardian) for guardian in guardians), *["sql"] * 4]
        jobs = [f"job{number}" for number in range(len(operators))]
        for job, operator in zip(jobs, operators, strict=True):
            await _place(fleet, job, operator, lost)
        await asyncio.sleep(30)
        assert all(fleet.holders(job) == [lost] for job in jobs)
        if which == "dead":
            fleet.kill(lost)
        else:
            fleet.hang(lost)
        await _runs_elsewhere(fleet, jobs, lost)
        hosts = [fleet.holders(job)[0] for job in jobs]
        assert max(hosts.count(host) for host in hosts) <= len(jobs) / 2, "one peer got most of them"
        assert fleet.network.failures == []

    run(play())


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_guardians_that_die_one_after_the_other_are_all_replaced(root: Path, count: int) -> None:
    async def play() -> None:
        fleet = await _fleet(root, count)
        fleet.last = 0  # no input
        names = list(fleet.peers)
        guardians = _nearest(names, "sql")
        await _place(fleet, "one", "sql", guardians[-1])
        for guardian in guardians[:5]:
            await asyncio.sleep(30)
            fleet.kill(guardian)
            (host,) = fleet.holders("one") or [guardian]
            if host != guardian:
                fleet.kill(host)
            await _runs_elsewhere(fleet, ["one"], host)
        assert fleet.network.failures == []

    run(play())


def test_an_event_says_why_nobody_takes_a_job_over(root: Path) -> None:
    async def play() -> None:
        fleet = ModelFleet(root, seed=1, settings=SETTINGS)
        fleet.last = 0
        for name in "abcd":
            await fleet.start(name, offers=("*",) if name == "a" else ("other.*",))
        await _place(fleet, "one", "sql", "a")
        fleet.hang("a")
        await asyncio.sleep(100)
        # It says so once, not with every look.
        expected = "no peer could take it over: peer a: no longer offers it, or its Spark does not answer"
        assert _events(fleet, "one").count(expected) == 1
        fleet.kill("a")
        await asyncio.sleep(100)
        assert "no peer could take it over: no peer offers operator 'sql'" in _events(fleet, "one")
        await fleet.start("e", offers=("sql",))
        await _runs_elsewhere(fleet, ["one"], "a")

    run(play())


def test_the_watch_knows_where_a_component_was_also_if_another_peer_is_its_guardian(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root, 4)
        fleet.last = 0
        names = list(fleet.peers)
        watch, *_, guardian = _nearest(names, "*")
        first, second = (name for name in names if name not in (watch, guardian))
        await _place(fleet, "one", _operator_of(names, guardian), first)
        assert await fleet.peers[first].move("one", contact(second))
        await asyncio.sleep(60)
        seen = fleet.peers[watch].watch
        component, source, target = (
            seen._number("one"), seen._host(contact(second).node), seen._host(contact(first).node)
        )  # fmt: skip
        assert component is not None
        loads = seen.loads.of(list(seen._hosts))
        assert not seen._migrations.allowed(component, source, target, loads.over(1), loads.over(5))[0]

    run(play())


def test_a_job_is_not_given_to_a_peer_that_may_not_run_it(root: Path) -> None:
    async def play() -> None:
        fleet = await _fleet(root, 5)
        fleet.last = 0
        *others, allowing = list(fleet.peers)[1:]
        for name in others:
            fleet.hosts[name].may_not_run = {"fraud"}
        await _place(fleet, "fraud", "python.fraud", "p0")
        fleet.kill("p0")
        await _runs_elsewhere(fleet, ["fraud"], "p0")
        assert fleet.holders("fraud") == [allowing]
        leases = fleet.peers[allowing].holding.leases
        assert leases.newest("fraud").epoch == 1  # type: ignore[union-attr]
        assert not [what for what in _events(fleet, "fraud") if "could not start" in what]
        fleet.kill(allowing)
        await asyncio.sleep(LIMIT)
        (problem,) = [what for what in _events(fleet, "fraud") if what.startswith("no peer could take it over")]
        refusal = "python='fraud': this peer may not run it; start it with --allow fraud"
        assert f": {refusal}" in problem
        assert leases.newest("fraud").epoch == 1  # type: ignore[union-attr]
        fleet.hosts[others[0]].may_not_run = set()
        await _runs_elsewhere(fleet, ["fraud"], allowing)
        assert fleet.holders("fraud") == [others[0]]

    run(play())
