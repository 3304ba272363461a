"""The papers' figures: a function reproduces each, with its parameters, the differences, and verdicts from the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from braided.sim.figure import Figure

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """A reproduced figure."""

    figure: Figure
    parameters: dict[str, Any]
    differences: tuple[str, ...]
    verdicts: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all data, without anything that differs between two runs."""
        return {
            "figure": self.figure.number, "title": self.figure.title, "parameters": self.parameters,
            "differences": list(self.differences), "verdicts": list(self.verdicts),
            "panels": [asdict(panel) for panel in self.figure.panels],
        }  # fmt: skip


Maker = Callable[[bool, Tell], list[Reproduction]]


def papers(data: Path | None = None) -> dict[str, list[Maker]]:
    """Return the makers of each paper's figures; `data` is a folder with real streams, for those that use them."""
    from braided.sim import ebs_figures as ebs
    from braided.sim import synergy_figures as synergy
    from braided.sim.ablations import ablations
    from braided.sim.gdj_figures import gdj_makers
    from braided.sim.ssp_figures import by_servers, changing_rates, ten_nodes
    from braided.sim.streamcloud_figures import instances, operators, strategies

    return {
        "ssp": [by_servers, ten_nodes, changing_rates],
        "streamcloud": [operators, strategies, instances],
        "gdj": gdj_makers(data),
        "ebs": [ebs.learned_lateness, ebs.migration, ebs.placement],
        "synergy": [synergy.improvement, synergy.levels],
        "ablations": [ablations],
    }
