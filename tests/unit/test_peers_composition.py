"""Composition of applications from operator names: fastest peers, shared components, refusals with reasons."""

from __future__ import annotations

import itertools
import random

import pytest

from braided.errors import PeerError
from braided.fleet.composition import Application, Candidate, Running, Step, compose, signatures


def _peer(name: str, load: float = 0.0, offers: tuple[str, ...] = ("*",), **latency: float) -> Candidate:
    return Candidate(name, name, offers, load, 2.0, latency)


def _chain(*operators: str, latency: float = 10.0, seconds: float = 0.1, cores: float = 0.0) -> Application:
    names = ["topic", *(f"s{place}" for place in range(len(operators)))]
    steps = [
        Step(names[place + 1], operator, (names[place],), seconds=seconds, cores=cores)
        for place, operator in enumerate(operators)
    ]
    return Application("app", tuple(steps), latency)


def test_idle_and_near_peers_are_chosen() -> None:
    app = _chain("filter.calls", "join.window.phone")
    peers = [_peer("busy", 0.9), _peer("idle", 0.1), _peer("other", 0.1, idle=0.5)]
    composition = compose(app, peers)
    assert [placed.node for placed in composition.placed] == ["idle", "idle"]
    assert composition.latency == pytest.approx(0.2 / 0.9)


def test_operators_are_found_by_alias() -> None:
    app = _chain("filter.calls", "join.window.phone")
    peers = [_peer("f", offers=("filter.*",), j=0.05), _peer("j", offers=("join.window.*",)), _peer("n", offers=("x",))]
    composition = compose(app, peers)
    assert [placed.node for placed in composition.placed] == ["f", "j"]
    assert composition.latency == pytest.approx(0.25)


def test_what_runs_already_is_shared_with_all_that_it_reads() -> None:
    app = _chain("filter.calls", "join.window.phone", "top")
    computed = signatures(app)
    running = [Running("old", computed["s1"], "b", "/topics/old"), Running("x", "another", "a", "/topics/x")]
    composition = compose(app, [_peer("a", b=0.001), _peer("b", 0.3)], running)
    assert [placed.shared.component if placed.shared else None for placed in composition.placed] == [None, "old", None]
    assert composition.placed[1].node == "b"


def test_the_same_operator_on_other_topics_or_with_another_definition_is_not_shared() -> None:
    def of(topic: str, text: str) -> str:
        return signatures(Application("a", (Step("s", "join", (topic,), text),), 1.0))["s"]

    assert of("t", "x") == of("t", "x")
    assert len({of("t", "x"), of("u", "x"), of("t", "y")}) == 3


def test_names_of_steps_do_not_matter_for_sharing() -> None:
    one = Application("a", (Step("s", "f", ("t",)), Step("r", "g", ("s",))), 1.0)
    other = Application("b", (Step("p", "f", ("t",)), Step("q", "g", ("p",))), 1.0)
    assert signatures(one)["r"] == signatures(other)["q"]


def test_the_fastest_of_all_compositions_is_found() -> None:
    generator = random.Random(1)
    for _ in range(30):
        names = ["a", "b", "c"]
        peers = [
            _peer(name, generator.random() * 0.9, **{other: generator.random() for other in names if other != name})
            for name in names
        ]
        steps = (
            Step("one", "x", ("t",), seconds=generator.random(), cores=0.3),
            Step("two", "x", ("t", "one"), seconds=generator.random(), cores=0.3),
            Step("three", "x", ("one", "two"), seconds=generator.random(), cores=0.3),
        )
        app = Application("app", steps, 1e6)
        fastest = float("inf")
        for hosts in itertools.product(peers, repeat=3):
            room = {peer.node: peer.free() for peer in peers}
            arrives: dict[str, tuple[float, Candidate]] = {}
            for step, host in zip(steps, hosts, strict=True):
                room[host.node] -= step.cores
                before = [arrives[name] for name in step.inputs if name in arrives]
                far = [
                    at + (0.0 if other is host else max(other.latency[host.node], host.latency[other.node]))
                    for at, other in before
                ]
                arrives[step.name] = (max(far, default=0.0) + step.seconds / (1 - min(0.95, host.load)), host)
            if min(room.values()) >= -1e-9:
                fastest = min(fastest, max(at for at, _ in arrives.values()))
        if fastest < float("inf"):
            assert compose(app, peers).latency == pytest.approx(fastest)


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (_chain("filter", "nobody.has"), "operator='nobody.has': no peer can host it, so step 's1' cannot run"),
        (
            _chain("filter", latency=0.15),
            "latency=0.15: the fastest composition takes 0.2 s; most of it step 's0', 0.2 s on peer a, whose load is 0.50",
        ),
        (
            _chain("filter", "filter", cores=0.7),
            "step='s1': needs 0.7 cores, but no peer that can host filter has more than 1, minus the cores of the other steps",
        ),
    ],
)
def test_what_cannot_be_composed_is_refused_with_the_reason(app: Application, text: str) -> None:
    with pytest.raises(PeerError) as caught:
        compose(app, [_peer("a", 0.5, ("filter", "join.*"))])
    assert str(caught.value) == text


def test_applications_that_cannot_be_are_refused() -> None:
    circle = Application("app", (Step("a", "x", ("b",)), Step("b", "x", ("a",)), Step("c", "x", ("t",))), 1.0)
    with pytest.raises(PeerError, match=r"application='app': \['a', 'b'\] read from each other in a cycle"):
        circle.in_order()
    with pytest.raises(PeerError, match="latency=0: write a number of seconds above 0"):
        Application("app", (Step("a", "x", ("t",)),), 0)
    with pytest.raises(PeerError, match="give it steps with different names"):
        Application("app", (Step("a", "x", ("t",)), Step("a", "x", ("t",))), 1.0)
    with pytest.raises(PeerError, match="step='a': has no inputs; give it steps or topics"):
        Step("a", "x", ())
    with pytest.raises(PeerError, match="step='a': write seconds and cores"):
        Step("a", "x", ("t",), cores=-1.0)
