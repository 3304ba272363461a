"""The output time of StreamCloud's joins, min(s.t, u.t) (section II.A): for which joins its delay is known.

Where both rows are always there, the largest smaller time seen is at or before the largest of either stream, so the
smaller time is as late as the later of the two. In a left join a row that matches nothing has the time of its own
stream alone, and a pair after it may be older by as much as the right row may be before its left row; a right join is
the reverse. In a full join rows of each stream come out alone at their own pace, so no delay is known.
"""

from __future__ import annotations

from braided.errors import OptionError
from braided.operators.join.spec import JoinSpec
from braided.operators.physical import InputColumn, Plan
from braided.plan.nodes import SmallerTime


def check_time(time: object) -> None:
    """Refuse an output time that does not exist."""
    if time not in ("left", "min"):
        raise OptionError(f"time={time!r}: write 'left' or 'min'; each query has named its own time")


def smaller_time(spec: JoinSpec, physical: Plan) -> SmallerTime:
    """Return the smaller time of a join, named as the left one with ``_min``; refuse joins whose delay is unknown."""
    columns = [column for column in physical.columns if isinstance(column, InputColumn) and column.marks is not None]
    times = {column.stream: column.name for column in columns if column.source == physical.times[column.stream]}
    if len(times) < len(physical.times):
        raise OptionError("time='min': the join must give both times, each with a bound; write time='left'")
    if spec.join_kind == "full":
        raise OptionError(
            "time='min': with how='full' rows of each stream come out alone, so it is not known how late the smaller "
            "time may be; write time='left'"
        )
    name = f"{times[0]}_min"
    if name.lower() in (column.name.lower() for column in physical.columns):
        raise OptionError(f"time='min': the join has a column {name!r} already; rename it with select() before")
    further = 0 if spec.join_kind == "inner" else _before_preserved(spec)
    if further and physical.propagated_delay is not None:
        raise OptionError(
            f"time='min': with how={spec.how!r} and a learned lateness it is not known how late the smaller time may "
            "be; give both streams a lateness=, such as '10 seconds', or write time='left'"
        )
    return SmallerTime(times[0], times[1], name, further)


def _before_preserved(spec: JoinSpec) -> int:
    """Return how far before the row that is always there its pair may be."""
    lo, hi = spec.bounds
    return max(0, hi if spec.join_kind == "right" else -lo)
