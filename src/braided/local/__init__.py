"""All operators in one process, on pyarrow, pandas, polars or DuckDB data: the same operators as on Spark."""

from braided.local.functions import detect, join, join_asof, join_group, match, merge, multijoin, order, row_windows
from braided.local.query import LocalJoin, LocalQuery, stream
from braided.local.results import LocalGroupResult, LocalResult

__all__ = [
    "LocalGroupResult",
    "LocalJoin",
    "LocalQuery",
    "LocalResult",
    "detect",
    "join",
    "join_asof",
    "join_group",
    "match",
    "merge",
    "multijoin",
    "order",
    "row_windows",
    "stream",
]
