"""The routing that a join starts with."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal, get_args

from braided.errors import OptionError
from braided.routing.grid import cheapest_columns, even_grid
from braided.routing.table import RoutingTable

Partition = Literal["auto", "hash", "ssp", "grid"]


@lru_cache(maxsize=16)  # every task calls this, and each table computes its digest once
def first_table(partition: str, workers: int, *, keyed: bool, version: int) -> RoutingTable:
    """Return the first table of a join, which is chosen before any row arrives.

    A join without keys starts with the cheapest grid for equal rates; SSP starts with the left stream as master.

    >>> first_table("auto", 4, keyed=False, version=1).grids[1048576].shape
    '2 x 2'
    """
    if partition not in get_args(Partition):
        raise OptionError(f"partition={partition!r}: unknown value; write 'auto', 'hash', 'ssp' or 'grid'")
    if partition == "hash" and not keyed:
        raise OptionError("partition='hash': a join without keys cannot be hashed; write 'auto', 'ssp' or 'grid'")
    if partition == "ssp":
        table = RoutingTable.gridded(workers, even_grid(range(workers), 1), "ssp")
    elif partition == "grid" or not keyed:
        table = RoutingTable.gridded(workers, even_grid(range(workers), cheapest_columns(workers, 1.0, 1.0)), "grid")
    else:
        table = replace(RoutingTable.hashed(workers), scheme=partition)
    return replace(table, version=version)
