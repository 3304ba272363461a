"""Routing of rows by a table: every row gets one copy per worker that stores it or that it only probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.routing.table import BUCKETS, GRIDS, MAX_LIVE, Assignments, Hashes, RoutingTable

Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Workers = npt.NDArray[np.int32]
Tags = npt.NDArray[np.int32]
TAG = "__braided_tag"

Part = tuple[Index, Workers, int, bool, bool]
"""Copies: the row and the worker of each, the number of their grid or 0, and whether they are stored and primary."""


@dataclass
class Routes:
    """Copies of rows: the worker of each and, if the table is not plain, its row, assignment and purpose.

    `tags` is 0 for a single worker, or else the number of the grid: a copy meets only stored rows with the same
    tag. Exactly one of a row's stored copies is `primary`, which is counted. Copies that are not `stored` only
    probe.
    """

    workers: Workers
    rows: Index | None = None
    tags: Tags | None = None
    stored: Mask | None = None
    primary: Mask | None = None


def route(table: RoutingTable, side: int, hashes: Hashes, content: Callable[[Index], Hashes]) -> Routes:
    """Return the copies of rows with these key hashes; `content` hashes the rows at given positions.

    Cost: one look-up per row in a plain table; otherwise one pass per place in the lists and per grid.
    """
    if table.plain or not len(hashes):
        return Routes(table.owner[(hashes & np.uint64(BUCKETS - 1)).astype(np.int64)])
    groups = table.groups_of(hashes)
    parts: list[Part] = []
    for place in range(MAX_LIVE):
        assignments = table.live[groups, place]
        if place and (assignments < 0).all():
            break
        parts += copies(table, side, assignments, content, stored=place == 0, primary=place == 0)
    return join_parts(parts)


def copies(
    table: RoutingTable,
    side: int,
    assignments: Assignments,
    content: Callable[[Index], Hashes],
    *,
    stored: bool,
    primary: bool,
) -> Iterator[Part]:
    """Yield the copies of rows for one assignment per row; -1 means none. A row's first copy may be primary."""
    alone = np.flatnonzero((assignments >= 0) & (assignments < GRIDS))
    if len(alone):
        yield alone, assignments[alone], 0, stored, primary
    for number in np.unique(assignments[assignments >= GRIDS]).tolist():
        members = np.flatnonzero(assignments == number)
        picked = content(members)
        first = np.ones(len(members), np.bool_)
        for positions, workers in table.grids[number].spread(side, picked):
            at = members if positions is None else members[positions]
            fresh = first if positions is None else first[positions]
            yield at, workers, number, stored, primary and bool(fresh.all())
            first[slice(None) if positions is None else positions] = False


def join_parts(parts: list[Part]) -> Routes:
    """Return the copies in all parts."""
    sizes = [len(rows) for rows, *_ in parts]
    return Routes(
        np.concatenate([workers for _, workers, *_ in parts]).astype(np.int32),
        np.concatenate([rows for rows, *_ in parts]),
        np.repeat(np.array([part[2] for part in parts], np.int32), sizes),
        np.repeat(np.array([part[3] for part in parts], np.bool_), sizes),
        np.repeat(np.array([part[4] for part in parts], np.bool_), sizes),
    )


def append_tags(rows: pa.RecordBatch, tags: Tags) -> pa.RecordBatch:
    """Return the rows with their tags as the last column."""
    return rows.append_column(TAG, pa.array(tags, pa.int32()))


def tagged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows with their tags."""
    return schema.append(pa.field(TAG, pa.int32()))


def split_tags(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Tags]:
    """Undo `append_tags`."""
    return rows.select(rows.schema.names[:-1]), rows.column(rows.num_columns - 1).to_numpy()
