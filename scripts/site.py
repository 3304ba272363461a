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

from docs_index import FOLDERS, pages

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
    """Copy the pages into one folder, with links that fit it, and write the first page's contents and the reference."""
    parts = {title: [page.stem for page in pages(folder)] for folder, (title, _) in FOLDERS.items()}
    texts = {page.stem: page.read_text() for folder in FOLDERS for page in pages(folder)}
    texts["changelog"] = (ROOT / "CHANGELOG.md").read_text()
    texts["reference"] = reference()
    parts["Functions"] = ["reference", "changelog"]
    contents = "\n\n".join(tree(part, names) for part, names in parts.items())
    texts["index"] = f"{(ROOT / 'README.md').read_text()}\n{contents}\n"
    for name, text in texts.items():
        (source / f"{name}.md").write_text(in_one_folder(text))
    for picture in [*(ROOT / "docs").rglob("*.svg"), *(ROOT / "docs").rglob("*.png")]:
        shutil.copy(picture, source)
    (source / "conf.py").write_text(CONF.format(version=braided.__version__))


def in_one_folder(text: str) -> str:
    """Return a page whose links are to pages beside it; files of the repository are named, not linked."""
    text = re.sub(r"\]\((?:\.\./)*(?:docs/)?index\.md", "](index.md", text)
    text = re.sub(r"\]\((?:\.\./)*README\.md", "](index.md", text)
    text = re.sub(r"\]\((?:\.\./)*CHANGELOG\.md", "](changelog.md", text)
    text = re.sub(r"\]\((?:\.\./)*(?:docs/)?(?:[a-z-]+/)?([\w-]+\.(?:md|svg|png))", r"](\1", text)
    return re.sub(
        r"\[([^\]]+)\]\((?:\.\./)*(?:src|tests|examples|benchmarks|scripts|LICENSE|CONTRIBUTING)[^)]*\)", r"\1", text
    )


def tree(part: str, names: list[str]) -> str:
    """Return a part of the contents."""
    return f"```{{toctree}}\n:hidden:\n:caption: {part}\n\n" + "\n".join(names) + "\n```"


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
