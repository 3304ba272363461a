"""The suite itself: an operator of a new kind is held to the contract, and one that breaks a promise is found out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from support.contract import checks
from support.contract.cases import KINDS, without_case
from support.contract.histories import Way, sample
from support.contract.kinds import Case
from support.contract.toy import FAULTS, make_builder, make_kind, make_spec

from braided.operators import registry
from braided.operators.spec import spec_kinds
from braided.runtime import router

HISTORY = sample([5], rows=40)
CUT = Way((0, 7, 7, 20, 42), shuffle=3, tasks=2, workers=2)
RESTARTED = Way((0, 11, 30, 42), workers=2, restart="lost")


def every_check(case: Case) -> None:
    """Hold a case to all that needs no variety."""
    spec = case.example
    checks.check_cuts(spec, HISTORY, RESTARTED, CUT)
    checks.check_late(spec, HISTORY, CUT)
    checks.check_again(spec, HISTORY, CUT)
    assert checks.check_damage(spec, 2) > 10
    for change in checks.kind_of(spec).changes:
        checks.check_change(spec, change)
    checks.check_other_columns(spec)
    checks.check_other_workers(spec)
    checks.check_bounded_state(spec, 30, 10)
    checks.check_pieces(spec, wide=False)
    checks.check_pieces(spec, wide=True)


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Case]]:
    """A new kind of spec, for one test: with its builder and its case, as whoever adds one writes them."""

    spec = make_spec()

    def make(fault: str) -> Case:
        assert without_case() == ["echo"], "it is missed as soon as it exists"
        monkeypatch.setitem(registry._BUILDERS, spec, make_builder(fault))
        monkeypatch.setitem(KINDS, spec, make_kind(spec))
        assert not without_case()
        return KINDS[spec].cases[0]

    yield make
    del spec.kind  # the class may live on in somebody's cache
    assert "echo" not in spec_kinds()


def test_a_new_operator_that_keeps_its_promises_passes(echo: Callable[[str], Case]) -> None:
    every_check(echo("none"))


@pytest.mark.parametrize(("fault", "said"), FAULTS.values(), ids=FAULTS)
def test_an_operator_that_breaks_a_promise_is_found_out(fault: str, said: str, echo: Callable[[str], Case]) -> None:
    case = echo(fault)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=said):
        every_check(case)


def test_rows_that_are_written_to_are_noticed(monkeypatch: pytest.MonkeyPatch, echo: Callable[[str], Case]) -> None:
    conform = router.conform

    def careless(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        column = batch.column("id")
        ctypes.c_int64.from_address(column.buffers()[1].address + 8 * column.offset).value += 1
        return conform(batch, schema)

    case = echo("none")
    monkeypatch.setattr(router, "conform", careless)
    with pytest.raises(AssertionError, match="an input was written to"):
        every_check(case)
