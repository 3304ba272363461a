"""The chosen mutations fit the code as it is: each can be made, and its tests exist."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

from mutants import CORE, MUTATIONS, Mutation  # noqa: E402  (scripts are no package)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_can_be_made(mutation: Mutation) -> None:
    text = (ROOT / "src" / "braided" / mutation.file).read_text()
    assert text.count(mutation.old) == 1, f"write it anew for {mutation.file}"
    mutated = text.replace(mutation.old, mutation.new)
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(text)), "it changes nothing"


def test_names_differ_and_files_and_tests_exist() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
    tests = {test for given in (*CORE.values(), *(m.tests for m in MUTATIONS)) for test in given}
    missing = [name for name in tests if name.startswith("tests/") and not (ROOT / name).is_file()]
    assert not missing
    assert not [file for file in CORE if not (ROOT / "src" / "braided" / file).is_file()]


def test_every_part_of_a_batch_has_some() -> None:
    for area, least in {"operators/": 5, "eviction/": 5, "time/": 5, "runtime/": 5, "routing/": 5}.items():
        assert sum(mutation.file.startswith(area) for mutation in MUTATIONS) >= least, area
