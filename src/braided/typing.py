"""The types of the public functions, with one line for each."""

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
"""How late rows may be: a duration, ``"auto"``, or a `braided.Lateness` with the settings for learning it."""

Latenesses: TypeAlias = "LatenessOption | Sequence[LatenessOption | None] | None"
"""One lateness for all streams, or one for each; None takes the delay of the input's watermark, or else learns it."""

NamedLatenesses: TypeAlias = "LatenessOption | Mapping[str, LatenessOption] | None"
"""One lateness for all streams, or a mapping from the stream's name to its lateness."""

Memory: TypeAlias = int | str
"""A budget per worker: a number of rows, or bytes such as ``"256 MB"``."""

PolicyName: TypeAlias = Literal["auto", "gdj", "recent", "prob", "age", "fifo", "random", "tail"]
"""The names of the eviction policies; the classes, such as `braided.GDJ`, take parameters."""

Evict: TypeAlias = "PolicyName | Policy"
"""The eviction policy, which chooses the row to evict: its name, or a policy with parameters."""

Share: TypeAlias = Literal["unified", "proportional"]
"""Whether streams compete for one budget, or divide it in proportion to their rates."""

GroupShare: TypeAlias = Literal["unified", "credits"]
"""Whether the rows of several joins compete for one budget, or the joins divide it by their average credits."""

Shed: TypeAlias = float | Literal["unbiased"]
"""The share of rows to drop at random; ``"unbiased"`` drops as many as needed to keep the rest for the whole window."""

Partition: TypeAlias = Literal["auto", "hash", "ssp", "grid"]
"""How rows are laid over workers."""

Control: TypeAlias = "str | PathLike[str] | bool | None"
"""Where routing tables are: a directory for this operator; None or True to choose one; False for fixed routing."""

Late: TypeAlias = Literal["flag", "drop", "side"]
"""How to handle rows that arrive too late to be put in order."""

LateRowsOption: TypeAlias = Literal["join", "drop", "side"]
"""How to handle late rows of a join: join them with the stored rows, drop them, or return them as a second stream."""

RowsPerMatch: TypeAlias = Literal["one", "all", "all omit empty", "all with unmatched"]
"""How many rows a match returns: one, or all of its rows."""

How: TypeAlias = Literal["inner", "left", "right", "full", "left_semi", "left_anti"]
"""The kinds of joins. Spark's other spellings, such as ``"leftouter"``, are accepted too."""

AsofHow: TypeAlias = Literal["left", "inner"]
"""Whether an as-of join also returns left rows that have no right row."""

Direction: TypeAlias = Literal["backward", "forward", "nearest"]
"""Where an as-of join looks for the right row of a left row: before it, after it, or on both sides."""

Keys: TypeAlias = str | Sequence[str] | None
"""The key columns of one stream; rows are ordered within each key. None orders the whole stream."""

SqlOption: TypeAlias = "str | int | float | bool | Sequence[LatenessOption | None] | Lateness | Policy | None"
"""The value of an option for the joins of a SQL query."""

JOIN = "join"
"""The column in the result of a join group that names the join of each row."""

AnyDetector: TypeAlias = "Detector | KeyedDetector | Pattern"
"""A detector: a class written by the user, for one key or for many keys at once, or a pattern."""

DetectorState: TypeAlias = "dict[str, Any] | list[Any] | str | float | bool | pa.RecordBatch | pa.Table | None"
"""The state that a detector saves for a key: plain JSON, or Arrow data."""

Json: TypeAlias = dict[str, Any]
"""Plain JSON."""

ClockRows: TypeAlias = "Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]"
"""A function that returns which rows of a batch set the clock."""


class ArrowData(Protocol):
    """Any object with the Arrow C stream interface: a table of pyarrow, pandas, polars or DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with a stream of record batches."""


class StreamingQueryLike(Protocol):
    """The part of a Spark `StreamingQuery` that a report needs."""

    @property
    def recentProgress(self) -> Sequence[Any]:
        """The progress of the last batches."""
