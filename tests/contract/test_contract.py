"""Every operator that exists keeps its promises, however streams are cut, carried, restarted and damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.contract.cases import KINDS
from support.contract.checks import (
    check_again,
    check_bounded_state,
    check_change,
    check_cuts,
    check_damage,
    check_late,
    check_other_columns,
    check_other_workers,
    check_pieces,
    check_result,
    lateness_of,
    trace_of,
)
from support.contract.driving import can_adapt, limits, plan_of, small_limits
from support.contract.histories import History, Way, histories, sample, ways
from support.contract.kinds import Case, fixed
from support.profiles import examples, size, some

from braided.operators.join.spec import JoinSpec
from braided.time.lateness import Lateness

TRIED = [(spec, kind, case) for spec, kind in KINDS.items() for case in some(kind.cases, quick=len(kind.cases), fast=1)]
NAMED = [(f"{spec.kind}: {case.name}", case) for spec, _, case in TRIED]
CASES = [pytest.param(case, id=name) for name, case in NAMED]


@pytest.mark.parametrize("case", CASES)
def test_the_result_does_not_depend_on_cuts_order_workers_or_restarts(case: Case) -> None:
    @settings(max_examples=examples(200, quick=4), deadline=None)
    @given(st.data())
    def holds(data: Any) -> None:
        spec = data.draw(case.specs)
        history = data.draw(histories(lateness_of(spec), twins=case.twins))
        way = data.draw(ways(len(history.rows)))
        check_cuts(spec, history, way, data.draw(ways(len(history.rows), workers=way.workers)))

    holds()


@pytest.mark.parametrize("case", CASES)
def test_late_rows_find_a_part_and_never_more(case: Case) -> None:
    @settings(max_examples=examples(100, quick=3), deadline=None)
    @given(st.data())
    def holds(data: Any) -> None:
        spec = data.draw(case.specs)
        history = data.draw(histories(lateness_of(spec), twins=case.twins, beyond=20))
        check_late(spec, history, data.draw(ways(len(history.rows))))

    holds()


@pytest.mark.parametrize("case", CASES)
def test_little_at_a_time_gives_the_same(case: Case) -> None:
    """Pieces, runs and blocks of a few rows: what is cut is put together again."""

    @settings(max_examples=examples(100, quick=3), deadline=None)
    @given(st.data())
    def holds(data: Any) -> None:
        spec = data.draw(case.specs)
        history = data.draw(histories(lateness_of(spec), twins=case.twins))
        with small_limits(data.draw(st.integers(1, 5)), data.draw(st.integers(30, 400))):
            check_result(spec, history, data.draw(ways(len(history.rows))))

    shrunk = {"braided.runtime.ordering_stage", "braided.runtime.router", "braided.runtime.blocks"}
    assert shrunk <= {module.__name__ for module, _ in limits()}, "modules were moved"
    assert len({name for _, name in limits()}) >= 8, "constants were renamed"
    holds()


@pytest.mark.parametrize("case", CASES)
def test_streams_far_apart_in_small_batches(case: Case) -> None:
    """A history that is always the same: one stream is several windows behind another, and clocks count every few rows.

    Random histories are short, and seldom have all of that.
    """
    spec, late = case.example, lateness_of(case.example)
    history = sample(late, rows=90, lag=30)
    way = Way((*range(0, 92, 6), 92), workers=2, restart="lost")
    check_result(spec, history, way)
    if can_adapt(plan_of(spec, adaptive=True)):
        check_result(spec, history, replace(way, rerouted=True, restart="never"))
    check_late(spec, sample([least + 20 for least in late], rows=90, lag=30), way)


ADAPTING = [pytest.param(c, id=name) for name, c in NAMED if can_adapt(plan_of(c.example, adaptive=True))]


@pytest.mark.parametrize("case", ADAPTING)
def test_the_result_does_not_depend_on_the_routing(case: Case) -> None:
    @settings(max_examples=examples(200, quick=4), deadline=None)
    @given(st.data())
    def holds(data: Any) -> None:
        spec = data.draw(case.specs)
        history = data.draw(histories(lateness_of(spec), twins=case.twins))
        # Some groups of joins cannot adapt: no stream is in every join.
        rerouted = can_adapt(plan_of(spec, adaptive=True))
        check_result(spec, history, data.draw(ways(len(history.rows), rerouted=rerouted)))

    holds()


@pytest.mark.parametrize("case", CASES)
def test_a_batch_that_runs_again_repeats_itself_to_the_byte(case: Case) -> None:
    @settings(max_examples=examples(60, quick=2), deadline=None)
    @given(st.data())
    def holds(data: Any) -> None:
        spec = data.draw(case.specs)
        history = data.draw(histories(lateness_of(spec), beyond=data.draw(st.sampled_from((0, 20)))))
        rerouted = can_adapt(plan_of(spec, adaptive=True)) and data.draw(st.booleans())
        check_again(spec, history, data.draw(ways(len(history.rows), rerouted=rerouted)))

    # Few random ways have what matters: several tasks whose packets reach one worker.
    check_again(case.example, sample(lateness_of(case.example)), Way((0, 25, 45, 62), tasks=2, workers=2))
    holds()


@pytest.mark.long
def test_another_process_leaves_the_same_bytes_behind() -> None:
    """Hashes of Python's own, and all else that processes differ in, have no part in what is sent, stored or given."""
    script = (
        "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); import support.profiles as p; "
        "p.settings.load_profile(sys.argv[2]); import test_contract as t; print(json.dumps(t.traces()))"
    )
    paths = json.dumps([str(folder) for folder in Path(__file__).parents[:2]])
    command = [sys.executable, "-c", script, paths, settings.get_current_profile_name()]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert json.loads(done.stdout) == traces()


