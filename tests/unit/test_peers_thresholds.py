"""The thresholds h, l and t and the load levels that users set: what is hot with them, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
from support.fleets import agent, contact

from braided.balance.levels import EqualLevels
from braided.errors import BraidedError, PeerError
from braided.fleet.discovery import Discovery
from braided.fleet.load_watch import Move, Watch
from braided.fleet.peer_loads import ComponentLoad, LoadUpdate
from braided.fleet.thresholds import LEVELS, Thresholds, read_levels
from braided.fleet.virtual_network import VirtualNetwork, run

PAPER = Thresholds(overload=2.0, imbalance=0.2, lasting=1, levels=EqualLevels())


def _moves(thresholds: Thresholds, loads: dict[str, float], *, periods: int = 1) -> list[Move]:
    """Return what is decided of peers with these loads, each of which has a component of a third of its load."""

    async def watch() -> list[Move]:
        made, _ = agent(VirtualNetwork(), "w")
        watch = Watch(Discovery(made), lambda move: asyncio.sleep(0, True), thresholds=thresholds)
        decided = []
        for _ in range(periods):
            for name, load in loads.items():
                part = ComponentLoad(f"on {name}".replace(" ", "-"), "join", load / 3)
                watch._update(contact(name), LoadUpdate((load, load, load), ("join",), (part,)))
            decided += watch.step()
        return decided

    return run(watch())


def test_the_paper_s_criteria_are_absolute_loads_and_one_period_of_a_minute() -> None:
    assert [move.source.name for move in _moves(PAPER, {"a": 2.1, "b": 0.5})] == ["a"]
    assert _moves(PAPER, {"a": 1.9, "b": 0.1}, periods=9) == [], "not above h"
    even = {"a": 2.6, "b": 2.45}
    assert _moves(PAPER, even, periods=9) == [], "not further apart than l"
    assert _moves(Thresholds(), {"a": 2.1, "b": 0.5}) == [], "ours asks for three periods"
    assert [move.source.name for move in _moves(Thresholds(), {"a": 2.1, "b": 0.5}, periods=3)] == ["a"]


def test_t_is_the_span_over_which_the_average_must_exceed_h() -> None:
    async def decided(lasting: int) -> int:
        """Return after how many periods above h something is decided, after fifteen far below."""
        made, _ = agent(VirtualNetwork(), "w")
        thresholds = Thresholds(overload=0.5, imbalance=0.1, lasting=lasting)
        watch = Watch(Discovery(made), lambda move: asyncio.sleep(0, True), thresholds=thresholds)
        for period in range(40):
            load = 0.1 if period < 15 else 0.9
            part = (ComponentLoad("x", "join", load / 3),)
            watch._update(contact("a"), LoadUpdate((load, 0.1, 0.1), ("join",), part))
            watch._update(contact("b"), LoadUpdate((0.1, 0.1, 0.1), ("join",)))
            if watch.step():
                return period - 14
        return 40

    assert [run(decided(lasting)) for lasting in (1, 5, 15)] == [1, 3, 8]


def test_equal_levels_are_the_paper_s() -> None:
    levels = EqualLevels(count=3, overlap=0.2, top=10.0)
    assert levels.bounds == (5.0, 10.0)
    at = [levels.level(load) for load in (0.0, 4.99, 5.0, 9.9, 10.0, 300.0)]
    assert at == [0, 0, 1, 1, 2, 2]
    assert [levels.level(load, 1) for load in (4.95, 4.85, 10.05, 10.15)] == [1, 0, 1, 2]
    assert read_levels("5,0.2,10") == EqualLevels()
    assert read_levels("4") == EqualLevels(count=4, overlap=0.0, top=1.0)
    assert read_levels(None) is LEVELS


@pytest.mark.parametrize("text", ["", "five", "1", "5,9", "5,0.1,0", "5,0.1,1,1", "2.5"])
def test_levels_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(PeerError, match=r"write a number of levels, their overlap and the top, such as 5,0.02,1"):
        read_levels(text)


def test_thresholds_that_cannot_be_are_refused() -> None:
    with pytest.raises(PeerError, match=r"overload=0: write a load above 0; 1 is all cores of a peer"):
        Thresholds(overload=0)
    with pytest.raises(PeerError, match=r"lasting=3: write one of 1, 5, 15 periods"):
        Thresholds(lasting=3)
    with pytest.raises(BraidedError, match=r"count=1, top=10.0: write 2 to 1,000 levels"):
        EqualLevels(count=1)
