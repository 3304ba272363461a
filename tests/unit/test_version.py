"""The version and the supported versions of Python are the same wherever they are written."""

import tomllib
from pathlib import Path

import braided

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_package_and_its_metadata_have_one_version() -> None:
    assert PROJECT["version"] == braided.__version__


def test_the_changelog_has_a_section_of_the_version() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].startswith(f"## {braided.__version__} (")


def test_the_classifiers_name_the_supported_versions_of_python() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={named[0]}"
    bootstrap = (ROOT / "scripts" / "bootstrap.sh").read_text()
    assert "(3, 11) <= sys.version_info[:2] <= (3, 14)" in bootstrap
