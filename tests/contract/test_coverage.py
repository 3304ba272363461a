"""Nothing that exists is left out of the contract suite: no kind of spec, no operator, no option."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from typing import Any

import pytest
from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample
from support.contract.cases import KINDS, without_case
from support.contract.driving import plan_of

import braided
from braided.operators.aggregate.partial import PartialAggregate
from braided.operators.spec import Spec

WITH_SPARK = ("braided.spark", "braided.cli", "braided.api")


def test_every_kind_of_spec_has_a_case() -> None:
    assert not without_case(), "write its Kind in tests/support/contract/cases.py"
    assert all(kind.cases and type(case.example) is spec for spec, kind in KINDS.items() for case in kind.cases)


def operators() -> set[type[Any]]:
    """Return all classes that are operators, whoever builds them."""
    found = set()
    for module in pkgutil.walk_packages(braided.__path__, "braided."):
        if not module.name.startswith(WITH_SPARK):
            for thing in vars(importlib.import_module(module.name)).values():
                if (
                    isinstance(thing, type)
                    and thing.__module__ == module.name
                    and not getattr(thing, "_is_protocol", 0)
                    and not inspect.isabstract(thing)
                ):
                    found |= {thing} if all(hasattr(thing, name) for name in ("admit", "process", "label")) else set()
    return found


def test_every_operator_is_what_some_case_builds() -> None:
    built = {type(plan_of(case.example).operator) for kind in KINDS.values() for case in kind.cases}
    # Its rows are partial results, which depend on cuts and routing: tests/unit/test_partial_aggregate.py adds them up.
    missing = operators() - {PartialAggregate} - built
    assert not missing, (
        "name its spec in spec_kinds (operators/spec.py), and write its Kind in tests/support/contract/cases.py"
    )
    assert built <= operators()
    assert len(built) >= 7


OPTIONS = [(spec, name) for spec in KINDS for name in spec.descriptions() if name not in KINDS[spec].no_case]


def _tried(spec: type[Spec], name: str) -> bool:
    default = next(field.default for field in dataclasses.fields(spec) if field.name == name)
    if default is dataclasses.MISSING:
        return True
    if any(getattr(case.example, name) != default for case in KINDS[spec].cases):
        return True
    quick = settings(max_examples=60, phases=[Phase.generate], database=None, deadline=None)
    for case in KINDS[spec].cases:
        try:
            find(case.specs, lambda found: bool(getattr(found, name) != default), settings=quick)
            return True
        except NoSuchExample:
            continue
    return False


@pytest.mark.parametrize(("spec", "name"), OPTIONS, ids=[f"{spec.kind}: {name}" for spec, name in OPTIONS])
def test_every_option_is_tried_and_changed_on_a_checkpoint(spec: type[Spec], name: str) -> None:
    assert _tried(spec, name), f"no case of {spec.kind} gives {name}="
    assert name in [change.option for change in KINDS[spec].changes], f"no change of {name}= is tried"
