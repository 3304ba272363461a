"""Storms over virtual fleets, by seed: nothing is lost or there twice, and everything runs again afterwards.

The seed of a failure repeats it: `weather(tmp_path, seed)`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support.profiles import size
from support.storm import weather


@pytest.mark.parametrize("seed", range(size(quick=3, slow=200)))
def test_a_storm_loses_and_doubles_nothing_and_ends(seed: int) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as root:
        weather(Path(root), seed)
