"""Every example prints what its file in `examples/expected` says, and every cell of the notebook what it shows."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in (FOLDER / "expected").glob("*.txt"))


@pytest.fixture(autouse=True)
def beside_each_other() -> Iterator[None]:
    """Examples are scripts in one folder, which is not on the path of tests."""
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))
    for name in ("local", *NAMES):
        sys.modules.pop(name, None)


def test_every_example_has_its_output() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"local"}
    assert scripts == set(NAMES)
    assert len(scripts) == 6


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_should(
    name: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = importlib.import_module(name)
    example.main(spark, tmp_path)
    assert capsys.readouterr().out == (FOLDER / "expected" / f"{name}.txt").read_text()


def test_the_notebook_shows_what_its_cells_print(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((FOLDER / "first_join.ipynb").read_text())
    names: dict[str, object] = {}
    shown = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        exec(compile("".join(cell["source"]), "first_join.ipynb", "exec"), names)
        outputs = "".join("".join(output["text"]) for output in cell["outputs"])
        assert capsys.readouterr().out == outputs
        shown += bool(outputs)
    assert shown >= 3
