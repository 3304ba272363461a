"""The files, classes and functions that docs name are there, and Python code is marked as such: then it is run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import braided
from braided import BraidedError, errors
from braided.cli.arguments import make_parser
from braided.runtime.router import FORMAT

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "braided"
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


def find(path: str) -> Path | None:
    """The file that a page names, by its path in the repository or in the package."""
    return next((found for found in (ROOT / path, SOURCE / path, SOURCE.parent / path) if found.exists()), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_named_files_exist(page: Path) -> None:
    named = set(re.findall(r"`(?:python )?([\w./-]+\.(?:py|md|sh))\b[^`]*`", page.read_text()))
    links = set(re.findall(r"\]\(([\w./-]+\.(?:md|svg))(?:#[\w-]+)?\)", page.read_text()))
    missing = [path for path in named if find(path) is None]
    missing += [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_the_walk_names_what_is_in_its_files() -> None:
    text = " ".join((ROOT / "docs" / "concepts" / "walk.md").read_text().split())
    named = re.findall(r"`([A-Za-z_][\w.]*)`(?: \(| in )`([\w/]+\.py)`", text)
    assert len(named) > 25
    assert len(set(re.findall(r"`([\w/]+\.py)`", text))) <= 30, "a walk is short"
    missing = []
    for name, path in named:
        found = find(path)
        last = name.split(".")[-1]
        if found is None or not re.search(rf"^\s*(?:def|class) {last}\b|^{last} = ", found.read_text(), re.MULTILINE):
            missing.append((name, path))
    assert missing == []


def test_settings_and_variables_are_listed() -> None:
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    used = set(re.findall(r"\bBRAIDED_[A-Z_]+\b|\bspark\.braided\.[a-z]+(?:\.[a-z]+)*", text)) - {"spark.braided.run"}
    assert len(used) > 6
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert [name for name in sorted(used) if f"`{name}`" not in page] == []


def test_functions_are_in_the_reference_and_have_guarantees() -> None:
    functions = {name for name in braided.local.__all__ if name.islower()} - {"stream"}
    assert len(functions) > 6
    for page in ("reference/api.md", "concepts/guarantees.md"):
        text = (ROOT / "docs" / page).read_text()
        assert [name for name in sorted(functions) if not re.search(rf"`[\w.]*\b{name}\b", text)] == [], page


def test_commands_are_in_docs() -> None:
    (commands,) = (action.choices for action in make_parser()._actions if isinstance(action.choices, dict))
    text = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    assert [name for name in commands if f"braided {name}" not in text] == []


def test_the_state_format_is_named() -> None:
    assert f"writes state format {FORMAT}." in (ROOT / "docs" / "how-to" / "runbook.md").read_text()


def test_errors_that_pages_name_are_exported() -> None:
    named = {name for page in PAGES for name in re.findall(r"\b(?:braided\.)?([A-Z]\w+Error)\b", page.read_text())}
    ours = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BraidedError)}
    assert len(named & ours) > 7
    missing = [name for name in sorted(ours) if name not in braided.__all__ or not hasattr(braided, name)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_is_marked_as_python(page: Path) -> None:
    """`tests/spark/test_docs.py` runs blocks marked so; `test_jobs.py` reads TOML; one without a language is output or a drawing."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert {language for language, _ in fenced} <= {"python", "toml", "text", "diff", ""}
    for language, block in fenced:
        if language == "":
            assert not re.search(r"^(import|from) \w|^(\w+ = )?braided\.\w+\(.*\)$", block, re.MULTILINE), block


def test_the_index_of_pages_is_current() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "docs_index.py", "--check"], check=False)
    assert done.returncode == 0, "run python scripts/docs_index.py"
