"""Random sequences of routing tables, as a controller with no judgement at all might publish them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.edit import Full, TableEdit
from braided.routing.grid import Grid
from braided.routing.home_edit import HomeEdit
from braided.routing.key_hashes import KeyHasher
from braided.routing.table import BUCKETS, RoutingTable

CHANGES = ("move", "promote", "demote", "reshape", "weights", "drop")


@st.composite
def changes(draw: st.DrawFn, workers: int, keys: int) -> list[dict[str, Any]]:
    """A few changes to make before a batch."""
    return [
        {
            "change": draw(st.sampled_from(CHANGES)),
            "key": draw(st.integers(0, keys - 1)),
            "worker": draw(st.integers(0, workers - 1)),
            "grid": draw(grids(workers)),
        }
        for _ in range(draw(st.integers(0, 3)))
    ]


@st.composite
def grids(draw: st.DrawFn, workers: int) -> Grid:
    """Any layout of distinct workers in columns, of any heights, with any weights."""
    chosen = draw(st.permutations(range(workers)))[: draw(st.integers(1, workers))]
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(chosen) - 1)), max_size=len(chosen) - 1)))
    bounds = [0, *(cut for cut in cuts if cut < len(chosen)), len(chosen)]
    columns = tuple(tuple(chosen[a:b]) for a, b in pairwise(bounds))
    weights = tuple(tuple(draw(st.integers(1, 5)) for _ in column) for column in columns)
    return Grid(columns, weights, tuple(draw(st.integers(1, 5)) for _ in columns))


def apply(
    table: RoutingTable, wanted: list[dict[str, Any]], hashes: list[int], deaths: AssignmentExpiry
) -> RoutingTable:
    """Make the changes that have room, and return the next table; in two phases where rows have a home."""
    edit = _edit(table, deaths)
    for change in wanted:
        key = hashes[change["key"]]
        try:
            match change["change"]:
                case "move":
                    edit.assign(np.array([key & (BUCKETS - 1)]), change["worker"])
                case "promote":
                    if edit.has_room(np.array([edit.group_of_key(key) or key & (BUCKETS - 1)])).all():
                        edit.promote(key, change["grid"])
                case "demote":
                    edit.demote(key)
                case "reshape":
                    edit.assign(np.arange(BUCKETS), edit.add_grid(change["grid"]))
                case "weights":
                    for number, grid in table.grids.items():
                        columns = tuple(len(column) * change["worker"] + 1 for column in grid.columns)
                        edit.set_weights(number, Grid(grid.columns, (), columns))
                case "drop":
                    table = edit.done()
                    edit = _edit(table, deaths)
                    edit.drop(deaths.dead(table))
                    if isinstance(edit, HomeEdit):
                        edit.settle(deaths.ready(table))
        except Full:
            continue
    return edit.done()


def _edit(table: RoutingTable, deaths: AssignmentExpiry) -> TableEdit:
    return TableEdit(table) if deaths.home is None else HomeEdit(table)


def split_grid(grid: Grid, home: int | None) -> Grid:
    """Return a grid of the same workers in which rows of one side alone are split; None: the grid itself."""
    if home is None:
        return grid
    return Grid((grid.workers,) if home == 0 else tuple((worker,) for worker in grid.workers))


def random_changes(rng: np.random.Generator, workers: int, keys: int) -> list[dict[str, Any]]:
    """The same without Hypothesis, for runs on Spark."""
    wanted = []
    for _ in range(int(rng.integers(1, 4))):
        chosen = rng.permutation(workers)[: int(rng.integers(1, workers + 1))].tolist()
        cut = int(rng.integers(0, len(chosen)))
        columns = tuple(tuple(part) for part in (chosen[:cut], chosen[cut:]) if part)
        wanted.append(
            {
                "change": str(rng.choice(CHANGES)),
                "key": int(rng.integers(0, keys)),
                "worker": int(rng.integers(0, workers)),
                "grid": Grid(columns),
            }
        )
    return [*wanted, {"change": "drop", "key": 0, "worker": 0, "grid": Grid(((0,),))}]


class RandomController:
    """Changes the routing after every batch, with no judgement at all; stands in for `Controller`."""

    keys = 100

    def __init__(
        self,
        table: RoutingTable,
        window: Any,
        *,
        slots: int,
        most_columns: int | None = None,
        home: int | None = None,
    ) -> None:
        self.table = table
        self.labels: dict[int, str] = {}
        self._window = window
        self._deaths = AssignmentExpiry(window, home)

    def loads(self) -> list[dict[str, Any]]:
        """Return what reports show of the workers: nothing here."""
        return []

    def step(self, seen: Any, _wanted: Any) -> list[Any]:
        """Make a few changes and drop what is dead."""
        self._deaths.window = replace(self._window, lateness=seen.lateness)
        self._deaths.observe(seen.batch, seen.version, seen.clocks, seen.ahead)
        hashes = KeyHasher((pa.int64(),)).hash([pa.array(range(self.keys))], self.keys).tolist()
        rng = np.random.default_rng([seen.batch, self.table.version])
        wanted = random_changes(rng, self.table.workers, self.keys)
        wanted = [{**change, "grid": self.grid(change["grid"])} for change in wanted]
        self.table = apply(self.table, wanted, hashes, self._deaths)
        return []

    def grid(self, grid: Grid) -> Grid:
        """Return a grid that the join can have: any, where rows need no home."""
        return split_grid(grid, self._deaths.home)
