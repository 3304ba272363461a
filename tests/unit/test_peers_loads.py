"""Loads by levels, and hot spots as the responsible peer judges them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import numpy as np
import pytest
from support.fleets import agent, contact

from braided.errors import PeerError
from braided.fleet.contact_buckets import key_of
from braided.fleet.discovery import Discovery
from braided.fleet.host_index import MAX_TOLD as MAX_HOSTS_TOLD
from braided.fleet.host_index import Hosts
from braided.fleet.load_watch import Move, Watch
from braided.fleet.messages import LIMIT, Contact, Envelope, encode
from braided.fleet.operator_names import check_operator, check_pattern, covers, patterns_of
from braided.fleet.peer_loads import (
    MAX_TOLD,
    ComponentLoad,
    LoadReporter,
    LoadUpdate,
    Measured,
    ReportedLoads,
    _history,
    largest,
)
from braided.fleet.survey import MAX_LATENCIES, Description
from braided.fleet.virtual_network import VirtualNetwork, run

PERIOD = 5.0


class Peer:
    """A peer whose load is a function of time, and which moves components at once."""

    def __init__(self, network: VirtualNetwork, name: str, load: Callable[[], Measured], fleet: list[Peer]) -> None:
        self.agent, self.machine = agent(network, name)
        self.discovery = Discovery(self.agent)
        self.reporter = LoadReporter(self.discovery, load, period=PERIOD)
        self.carried: list[Move] = []
        self.watch = Watch(self.discovery, self._carry, period=PERIOD)
        fleet.append(self)

    async def _carry(self, move: Move) -> bool:
        self.carried.append(move)
        await self.machine.sleep(3.0)
        return True

    async def start(self, first: Peer, *operators: str) -> None:
        if first is not self:
            await self.discovery.join([first.agent.contact])
        for operator in operators:
            await self.discovery.register(operator)
        for work in (self.discovery.keep(), self.reporter.keep(), self.watch.keep()):
            self.machine.spawn(work)


async def _fleet(
    network: VirtualNetwork, loads: dict[str, Callable[[], Measured]], operators: tuple[str, ...] = ("join",)
) -> list[Peer]:
    fleet: list[Peer] = []
    for name, load in loads.items():
        peer = Peer(network, name, load, fleet)
        await peer.start(fleet[0], *operators)
    for peer in fleet:  # those that came first knew few of the others
        for operator in operators:
            await peer.discovery.register(operator)
    return fleet


def _steady(load: float, *components: tuple[str, float]) -> Callable[[], Measured]:
    return lambda: Measured(load, tuple(ComponentLoad(name, "join", part) for name, part in components))


def _moves(fleet: list[Peer]) -> list[Move]:
    return [move for peer in fleet for move in peer.carried]


def test_updates_by_levels_are_far_fewer_than_polls_and_none_is_out_by_more_than_its_level() -> None:
    async def watch() -> None:
        network = VirtualNetwork(seed=3)
        generator = random.Random(3)
        now: dict[str, float] = {}

        def load(name: str) -> Callable[[], Measured]:
            base = [generator.uniform(0.1, 0.9)]

            def measure() -> Measured:
                if generator.random() < 0.01:  # the work changes every ten minutes
                    base[0] = generator.uniform(0.1, 0.9)
                now[name] = base[0] * generator.uniform(0.93, 1.07)
                return Measured(now[name])

            return measure

        names = [f"peer{number}" for number in range(6)]
        fleet = await _fleet(network, {name: load(name) for name in names})
        periods = 200
        await asyncio.sleep(periods * PERIOD)
        polls = periods * len(names) * 3  # three peers are responsible
        assert sum(peer.reporter.sent for peer in fleet) * 5 <= polls
        holder = next(peer for peer in fleet if peer.watch.loads.reports())
        for node, (peer, _) in holder.watch.loads.reports().items():
            assert abs(holder.watch.loads.of([node]).over(1)[0] - now[peer.name]) <= 0.5 * now[peer.name] + 0.2

    run(watch())


def test_a_hot_peer_gives_a_component_to_the_least_loaded_that_can_take_it() -> None:
    async def watch() -> list[Move]:
        hot = _steady(0.95, ("small", 0.1), ("large", 0.35))
        fleet = await _fleet(VirtualNetwork(), {"a": _steady(0.3), "b": _steady(0.4), "c": hot, "d": _steady(0.1)})
        await asyncio.sleep(6 * PERIOD)
        return _moves(fleet)

    (move,) = run(watch())
    assert (move.component, move.source.name, move.target.name) == ("large", "c", "d")
    assert move.reason.startswith("peer c: load 0.950 and 0.950 over 5 periods, above 0.525 and 0.525; spread 0.850")


def test_a_busy_peer_tells_how_its_components_share_its_load_when_that_changes() -> None:
    async def watch() -> None:
        shares = {"x": 0.6, "y": 0.3}

        def busy() -> Measured:
            return Measured(0.9, tuple(ComponentLoad(name, "join", part) for name, part in shares.items()))

        fleet = await _fleet(VirtualNetwork(), {"a": busy, "b": _steady(0.9)})
        await asyncio.sleep(4 * PERIOD)
        before = fleet[0].reporter.sent
        shares.update(x=0.62, y=0.29)
        await asyncio.sleep(3 * PERIOD)
        assert fleet[0].reporter.sent == before
        shares.update(x=0.2, y=0.7)
        await asyncio.sleep(2 * PERIOD)
        reports = fleet[1].watch.loads.reports()
        assert {part.name: part.load for part in reports[contact("a").node][1].components} == shares
        assert _moves(fleet) == []

    run(watch())


def test_of_moves_that_relieve_about_as_much_the_lightest_component_s_is_taken() -> None:
    async def watch() -> list[Move]:
        hot = _steady(0.98, ("heavy", 0.62), ("light", 0.3), ("tiny", 0.05))
        fleet = await _fleet(VirtualNetwork(), {"a": _steady(0.01), "b": hot})
        await asyncio.sleep(6 * PERIOD)
        return _moves(fleet)

    assert [(move.component, move.source.name, move.target.name) for move in run(watch())] == [("light", "b", "a")]


@pytest.mark.parametrize(
    "loads",
    [
        {"a": _steady(0.9, ("x", 0.4)), "b": _steady(0.85, ("y", 0.3)), "c": _steady(0.95, ("z", 0.3))},  # all are busy
        {"a": _steady(0.4, ("x", 0.3)), "b": _steady(0.05)},  # nobody is
        {"a": _steady(0.9, ("x", 0.05)), "b": _steady(0.9), "c": _steady(0.9)},
        {"a": _steady(0.9)},
    ],
)
def test_where_nothing_is_gained_nothing_moves(loads: dict[str, Callable[[], Measured]]) -> None:
    async def watch() -> list[Move]:
        fleet = await _fleet(VirtualNetwork(), loads)
        await asyncio.sleep(40 * PERIOD)
        return _moves(fleet)

    assert run(watch()) == []


def test_a_burst_is_no_hot_spot() -> None:
    async def watch() -> list[Move]:
        periods = [0]

        def burst() -> Measured:
            periods[0] += 1
            return Measured(0.95 if periods[0] % 12 < 2 else 0.2, (ComponentLoad("x", "join", 0.5),))

        fleet = await _fleet(VirtualNetwork(), {"a": _steady(0.1), "b": burst})
        await asyncio.sleep(60 * PERIOD)
        return _moves(fleet)

    assert run(watch()) == []


def test_a_move_is_decided_within_three_periods_after_the_load_has_lasted() -> None:
    async def watch() -> tuple[float, list[Move]]:
        rises = 20 * PERIOD

        def rising() -> Measured:
            load = 0.1 if asyncio.get_running_loop().time() < rises else 0.95
            return Measured(load, (ComponentLoad("x", "join", load / 2),))

        fleet = await _fleet(VirtualNetwork(), {"a": _steady(0.1), "b": rising})
        while not _moves(fleet):
            await asyncio.sleep(0.1)
        return (asyncio.get_running_loop().time() - rises) / PERIOD, _moves(fleet)

    # The average over five periods exceeds its limit after three at 0.95; persistence asks for three.
    periods, moves = run(watch())
    assert periods <= 6
    assert len(moves) == 1


def test_another_takes_over_the_watch_when_the_responsible_peer_dies() -> None:
    async def watch() -> list[Move]:
        network = VirtualNetwork(seed=1)
        loads = {name: _steady(0.1) for name in "abcdef"}
        hot = [0.1]
        loads["c"] = lambda: Measured(hot[0], (ComponentLoad("x", "join", 0.4),))
        fleet = await _fleet(network, loads)
        nearest = min(fleet, key=lambda peer: peer.agent.contact.number ^ key_of("join"))
        assert nearest.agent.contact.name != "c"
        nearest.machine.kill()
        hot[0] = 0.95
        await asyncio.sleep(120)
        assert not nearest.carried
        return _moves(fleet)

    moves = run(watch())
    assert moves
    assert {(move.component, move.source.name) for move in moves} == {("x", "c")}


def test_a_component_does_not_return_until_the_loads_have_turned_round() -> None:
    async def watch() -> None:
        network = VirtualNetwork()
        made, _ = agent(network, "a")
        loads = {"b": 0.9, "c": 0.3}
        watch = Watch(Discovery(made), lambda move: asyncio.sleep(0, True))

        def periods(count: int) -> list[Move]:
            decided = []
            for _ in range(count):
                for name, load in loads.items():
                    parts = (ComponentLoad("x", "join", 0.3),) if name == "b" else ()
                    watch._update(contact(name), LoadUpdate((load, load, load), ("join",), parts))
                decided += watch.step()
            return decided

        watch.moved("x", contact("c").node, contact("b").node)
        loads.update(b=0.7, c=0.9)
        assert periods(30) == []  # c is hot and has nothing; b's x came from c
        loads.update(b=0.95, c=0.2)
        assert [move.target.name for move in periods(20)][:1] == ["c"]

    run(watch())


def test_a_silent_peer_is_forgotten() -> None:
    async def watch() -> None:
        network = VirtualNetwork()
        fleet = await _fleet(network, {"a": _steady(0.1), "b": _steady(0.2)})
        await asyncio.sleep(5 * PERIOD)
        assert contact("b").node in fleet[0].watch.loads.reports()
        fleet[1].machine.kill()
        await asyncio.sleep(40 * PERIOD)
        assert contact("b").node not in fleet[0].watch.loads.reports()
        assert await fleet[0].discovery.hosts("join") == [contact("a")]

    run(watch())


def test_peers_and_components_that_are_gone_do_not_fill_the_watch() -> None:
    async def watch() -> None:
        made, _ = agent(VirtualNetwork(), "a")
        watch = Watch(Discovery(made), lambda move: asyncio.sleep(0, True))
        for number in range(300):
            name = f"peer{number}"
            part = ComponentLoad(f"component{number}", "join", 0.3)
            watch._update(contact(name), LoadUpdate((0.9, 0.9, 0.9), ("join",), (part,)))
            watch.step()
            watch.loads.forget(contact(name).node)
        assert len(watch._hosts) <= 103

    run(watch())


def test_reports_of_many_components_and_hosts_fit_into_a_message() -> None:
    parts = tuple(ComponentLoad("c" * 96 + f"{number:04d}", "o" * 100, number / 1000 + 1 / 3) for number in range(900))
    told = largest(parts)
    assert [part.load for part in told[:2]] == [parts[899].load, parts[898].load]
    latency = {contact(f"peer{number}").node: 0.1234567890123456789 / 7 for number in range(300)}
    host = Contact("f" * 40, "h" * 250 + ":65535", "n" * 100)
    for sent in (
        LoadUpdate((1 / 3, 1 / 3, 1 / 3), ("p" * 100,), told),
        Description(1 / 3, 2.0, ("p" * 100,), told, latency),
        Hosts((host,) * 100, (1 / 3,) * 100),
    ):
        assert len(encode(Envelope(host, 1, True, sent))) <= LIMIT
    assert (MAX_TOLD, MAX_HOSTS_TOLD, MAX_LATENCIES) == (100, 100, 300)


def test_averages_begin_as_reported() -> None:
    loads = _history((0.9, 0.5, 0.2))
    assert [float(loads.over(horizon)[0]) for horizon in (1, 5)] == pytest.approx([0.9, 0.5])
    assert float(loads.over(15)[0]) == pytest.approx(0.2)
    reported = ReportedLoads()
    reported.update(contact("a"), LoadUpdate((0.4, 0.2, 0.2), ()))
    reported.period()
    assert reported.of([contact("a").node]).over(5)[0] == pytest.approx((3 * 0.15 + 0.4 + 0.4) / 5)
    assert np.array_equal(reported.of(["nobody"]).over(5), [0.0])


def test_names_and_patterns() -> None:
    assert covers("join.*", "join.window")
    assert not covers("join.*", "joint.window")
    assert all(covers(pattern, "a.b.c") for pattern in patterns_of("a.b.c"))
    for wrong in ("", "a..b", ".a", "a.*", "a b", "../a", "a" * 101):
        with pytest.raises(PeerError, match="write parts separated by dots"):
            check_operator(wrong)
    for wrong in ("", "*.a", "a.**", "a.*.b"):
        with pytest.raises(PeerError, match=r"write an operator's name, or a prefix such as 'join\.\*'"):
            check_pattern(wrong)


@pytest.mark.parametrize(
    ("loads", "hosts", "text"),
    [
        ((0.1, 0.2), (), r"loads=\(0.1, 0.2\): write 3 loads of 0 or more"),
        ((0.1, 0.2, -0.1), (), "write 3 loads of 0 or more"),
        ((0.1, 0.2, 0.3), ("../x",), "hosts='../x': write an operator's name"),
    ],
)
def test_reports_that_cannot_be_are_refused(loads: tuple[float, ...], hosts: tuple[str, ...], text: str) -> None:
    with pytest.raises(PeerError, match=text):
        LoadUpdate(loads, hosts)


def test_a_period_must_be_one() -> None:
    made, _ = agent(VirtualNetwork(), "a")
    with pytest.raises(PeerError, match=r"period=0: write a number of seconds above 0"):
        LoadReporter(Discovery(made), lambda: Measured(0.0), period=0)
