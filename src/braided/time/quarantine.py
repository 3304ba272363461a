"""The quarantine: when rows far ahead of every clock are believed, and when they are discarded, for all operators.

```
 ........ clock|...... near ......|limit ......... doubted: kept apart, and moves no clock .........
```
A row is *doubted* while no stream confirms its time: it is after the clock plus the jump of every stream whose clock
counts (`braided.time.trust`). After every batch, two questions are asked for a doubted row, in this order:

1. Has some stream reached its time, up to a jump? Then the row is believed, and is treated like all others.
2. Has its own stream continued without it, row by row, for longer than rows are stored, and by as many rows as vote
   on the clock? Then the row is discarded. Only rows near the clock count. A leap of the clock does not count: the
   stream was silent, so rows ahead of its new clock may still be right, and their wait begins again.

*Why a silence loses no row.* Let no row of a stream be more than a jump behind an earlier one (a lateness is never
longer). A doubted row x is discarded only if a row y, in a later batch, was near the clock and moved it. Because y came
after x, y >= x - jump. So after y's batch the clock is at least x - jump, x is within the limit, and the first question
believes x before the second one is asked. This holds for any leaps of the clock in between. Rows that were believed,
and are doubted again because a wrong clock was moved back, have the earliest mark of all. The correction was a leap,
and progress is counted from the last leap, so only rows that came after them count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from braided.time.clocks import MAX_TIME

if TYPE_CHECKING:
    from braided.time.stream_clock import StreamClock

VOTERS = 64
"""The vote on a clock counts about this many last rows, or the rows of the last batch if it has more."""

# Rows are stored and discarded together if they came while the stream advanced by this part of their patience.
_PARTS = 8

Verdict = Literal["believed", "doubted", "discarded"]


class StreamProgress(NamedTuple):
    """How far a stream has continued, row by row, since the last leap of its clock: in microseconds and in rows.

    >>> now, before = StreamProgress(leaps=2, moved=50, rows=100), StreamProgress(leaps=2, moved=10, rows=30)
    >>> now.on_for(before, 39), now.on_for(before, 40)
    (True, False)
    >>> now.on_for(StreamProgress(leaps=1, moved=900, rows=900), 49), now.on_for(StreamProgress(leaps=1), 50)
    (True, False)
    """

    leaps: int = 0
    moved: int = 0
    rows: int = 0

    def further(self, moved: int, rows: int) -> StreamProgress:
        """Return the progress after rows near the clock have moved it."""
        return StreamProgress(self.leaps, self.moved + moved, self.rows + rows)

    def leapt(self) -> StreamProgress:
        """Return the progress after a leap: every wait begins again."""
        return StreamProgress(self.leaps + 1)

    def on_for(self, since: StreamProgress, patience: int) -> bool:
        """Whether the stream has continued for longer than `patience`, and by as many rows as vote."""
        moved, rows = (since.moved, since.rows) if since.leaps == self.leaps else (0, 0)
        return self.moved - moved > max(0, patience) and self.rows - rows >= VOTERS


class Quarantine:
    """The rule for a batch, after its rows have updated the clocks. In a final batch no row is doubted."""

    def __init__(self, clocks: Sequence[StreamClock], *, final: bool = False) -> None:
        vouching = [clock.limit for clock in clocks if clock.settled]
        self.limit = MAX_TIME if final else max(vouching, default=MAX_TIME)
        """The last time that is not doubted."""
        self._progress = [clock.progress for clock in clocks]

    def since(self, side: int) -> StreamProgress:
        """Return the mark for rows of a stream that are put into quarantine now."""
        return self._progress[side]

    def judge(self, side: int, first: int, since: StreamProgress, patience: int) -> Verdict:
        """Return the verdict on rows in quarantine, by their first time; rows up to the limit are believed."""
        if first <= self.limit:
            return "believed"
        return "discarded" if self._progress[side].on_for(since, patience) else "doubted"

    def same(self, side: int, since: StreamProgress, patience: int) -> bool:
        """Whether rows with that mark and rows that are put into quarantine now may be stored together.

        They get the earlier mark, so the later rows wait a little less. The proof above still holds: less than a part
        of the patience has passed when they come, so a row y comes after them before they are discarded. With the later
        mark, the earlier rows would wait longer than the controller expects: it drops their assignment when the
        patience has passed since they came.
        """
        now, width = self._progress[side], max(1, patience // _PARTS)
        return since.leaps == now.leaps and since.moved // width == now.moved // width
