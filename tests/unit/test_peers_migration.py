"""Leases, migration in six phases and failures: a component runs at one peer, from committed offsets, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fleet_model import ModelFleet, covered
from support.fleets import contact
from support.profiles import size

from braided.errors import PeerError, TopicError
from braided.fleet.component_host import Job, Jobs
from braided.fleet.fleet_peer import Settings
from braided.fleet.leases import Beat, Lease, Leases, Observer, Position
from braided.fleet.messages import Contact
from braided.fleet.virtual_network import run
from braided.storage.files import STORAGE, LocalFiles
from braided.storage.topic import Topic, create_topic
from braided.storage.writing import DataFile

STEPS = (
    "MigrationDecision", "MigrationRequest", "MigrationReply", "MigrationUpdate", "MigrationUpdateReply", "MigrationEnd",
    "Revive", "LoadUpdate",
)  # fmt: skip
ACTIONS = ("drop", "kill", "pause", "partition", "storage")


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory in memory where there is one: every file is written to disk otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


async def _started(fleet: ModelFleet, names: str, jobs: tuple[str, ...]) -> None:
    for name in names:
        await fleet.start(name)
    for job in jobs:
        await next(iter(fleet.peers.values())).submit(fleet.job(job))
    await fleet.wait_for(lambda: all(fleet.holders(job) for job in jobs), 60, "placing the components")


async def _finish(fleet: ModelFleet, jobs: tuple[str, ...]) -> None:
    """End the input, and see that everything comes out, at one peer each."""
    fleet.last = fleet.until()
    topics = [Topic(str(fleet.root / "topics" / job)) for job in jobs]
    await fleet.wait_for(lambda: all(covered(topic) == fleet.last for topic in topics), 120, "the end of the input")
    await fleet.wait_for(lambda: all(len(fleet.holders(job)) == 1 for job in jobs), 30, "one owner each")
    assert fleet.network.failures == []


# Leases.


def _told(fleet: ModelFleet, peer: str) -> list[str]:
    """What happened to the component at a peer."""
    return [event.what for event in fleet.peers[peer].holding.events if event.component == "one"]


def _lease(component: str, epoch: int, name: str) -> Lease:
    return Lease(component, epoch, contact(name), f"token of {name}")


def test_an_epoch_has_one_holder_and_the_newest_is_found(root: Path) -> None:
    leases, others = Leases(LocalFiles(root)), Leases(LocalFiles(root))
    assert leases.newest("sum") is None
    assert leases.take(_lease("sum", 0, "a"))
    assert leases.take(_lease("sum", 0, "a"))  # the answer to the first was lost
    assert not others.take(_lease("sum", 0, "b"))
    assert others.take(_lease("sum", 1, "b"))
    assert leases.newest("sum") == _lease("sum", 1, "b") == Leases(LocalFiles(root)).newest("sum")
    assert leases.beat_of(_lease("sum", 1, "b")) == Beat(0)
    others.beat(_lease("sum", 1, "b"), Beat(3, Position(4, "x")))
    assert leases.beat_of(_lease("sum", 1, "b")) == Beat(3, Position(4, "x"))


def test_a_damaged_lease_is_named(root: Path) -> None:
    leases = Leases(LocalFiles(root))
    leases.take(_lease("sum", 0, "a"))
    (root / "leases/sum/000000000000.json").write_text('{"component": 3}')
    with pytest.raises(PeerError, match=r"leases/sum/000000000000.json: is damaged \(component: 3: expected a string"):
        leases.newest("sum")
    with pytest.raises(PeerError, match=r"component='\.\./x': write letters"):
        leases.newest("../x")


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
def test_storage_that_goes_away_is_not_taken_for_an_empty_one(root: Path, left: str) -> None:
    place, away = root / "storage", root / "away"
    leases = Leases(LocalFiles(place, STORAGE))
    assert leases.newest("sum") is None
    assert leases.take(_lease("sum", 0, "a"))
    assert leases.newest("sum") == _lease("sum", 0, "a")
    listing, reading = LocalFiles(place, STORAGE), LocalFiles(place, STORAGE)
    assert listing.names("leases") == ["sum"]
    assert reading.read("leases/sum/000000000000.json")
    place.rename(away)
    if left == "an empty folder":  # as a mount leaves it
        place.mkdir()
    others = Leases(LocalFiles(place, STORAGE))  # who has not seen it before cannot know
    assert others.newest("sum") is None
    for work in (
        lambda: leases.newest("sum"),
        lambda: leases.newest("max"),
        lambda: leases.take(_lease("sum", 1, "a")),
        lambda: leases.beat(_lease("sum", 0, "a"), Beat(1)),
        lambda: listing.names("leases"),
        lambda: reading.read("leases/sum/000000000000.json"),
    ):
        with pytest.raises(
            TopicError, match=r"^storage='.*': the directory is missing or empty; restore it, or mount it again"
        ):
            work()
    assert not place.exists() or not list(place.iterdir())
    if place.exists():
        place.rmdir()
    away.rename(place)
    assert leases.newest("sum") == _lease("sum", 0, "a")


def test_an_observer_trusts_its_own_clock_alone() -> None:
    observer = Observer(10.0)
    assert not observer.expired("sum", 0, 1, 100.0)
    assert not observer.expired("sum", 0, 1, 109.9)
    assert observer.expired("sum", 0, 1, 110.0)
    assert not observer.expired("sum", 0, 2, 111.0)
    assert not observer.expired("sum", 1, 2, 130.0)
    assert observer.expired("sum", 1, 2, 140.0)
    with pytest.raises(PeerError, match="span=0: write a number of seconds above 0"):
        Observer(0)


def test_a_lower_epoch_cannot_claim_a_topic_and_its_writer_cannot_commit(root: Path) -> None:
    topic = create_topic(str(root / "t"), "{}")
    old = topic.claim("sum", epoch=3)
    file = DataFile("000000000000/x.parquet", 1, 1)
    assert old.commit(0, "d", [file])
    topic.claim("sum", epoch=5)
    with pytest.raises(TopicError, match="another writer, of epoch 5, has taken the topic from this one of epoch 3"):
        old.commit(1, "d", [file])
    for late in (4, 5):
        with pytest.raises(
            TopicError, match=f"a writer of epoch 5 has taken the topic before this one of epoch {late}"
        ):
            topic.claim("sum", epoch=late)


def test_components_are_kept_and_checked(root: Path) -> None:
    jobs = Jobs(LocalFiles(root))
    job = Job("sum", "sum.numbers", ("in",), ("out",), "checkpoint", "text", 0.5)
    jobs.add(job)
    jobs.add(job)
    assert jobs.names() == ["sum"]
    assert jobs.read("sum") == job
    with pytest.raises(PeerError, match="component='sum': the fleet has another component of this name"):
        jobs.add(Job("sum", "sum.other"))
    with pytest.raises(PeerError, match="component='max': unknown component of this fleet"):
        jobs.read("max")
    with pytest.raises(PeerError, match=r"cores=-1: write the number"):
        Job("sum", "sum", cores=-1)


# Migration, step by step.


def _with_fleet(root: Path, work: Callable[[ModelFleet], Coroutine[Any, Any, None]], names: str = "abc") -> ModelFleet:
    fleet = ModelFleet(root, seed=1)

    async def play() -> None:
        await _started(fleet, names, ("one",))
        await work(fleet)
        await _finish(fleet, ("one",))

    run(play())
    return fleet


def _other(fleet: ModelFleet) -> str:
    return next(name for name in fleet.peers if name not in fleet.holders("one"))


def test_a_planned_move_takes_few_messages_and_the_target_has_rehearsed(root: Path) -> None:
    kinds: list[str] = []

    def watch(sender: Contact, to: Contact, frame: bytes) -> bool:
        kinds.append(json.loads(frame)["kind"])
        return True

    async def work(fleet: ModelFleet) -> None:
        target = _other(fleet)
        decider = next(name for name in fleet.peers if name not in (target, *fleet.holders("one")))
        fleet.hosts[target].rehearsal = (0.1, 0.3)
        fleet.network.watch = watch
        assert await fleet.peers[decider].move("one", contact(target))
        fleet.network.watch = None
        assert fleet.holders("one") == [target]
        assert fleet.hosts[target].rehearsed == ["one"]

    _with_fleet(root, work)
    phases = [kind for kind in kinds if kind.startswith("Migration")]
    assert phases == list(STEPS[:6])
    # Of all others in that time, only the answer to the decision belongs to it; two or three report loads meanwhile.
    assert len(phases) + 1 <= 12


def test_the_first_of_two_decisions_counts(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        first, second = (name for name in fleet.peers if name != source)
        moves = await asyncio.gather(
            fleet.peers[first].move("one", contact(second)), fleet.peers[second].move("one", contact(first))
        )
        assert sorted(moves) == [False, True]
        assert fleet.holders("one") == [second if moves[0] else first]

    _with_fleet(root, work)


def test_a_target_that_cannot_leaves_the_component_where_it_is(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        target = _other(fleet)
        fleet.hosts[target].refuses = True
        assert not await fleet.peers[source].move("one", contact(target))
        assert fleet.holders("one") == [source]
        assert f"not moved to {target}: not ready: no room" in _told(fleet, source)
        assert not await fleet.peers[source].move("one", contact(source))

    _with_fleet(root, work)


def test_a_slow_rehearsal_is_waited_for_and_messages_of_it_may_be_lost(root: Path) -> None:
    kinds: list[str] = []

    def watch(sender: Contact, to: Contact, frame: bytes) -> bool:
        kinds.append(json.loads(frame)["kind"])
        return kinds.count(kinds[-1]) != {"MigrationRequest": 3, "MigrationReply": 5}.get(kinds[-1])

    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        target = _other(fleet)
        slow = 0.8 * fleet.settings.rehearsal
        assert slow > 2 * fleet.settings.start
        fleet.hosts[target].rehearsal = (slow, slow)
        fleet.network.watch = watch
        assert await fleet.peers[source].move("one", contact(target))
        fleet.network.watch = None
        assert fleet.hosts[target].rehearsed == ["one"]
        assert any(what.startswith("rehearsed, ") for what in _told(fleet, target))

    _with_fleet(root, work)
    assert kinds.count("MigrationRequest") > 4


def test_a_target_that_dies_while_it_rehearses_is_not_waited_for(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        target = _other(fleet)
        fleet.hosts[target].rehearsal = (100.0, 100.0)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        loop.call_later(2.5, fleet.kill, target)
        assert not await fleet.peers[source].move("one", contact(target))
        assert loop.time() - begun < 2.5 + fleet.settings.start / 2
        assert fleet.holders("one") == [source]
        assert f"not moved to {target}: no reply to the request" in _told(fleet, source)

    _with_fleet(root, work)


def test_a_source_that_dies_once_the_target_has_taken_over_is_not_waited_for(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        target = _other(fleet)
        (decider,) = set(fleet.peers) - {source, target}
        loop = asyncio.get_running_loop()

        def watch(sender: Contact, to: Contact, frame: bytes) -> bool:
            if json.loads(frame)["kind"] == "MigrationUpdateReply":
                fleet.kill(source)
            return True

        fleet.network.watch = watch
        begun = loop.time()
        assert await fleet.peers[decider].move("one", contact(target))
        assert loop.time() - begun < 2 * fleet.settings.start
        assert fleet.holders("one") == [target]

    _with_fleet(root, work)


def test_a_source_that_dies_while_its_target_rehearses_is_not_waited_for(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        target = _other(fleet)
        (decider,) = set(fleet.peers) - {source, target}
        fleet.hosts[target].rehearsal = (30.0, 30.0)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        loop.call_later(2.5, fleet.kill, source)
        moved = await fleet.peers[decider].move("one", contact(target))
        assert loop.time() - begun < fleet.settings.rehearsal + 3 * fleet.settings.start
        assert moved == (fleet.holders("one") == [target])

    _with_fleet(root, work)


def test_a_target_that_dies_after_the_source_has_stopped_is_replaced_by_the_source(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        target = _other(fleet)

        def watch(sender: Contact, to: Contact, frame: bytes) -> bool:
            if json.loads(frame)["kind"] == "MigrationUpdate":
                fleet.kill(target)
            return True

        fleet.network.watch = watch
        assert not await fleet.peers[source].move("one", contact(target))
        assert fleet.holders("one") == [source]
        assert f"taken back from {target}: no reply to the update" in _told(fleet, source)

    _with_fleet(root, work)


def test_a_dead_peers_components_are_revived_and_it_finds_its_leases_gone(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        for machine in (fleet.machines[source], fleet.engines[source]):
            machine.pause()
        before = asyncio.get_running_loop().time()
        await fleet.wait_for(lambda: len(fleet.holders("one")) == 2, 60, "a second owner")
        assert asyncio.get_running_loop().time() - before <= 4 * fleet.settings.span
        for machine in (fleet.machines[source], fleet.engines[source]):
            machine.resume()
        await fleet.wait_for(lambda: source not in fleet.holders("one"), 2, "the first owner's end")

    _with_fleet(root, work)


def test_an_engine_that_runs_on_while_its_agent_is_stopped_is_fenced_by_the_topic(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        fleet.machines[source].pause()
        await fleet.wait_for(lambda: set(fleet.holders("one")) - {source} != set(), 60, "another owner")
        await asyncio.sleep(5)
        assert source not in fleet.holders("one")
        fleet.machines[source].resume()
        await asyncio.sleep(1)
        why = "another writer, of epoch 1, has taken the topic from this one of epoch 0"
        (event,) = [what for what in _told(fleet, source) if why in what]
        assert "failure" not in event

    _with_fleet(root, work)


def test_a_peer_without_storage_stops_its_components_after_half_a_span(root: Path) -> None:
    async def work(fleet: ModelFleet) -> None:
        (source,) = fleet.holders("one")
        fleet.machines[source].storage_is_cut = True
        fleet.hosts[source].until = lambda: 0  # it has nothing to write, so that only its lease can stop it
        await fleet.wait_for(lambda: source not in fleet.holders("one"), 0.8 * fleet.settings.span, "its stop")
        await fleet.wait_for(lambda: len(fleet.holders("one")) == 1, 60, "another owner")
        fleet.machines[source].storage_is_cut = False

    _with_fleet(root, work)


def test_a_hot_peer_is_relieved_by_the_fleet_itself_and_nothing_bounces(root: Path) -> None:
    async def play() -> None:
        fleet = ModelFleet(root, seed=2)
        jobs = ("one", "two", "three")
        await _started(fleet, "abcd", jobs)
        for host in fleet.hosts.values():
            host.load = lambda host=host: min(1.0, 0.3 * len(host._running) + 0.1)  # type: ignore[misc]
        for job in jobs[1:]:
            (source,) = fleet.holders(job)
            (home,) = fleet.holders("one")
            if source != home:
                assert await fleet.peers[home].move(job, contact(home))
        (home,) = fleet.holders("one")
        assert fleet.hosts[home].measure().load > 0.99
        await fleet.wait_for(lambda: fleet.hosts[home].measure().load < 0.5, 30 * fleet.settings.period, "relief")
        await fleet.wait_for(lambda: all(map(fleet.holders, jobs)), fleet.settings.period, "the end of the last move")
        moved = [fleet.holders(job) for job in jobs]
        await asyncio.sleep(50 * fleet.settings.period)
        assert [fleet.holders(job) for job in jobs] == moved
        await _finish(fleet, jobs)

    run(play())


def test_a_peer_that_is_drained_gives_everything_away_and_takes_nothing(root: Path) -> None:
    async def play() -> None:
        fleet = ModelFleet(root, seed=3)
        jobs = ("one", "two")
        await _started(fleet, "abc", jobs)
        await asyncio.sleep(10)
        (leaving,) = fleet.holders("one")
        assert await fleet.peers[leaving].drain() == []
        assert fleet.holders("one") not in ([], [leaving])
        assert leaving not in fleet.holders("two")
        assert not await fleet.peers[leaving].move("one", contact(leaving))
        host = fleet.holders("one")[0]
        events = _told(fleet, host)
        assert f"not moved to {leaving}: not ready: peer {leaving} is about to leave" in events
        fleet.kill(host)
        await fleet.wait_for(lambda: fleet.holders("one") not in ([], [host]), 60, "another owner")
        assert leaving not in fleet.holders("one")
        await _finish(fleet, jobs)

    run(play())


def test_a_last_peer_keeps_what_nobody_else_can_take(root: Path) -> None:
    async def play() -> None:
        fleet = ModelFleet(root, seed=3)
        await _started(fleet, "a", ("one",))
        assert await fleet.peers["a"].drain() == ["one"]
        await _finish(fleet, ("one",))

    run(play())


# Everything at once.


async def _storm(fleet: ModelFleet, seed: int, seconds: float) -> None:
    """Moves, deaths, pauses, partitions and cuts from storage by seed; one of them at a step of the protocol."""
    random = fleet.network.random
    loop = asyncio.get_running_loop()
    step, action = STEPS[seed % len(STEPS)], ACTIONS[seed // len(STEPS) % len(ACTIONS)]
    seen = 0

    async def fault(what: str, name: str) -> None:
        machine = fleet.machines[name]
        if machine.is_dead:
            return
        lasts = random.choice((0.5, 2.0, 5.0, 9.0, 15.0))
        if what == "kill":
            fleet.kill(name)
            await asyncio.sleep(lasts)
            await fleet.start(name)
        elif what == "pause":
            engine = fleet.engines[name]
            stopped = random.choice(((machine,), (engine,), (machine, engine)))
            for one in stopped:
                one.pause()
            await asyncio.sleep(lasts)
            for one in stopped:
                one.resume()
        elif what == "partition":
            rest = [other for other in fleet.peers if other != name]
            random.shuffle(rest)
            fleet.network.partition((name, *rest[: random.randrange(len(rest))]))
            await asyncio.sleep(lasts)
            fleet.network.heal()
        elif what == "storage":
            engine = fleet.engines[name]
            machine.storage_is_cut = engine.storage_is_cut = True
            await asyncio.sleep(lasts)
            machine.storage_is_cut = engine.storage_is_cut = False

    faults: list[asyncio.Task[None]] = []

    def watch(sender: Contact, to: Contact, frame: bytes) -> bool:
        nonlocal seen
        if json.loads(frame)["kind"] != step:
            return True
        seen += 1
        if seen % 3 != 1:
            return True
        if action != "drop":
            faults.append(loop.create_task(fault(action, random.choice((sender, to)).name)))
        return action != "drop" and random.random() < 0.5

    fleet.network.watch = watch
    ends = loop.time() + seconds
    while loop.time() < ends:
        await asyncio.sleep(random.uniform(0.5, 4.0))
        names = [name for name in fleet.peers if not fleet.machines[name].is_dead]
        if random.random() < 0.7:
            peer = fleet.peers[random.choice(names)]
            move = _try_to_move(peer, random.choice(("one", "two")), contact(random.choice(list(fleet.peers))))
            peer.agent.machine.spawn(move)
        elif random.random() < 0.5:
            faults.append(loop.create_task(fault(random.choice(ACTIONS[1:]), random.choice(names))))
    fleet.network.watch = None
    await asyncio.gather(*faults)
    fleet.network.heal()
    fleet.network.loss = 0.0


async def _try_to_move(peer: Any, component: str, target: Contact) -> None:
    with contextlib.suppress(PeerError, OSError):
        await peer.move(component, target)


@pytest.mark.parametrize("seed", range(size(quick=16, slow=200)))
def test_whatever_fails_nothing_is_lost_or_doubled_and_no_epoch_has_two_owners(root: Path, seed: int) -> None:
    async def play() -> None:
        fleet = ModelFleet(root, seed=seed, loss=(0.0, 0.05, 0.2)[seed % 3])
        await _started(fleet, "abcd", ("one", "two"))
        await _storm(fleet, seed, 60.0)
        await _finish(fleet, ("one", "two"))

    run(play())


def test_four_idle_peers_say_little(root: Path) -> None:
    """The bar is 10 messages a second in all, with the times that users get; 4.3 were counted."""

    async def work() -> None:
        fleet = ModelFleet(root, seed=1, settings=Settings(evaluations=100))
        for name in "abcd":
            await fleet.start(name)
        await asyncio.sleep(60)
        before = fleet.network.sent
        await asyncio.sleep(600)
        assert (fleet.network.sent - before) / 600 < 5

    run(work())
