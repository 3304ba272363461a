"""NEXMark's rivals in Python: what they are, what they are asked, and their environments, made by pip on first use."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from flink import say

HERE = Path(__file__).parent
_WINDOWED = dict.fromkeys(("q4", "q5", "q7", "q8", "q9"), "closes windows: not written")


@dataclass(frozen=True)
class Rival:
    """A package, the script that asks it, which queries it is asked, and why it is not asked the others."""

    name: str
    version: str
    script: Path
    queries: tuple[str, ...] = ("q3", "q20", "q23")
    without: dict[str, str] = field(default_factory=lambda: _WINDOWED)


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("bytewax", "0.21.1", HERE / "nexmark_bytewax.py"),
        Rival("pathway", "0.33.0", HERE / "nexmark_pathway.py"),
    )
}


def rival_environment(rival: Rival, folder: Path) -> Path:
    """Return the Python of a rival, which is installed if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        say(f"installing {rival.name} {rival.version} into {folder}")
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", f"{rival.name}=={rival.version}", "pyarrow"]
        subprocess.run(install, check=True, stdout=sys.stderr)
    return python
