"""The simulated fleet and the figures of EBS and Synergy in small: conservation, the paper's shapes, repetition."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles import some

from braided.fleet.component_host import Job
from braided.fleet.contact_buckets import key_of
from braided.fleet.fleet_peer import Settings
from braided.fleet.messages import Contact, decode
from braided.fleet.virtual_network import run
from braided.sim import ebs
from braided.sim.simulated_fleet import MIGRATION, Pipelines, SimulatedFleet, contact, share
from braided.sim.synergy import Setup, paper_thresholds, play, updates_per_peer, without_moves

SMALL = Setup(hosts=8, seconds=900.0, turn=900.0, seed=3)
SECONDS = 40.0


@given(wanted=st.lists(st.floats(0, 2), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_a_host_shares_its_cpu_evenly_and_wastes_none(wanted: list[float], seed: int) -> None:
    at = np.random.default_rng(seed).integers(0, 3, len(wanted))
    want = np.array(wanted)
    given_ = share(want, at, 3, 1.0)
    assert (given_ <= want + 1e-9).all()
    for host in range(3):
        here = at == host
        assert given_[here].sum() == pytest.approx(min(1.0, want[here].sum()))
        short = here & (given_ < want - 1e-9)
        if short.any():
            assert given_[short].min() >= given_[here].max() - 1e-9, "who wants more has no less than others"


def test_tuples_are_not_lost_while_components_move() -> None:
    rate = np.array([50.0, 0.0, 30.0])
    model = Pipelines(["a", "b", "c"], ["o"] * 3, np.full(3, 0.01), np.array([-1, 0, -1]), lambda now: rate, 2)
    random = np.random.default_rng(1)
    for tick in range(300):
        model.at = random.integers(-1, 2, 3)
        model.tick(float(tick))
    came = 300 * rate.sum()
    # A tuple is delivered by the last of its pipeline; between two it is on its way for a tick.
    assert model.done + model.waiting.sum() + model.served[0] == pytest.approx(came)


def _phases(fleet: SimulatedFleet) -> list[str]:
    seen: list[str] = []

    def watch(sender: Contact, to: Contact, frame: bytes) -> bool:
        kind = type(decode(frame).message).__name__
        if kind in MIGRATION:
            seen.append(kind)
        return True

    fleet.network.watch = watch
    return seen


def test_a_hot_host_gives_a_component_away_by_the_six_phases_and_what_waits_comes_along() -> None:
    rate = np.array([900.0, 900.0, 10.0])
    model = Pipelines(["a", "b", "c"], ["o"] * 3, np.full(3, 1e-3), np.full(3, -1), lambda now: rate, 4)
    fleet = SimulatedFleet(model, [("o",)] * 4, Settings(period=5.0, placement=1e9), seed=1)
    seen = _phases(fleet)
    # The peer that watches this operator is neither: what it decided about itself would be no message.
    hot, other = sorted(range(4), key=lambda number: contact(f"peer{number}").number ^ key_of("o"))[2:]
    samples = run(fleet.run([Job(name, "o") for name in "abc"], [hot, hot, other], 600.0, every=10.0))
    assert fleet.moves == 1
    assert len(set(samples[-1].at[:2].tolist())) == 2, "the two heavy ones are apart"
    assert [kind for kind, _ in itertools.groupby(seen)] == list(MIGRATION)
    assert fleet.migration_messages == 7
    assert samples[-1].waiting.sum() < 10 < max(sample.waiting.sum() for sample in samples)
    assert model.done + model.waiting.sum() == pytest.approx(600 * rate.sum())


def test_synergy_moves_help_and_two_runs_are_equal() -> None:
    still = play(SMALL, without_moves(paper_thresholds()), counts_processes=True)
    moved, again = (play(SMALL, paper_thresholds(1.2), counts_processes=True) for _ in range(2))
    assert still.moves == 0
    assert moved.moves > 0
    assert np.mean(moved.delays[-5:]) < np.mean(still.delays[-5:])
    assert (moved.delays, moved.updates, moved.migration_messages) == (
        again.delays,
        again.updates,
        again.migration_messages,
    )
    assert [sample.at.tolist() for sample in moved.samples] == [sample.at.tolist() for sample in again.samples]


def test_finer_levels_take_more_updates_and_far_fewer_than_polling() -> None:
    sent = [updates_per_peer(SMALL, paper_thresholds(levels=count)) for count in (3, 7)]
    assert 0 < sent[0] < sent[1] < 60 * 3 * SMALL.offered / 3


def test_k_is_learned_as_in_figure_5a() -> None:
    found = ebs.hits(20_000, 1)
    none, half = (ebs.order_hits(found, margin) for margin in (0.0, 0.5))
    expert = ebs.order_hits(found, 0.0, 500_000)
    assert 0.95 < none.in_order.mean() < 1
    assert half.in_order[100:].all(), "once K has been learned"
    assert (half.lateness[100:] > none.lateness[100:]).all()
    assert expert.in_order.all()
    assert 50_000 < half.latency[1000:-1000].mean() < 70_000
    assert expert.latency[1000:-1000].mean() > 500_000


@pytest.mark.parametrize("seed", some([1, 2, 3], 1))
def test_a_move_of_a_detector_fails_the_classic_way_alone(seed: int) -> None:
    classic, forwarding, topics = (move(SECONDS, seed) for move in (ebs.classic, ebs.forwarding, ebs.by_topics))
    assert classic.failures > 0
    assert (forwarding.failures, topics.failures) == (0, 0)
    assert forwarding.lateness[0] > forwarding.lateness[-1] >= classic.lateness[-1] - 5
    assert topics.forwarded == 0 < 100 * forwarding.forwarded < classic.forwarded
    assert topics.slowest >= ebs.GAP / ebs.SECOND > forwarding.slowest


@pytest.mark.parametrize("move", [ebs.classic, ebs.forwarding, ebs.by_topics])
def test_a_move_repeats_itself(move: Callable[[float, int], ebs.Moved]) -> None:
    one, two = (json.dumps(vars(move(SECONDS / 8, 5))) for _ in range(2))
    assert one == two


def test_promises_ignored_let_events_come_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the promises are worth: without them a type that is rare, or late, is overtaken."""
    monkeypatch.setattr(ebs, "all_safe", lambda clocks: max(clock.safe for clock in clocks))
    assert ebs.by_topics(SECONDS, 1).failures > 100


def test_the_master_follows_the_swings() -> None:
    found, again = ebs.swings(150.0, 1), ebs.swings(150.0, 1)
    assert found == again
    assert found.master[0] == found.static[0]
    assert min(found.master[20:90]) == min(found.best)
    assert np.mean(found.best) <= np.mean(found.master) < 0.6 * np.mean(found.static)
