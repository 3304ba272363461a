"""Builds the site from README.md, CHANGELOG.md and docs/: strict, so that a link that leads nowhere stops it.

    pip install --require-hashes -r requirements-site.lock    the packages of the group `site`
    python scripts/site.py [FOLDER]                           build/site by default; open its index.html

The README is the first page. The reference is written from the docstrings, as `help()` has them.
"""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import braided
from braided import local

ROOT = Path(__file__).resolve().parents[1]
# Pages in the order in which one would read them; all others follow.
PARTS = {
    "Begin": ["tutorial", "howto", "move_over", "guarantees"],
    "Do": [
        "pick_a_budget", "theta", "restart", "tune", "dashboard", "metrics", "cluster", "kafka", "jobs", "peers",
        "production", "security", "runbook", "versions",
    ],
    "Use": [
        "api", "sql", "queries", "files", "tables", "sources", "adaptive", "time", "bounded", "multijoin", "outer",
        "rows", "asof", "match", "detect", "where",
    ],
    "Understand": ["ideas", "how_it_works", "walk", "faults", "exactness", "conformance", "decisions", "glossary"],
    "Measured": [
        "benchmarks", "order_benchmarks", "gdj", "gdj_tables", "papers", "papers_ssp", "papers_streamcloud",
        "papers_ebs", "papers_synergy",
    ],
    "Reference": ["reference", "changelog"],
}  # fmt: skip
CONF = """\
project = "Braided"
copyright = "the authors of Braided"
version = release = {version!r}
extensions = ["myst_parser"]
highlight_language = "none"
html_theme = "furo"
html_title = "Braided"
html_copy_source = False
html_show_sphinx = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
"""


def main() -> int:
    """Lay the pages out in a temporary folder and have Sphinx build them."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site")
    with tempfile.TemporaryDirectory(prefix="braided-site-") as folder:
        source = Path(folder)
        lay_out(source)
        command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
        return subprocess.run([*command, "-b", "html", str(source), str(out)], check=False).returncode


def lay_out(source: Path) -> None:
    """Copy the pages, with links that fit one folder, and write the first page's contents and the reference."""
    pages = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
    pages["changelog"] = (ROOT / "CHANGELOG.md").read_text()
    pages["reference"] = reference()
    parts = {**PARTS, "More": sorted(pages.keys() - {name for names in PARTS.values() for name in names})}
    contents = "\n\n".join(tree(part, [name for name in names if name in pages]) for part, names in parts.items())
    pages["index"] = f"{(ROOT / 'README.md').read_text()}\n{contents}\n"
    for name, text in pages.items():
        (source / f"{name}.md").write_text(in_one_folder(text))
    for picture in [*(ROOT / "docs").glob("*.svg"), *(ROOT / "docs").glob("*.png")]:
        shutil.copy(picture, source)
    (source / "conf.py").write_text(CONF.format(version=braided.__version__))


def in_one_folder(text: str) -> str:
    """Return a page whose links are to pages beside it; files of the repository are named, not linked."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = (
        text.replace("](../README.md", "](index.md")
        .replace("](README.md", "](index.md")
        .replace("](../CHANGELOG.md", "](changelog.md")
        .replace("](CHANGELOG.md", "](changelog.md")
    )
    return re.sub(
        r"\[([^\]]+)\]\((?:\.\./)?(?:src|tests|examples|benchmarks|scripts|LICENSE|CONTRIBUTING)[^)]*\)", r"\1", text
    )


def tree(part: str, names: list[str]) -> str:
    """Return a part of the contents; an empty one is left out."""
    return f"```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(names) + "\n```" if names else ""


def reference() -> str:
    """Return the public names with their signatures and docstrings."""
    lines = ["# Reference", "", "As `help(braided.join)` and the like print it.", ""]
    for owner, module in (("braided", braided), ("braided.local", local)):
        names = module.__all__ if hasattr(module, "__all__") else [name for name in vars(module) if name.islower()]
        for name in sorted(names):
            value = getattr(module, name)
            doc = inspect.getdoc(value)
            if name.startswith("_") or not doc or not (inspect.isfunction(value) or inspect.isclass(value)):
                continue
            head = f"{owner}.{name}{signature(value)}"
            lines += [f"## {owner}.{name}", "", "````text", head, "", doc, "````", ""]
    return "\n".join(lines)


def signature(value: object) -> str:
    """Return a signature, an argument a line."""
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    return "(" + "".join(f"\n    {argument}," for argument in found.parameters.values()) + "\n)"


if __name__ == "__main__":
    sys.exit(main())
