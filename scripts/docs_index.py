"""Write docs/index.md: every page of docs/ by folder, with its title and its first sentence.

python scripts/docs_index.py            write it
python scripts/docs_index.py --check    exit with 1 where it is not what the pages say
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
# Folders in the order in which one would read them, and the pages that come first in each.
FOLDERS = {
    "tutorial": ("Begin", ["tutorial"]),
    "how-to": (
        "How to ...",
        ["howto", "move_over", "kafka", "tables", "sources", "tune", "restart", "dashboard", "metrics"],
    ),
    "concepts": ("Understand", ["guarantees", "ideas", "how_it_works", "walk", "time", "adaptive", "comparison"]),
    "reference": ("Reference", ["api", "outer", "asof", "rows", "sql", "queries", "match", "detect", "files"]),
    "papers": ("The papers", ["papers"]),
    "benchmarks": ("Measured", ["benchmarks"]),
}


def pages(folder: str) -> list[Path]:
    """Return the pages of a folder in the order of the index."""
    first = FOLDERS[folder][1]
    return sorted(
        (DOCS / folder).glob("*.md"), key=lambda page: (first.index(page.stem) if page.stem in first else 99, page.stem)
    )


def index() -> str:
    """Return the text of the index."""
    lines = ["# All pages", "", "Written by `scripts/docs_index.py` from the pages themselves.", ""]
    for folder, (title, _) in FOLDERS.items():
        lines += [f"## {title}", "", "| page | |", "|---|---|"]
        lines += [f"| [{name(page)}]({folder}/{page.name}) | {first_sentence(page)} |" for page in pages(folder)]
        lines.append("")
    return "\n".join(lines)


def name(page: Path) -> str:
    """Return the title of a page, without links."""
    return without_links(page.read_text().splitlines()[0].removeprefix("# "))


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page's first paragraph, if it begins with one."""
    blocks = re.split(r"\n\s*\n", page.read_text())
    prose = next((block for block in blocks[1:] if re.match(r"(?!```)[A-Z`*\[]", block)), "")
    text = without_links(" ".join(prose.split()))
    return re.split(r"(?<=[.?])\s+(?=[A-Z`*])", text)[0].replace("|", "\\|")


def without_links(text: str) -> str:
    """Return Markdown with its links as plain text."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def main() -> int:
    """Write the index, or compare it."""
    target, text = DOCS / "index.md", index()
    if "--check" in sys.argv[1:]:
        return int(not target.exists() or target.read_text() != text)
    target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
