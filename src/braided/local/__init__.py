"""Any operator in one process, on pyarrow, pandas, polars or DuckDB data: the same that run on Spark."""

from braided.local.functions import (
    LocalGroupResult,
    LocalResult,
    join,
    join_group,
    merge,
    multijoin,
    order,
)
from braided.local.reading import cut_into_batches

__all__ = [
    "LocalGroupResult",
    "LocalResult",
    "cut_into_batches",
    "join",
    "join_group",
    "merge",
    "multijoin",
    "order",
]
