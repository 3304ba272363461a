"""The types of the public functions, a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from braided.durations import Duration

__all__ = [
    "AnyDetector",
    "ArrowData",
    "AsofHow",
    "ClockRows",
    "Control",
    "DetectorState",
    "Direction",
    "Duration",
    "Evict",
    "GroupShare",
    "How",
    "Json",
    "Keys",
    "LastRows",
    "Late",
    "LatenessOption",
    "Latenesses",
    "Memory",
    "MultiOn",
    "NamedLatenesses",
    "On",
    "Partition",
    "PolicyName",
    "RowsPerMatch",
    "Share",
    "Shed",
    "SqlOption",
    "StreamingQueryLike",
    "Times",
    "Within",
]

if TYPE_CHECKING:
    from os import PathLike

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from braided.eviction.policies.policy import Policy
    from braided.operators.detect.detector import Detector, KeyedDetector
    from braided.operators.detect.spec import Pattern
    from braided.time.lateness import Lateness

On: TypeAlias = str | Sequence[str | tuple[str, str]] | None
"""The keys of two streams: a name, several, pairs of (left, right), or None for a join without keys."""

MultiOn: TypeAlias = str | Sequence[str | tuple[str, ...]]
"""The keys of many streams: a name, several, or tuples with a name for each stream."""

Times: TypeAlias = str | tuple[str, str]
"""The event-time column of two streams: one name, or one for each."""

Within: TypeAlias = Duration | tuple[Duration, Duration]
"""How far apart times may be: one duration, or how long a left and a right row stay joinable."""

LastRows: TypeAlias = int | tuple[int, int]
"""How many rows of the other stream a row meets: one number, or one of left rows and one of right rows."""

LatenessOption: TypeAlias = "Duration | Literal['auto'] | Lateness"
"""How late rows may be: a duration, ``"auto"``, or a `braided.Lateness` that says how to learn it."""

Latenesses: TypeAlias = "LatenessOption | Sequence[LatenessOption | None] | None"
"""One lateness for all streams, or one for each; None takes the input's watermark, else learns."""

NamedLatenesses: TypeAlias = "LatenessOption | Mapping[str, LatenessOption] | None"
"""One lateness for all streams, or one by each stream's name."""

Memory: TypeAlias = int | str
"""A budget per worker: a number of rows, or bytes such as ``"256 MB"``."""

PolicyName: TypeAlias = Literal["auto", "gdj", "recent", "prob", "age", "fifo", "random", "tail"]
"""The names of the eviction policies; `braided.GDJ` and the others take parameters."""

Evict: TypeAlias = "PolicyName | Policy"
"""Which row gives way: a policy's name, or a policy with parameters."""

Share: TypeAlias = Literal["unified", "proportional"]
"""Whether streams compete for one budget, or divide it by their rates."""

GroupShare: TypeAlias = Literal["unified", "credits"]
"""Whether the rows of several joins compete for one budget, or the joins divide it by their average credits."""

Shed: TypeAlias = float | Literal["unbiased"]
"""A share of the rows to drop at random, or as many as make the rest fit the budget for the whole window."""

Partition: TypeAlias = Literal["auto", "hash", "ssp", "grid"]
"""How rows are laid over workers."""

Control: TypeAlias = "str | PathLike[str] | bool | None"
"""Where routing tables are: a directory of the operator's own; None, or True, for one that is found; False for none."""

Late: TypeAlias = Literal["flag", "drop", "side"]
"""What becomes of rows that come too late to be put in order."""

LateRowsOption: TypeAlias = Literal["join", "drop", "side"]
"""What becomes of rows that come too late for a join: joined with what is there, dropped, or apart."""

RowsPerMatch: TypeAlias = Literal["one", "all", "all omit empty", "all with unmatched"]
"""What a match becomes: one row, or all of its rows."""

How: TypeAlias = Literal["inner", "left", "right", "full", "left_semi", "left_anti"]
"""The kinds of joins that there are. Spark's other spellings, such as ``"leftouter"``, mean the same."""

AsofHow: TypeAlias = Literal["left", "inner"]
"""Whether left rows of an as-of join come out that have no right row."""

Direction: TypeAlias = Literal["backward", "forward", "nearest"]
"""Where an as-of join looks for the right row of a left row: before it, after it, or on both sides."""

Keys: TypeAlias = str | Sequence[str] | None
"""The columns of one stream within which order is kept; None for the stream as a whole."""

SqlOption: TypeAlias = "str | int | float | bool | Sequence[LatenessOption | None] | Lateness | Policy | None"
"""The value of an option of the joins of a query."""

JOIN = "join"
"""The column of a group's results that names the join of a row."""

AnyDetector: TypeAlias = "Detector | KeyedDetector | Pattern"
"""What detects: a class of the user's, for each key or for many at once, or a pattern."""

DetectorState: TypeAlias = "dict[str, Any] | list[Any] | str | float | bool | pa.RecordBatch | pa.Table | None"
"""What a detector remembers of a key: plain JSON, or Arrow data."""

Json: TypeAlias = dict[str, Any]
"""Plain JSON."""

ClockRows: TypeAlias = "Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]"
"""Says which rows of a batch set the clock."""


class ArrowData(Protocol):
    """Anything that speaks the Arrow C stream interface: pyarrow, pandas, polars or DuckDB tables."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with a stream of record batches."""


class StreamingQueryLike(Protocol):
    """A Spark `StreamingQuery`, as far as a report asks."""

    @property
    def recentProgress(self) -> Sequence[Any]:
        """The progress of the last batches."""
