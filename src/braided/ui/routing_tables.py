"""Routing tables as plain JSON, and the events of an adaptive join from its control directory, without its query."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from braided.routing.control_directory import ControlDir
from braided.routing.table import BUCKETS, GRIDS, RoutingTable
from braided.runtime.contract import Json


def describe_table(table: RoutingTable, labels: Mapping[int, str]) -> Json:
    """Return a table with each bucket's worker (-1: on a grid), and its grids by their columns."""
    owners = table.owner.tolist()
    grids = []
    for at, key in enumerate(table.key_hashes.tolist()):
        number = int(table.live[BUCKETS + at, 0])
        if number >= GRIDS:
            columns = [list(column) for column in table.grids[number].columns]
            grids.append({"key": f"{key:016x}", "label": labels.get(key), "columns": columns})
    if owners[0] >= GRIDS:
        grids.append({"key": None, "label": None, "columns": [list(c) for c in table.grids[owners[0]].columns]})
        owners = []
    return {
        "version": table.version,
        "scheme": table.scheme,
        "workers": table.workers,
        "in_use": list(table.in_use),
        "moving": int((table.live[:BUCKETS, 1] >= 0).sum()),
        "owners": [owner if owner < GRIDS else -1 for owner in owners],
        "grids": grids,
    }


def is_control(path: Path) -> bool:
    """Whether a directory is the control directory of a join."""
    return (path / "tables").is_dir()


def control_events(path: Path) -> list[Json]:
    """Return the newest table and the last decisions of a control directory, as events."""
    control = ControlDir(str(path))
    run = {"query": control.owner() or "none"}
    table, decisions = control.newest(), control.decisions()
    labels = {
        int(decision["key"], 16): str(decision["value"])
        for decision in decisions
        if "key" in decision and "value" in decision
    }
    operator = {**run, "operator": path.name}
    return [
        {"event": "started", **run, "name": path.name, "time": 0},
        {"event": "table", **operator, **describe_table(table, labels)},
        *({"event": "decision", **operator, **decision} for decision in decisions),
    ]
