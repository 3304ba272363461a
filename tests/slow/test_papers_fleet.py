"""The figures of EBS and Synergy as the command makes them: files, verdicts, and the same bytes again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from braided.cli import main

FIGURES = {
    "ebs": ("ebs_5a_lateness", "ebs_5b_migration", "ebs_6b_placement"),
    "synergy": ("synergy_4_delay", "synergy_5_spread", "synergy_6_messages", "synergy_7_levels"),
}


@pytest.mark.parametrize("paper", list(FIGURES))
def test_quick_figures_have_the_paper_s_shapes_and_repeat_themselves(paper: str, tmp_path: Path) -> None:
    for run in ("one", "two"):
        assert main(["papers", "--only", paper, "--quick", "--out", str(tmp_path / run)]) == 0
    for slug in FIGURES[paper]:
        for kind in ("svg", "json"):
            assert (tmp_path / f"one/{slug}.{kind}").read_bytes() == (tmp_path / f"two/{slug}.{kind}").read_bytes()
        found = json.loads((tmp_path / f"one/{slug}.json").read_text())
        assert found["verdicts"]
        refuted = [verdict for verdict in found["verdicts"] if "refuted" in verdict]
        assert len(refuted) == (slug == "synergy_7_levels"), "docs/papers/papers_synergy.md says which, and why"
        assert found["differences"]