def traces() -> dict[str, str]:
    """Return what each case leaves behind."""
    return {f"{spec.kind}: {case.name}": trace_of(case.example) for spec, kind in KINDS.items() for case in kind.cases}


@pytest.mark.parametrize("case", CASES)
def test_damaged_state_is_an_error_and_never_a_wrong_result(case: Case) -> None:
    assert check_damage(case.example, examples(20, quick=1)) > 10


CHANGES = [
    pytest.param(case.example, change, id=f"{spec.kind}: {case.name}: {change.option} {change.refused}")
    for spec, kind, case in TRIED
    for change in kind.changes
    if change.when(case.example)
]


@pytest.mark.parametrize(("spec", "change"), CHANGES)
def test_a_checkpoint_takes_options_that_do_not_matter_to_it_and_no_others(spec: Any, change: Any) -> None:
    check_change(spec, change)


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_of_other_columns_or_workers_is_refused(case: Case) -> None:
    check_other_columns(case.example)
    check_other_workers(case.example)


@pytest.mark.parametrize("case", CASES)
def test_state_does_not_grow_with_the_stream(case: Case) -> None:
    # What is learned is first used after some twenty batches.
    check_bounded_state(case.example, size(quick=24 if fixed(case.example) else 36, slow=60), 10)


@pytest.mark.parametrize("case", CASES)
def test_state_does_not_grow_with_a_device_that_is_years_ahead(case: Case) -> None:
    check_bounded_state(case.example, size(quick=18, slow=60), 600_000_000, broken=True)


@pytest.mark.parametrize("case", CASES)
def test_results_leave_in_pieces_of_bounded_size(case: Case) -> None:
    check_pieces(case.example, wide=False)
    check_pieces(case.example, wide=True)


def test_rows_that_set_no_clock_keep_their_assignment_alive() -> None:
    """A left row that only waits, a routing that changes, then its match."""
    rule = Lateness(floor="0 us", measure="next", clock_rows=lambda rows: pc.equal(rows.column("k"), 0))
    spec = JoinSpec(time="t", lateness=(rule, "0 us"), between=("0 us", "0 us"), on="k")
    late: dict[str, Any] = {"k": 1, "s": None, "t": 3, "u": 3}
    untimed: dict[str, Any] = {"k": 0, "s": "a", "t": None, "u": None}
    rows = [(0, late), (0, untimed), (0, untimed), (1, untimed), (1, late)]
    history = History(2, tuple((side, {**row, "id": number}) for number, (side, row) in enumerate(rows)))
    way = Way(cuts=(0, 0, 1, 1, 5), shuffle=None, tasks=1, workers=1, restart="lost", rerouted=True)
    check_result(spec, history, way)
