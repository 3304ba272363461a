"""Rows that are far ahead of every clock: when they are believed, when they are given up. One rule for all operators.

```
 ........ clock|...... near ......|limit ......... doubted: kept apart, and moves no clock .........
```

A row is *doubted* while no stream vouches for its time: it is after the clock plus the jump of every stream whose clock
counts (`braided.time.trust`). Of a doubted row it is asked after every batch, in this order:

1. Has some stream got near its time? Then it is believed, and is a row like all others.
2. Has its own stream gone on without it, row by row, for longer than a row stays, and for as many rows as vote on
   where the clock is? Then it is given up. Only rows near the clock count as going on. A leap of the clock does not:
   the stream was silent, and nothing says that the rows which it did not reach are wrong. Their wait begins anew.

*Why no silence loses a row.* Let no row of a stream be more than a jump behind an earlier one (a lateness is never
longer). A doubted row x is given up only if a row y, in a later batch, was near the clock and moved it. Since y came
after x, y >= x - jump; so after y's batch the clock is at least x - jump, x is within the limit, and the first question
has believed it before the second is asked. That holds however the clock leaps in between, and wherever to. Rows that
were believed, and are doubted again since a wrong clock was taken back, have the earliest mark of all. The correction
was a leap, and progress is counted from the last leap: only rows that came after them count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from braided.time.clocks import MAX_TIME

if TYPE_CHECKING:
    from braided.time.stream_clock import StreamClock

VOTERS = 64
"""The vote on where a clock is counts about so many last rows, or those of the last batch if it has more."""
# Rows that came while a stream went on for this part of their patience are kept, and given up, together.
_PARTS = 8

Verdict = Literal["believed", "doubted", "given up"]


class StreamProgress(NamedTuple):
    """How far a stream has gone on row by row since its clock last leapt: in microseconds and in rows.

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
        """Return where a stream is after rows near its clock have moved it."""
        return StreamProgress(self.leaps, self.moved + moved, self.rows + rows)

    def leapt(self) -> StreamProgress:
        """Return where a stream is after a leap: every wait begins anew."""
        return StreamProgress(self.leaps + 1)

    def on_for(self, since: StreamProgress, patience: int) -> bool:
        """Whether the stream has gone on for longer than `patience`, and by as many rows as vote."""
        moved, rows = (since.moved, since.rows) if since.leaps == self.leaps else (0, 0)
        return self.moved - moved > max(0, patience) and self.rows - rows >= VOTERS


class Quarantine:
    """The rule, after the clocks have taken a batch. In a final batch nothing is doubted."""

    def __init__(self, clocks: Sequence[StreamClock], *, final: bool = False) -> None:
        vouching = [clock.limit for clock in clocks if clock.settled]
        self.limit = MAX_TIME if final else max(vouching, default=MAX_TIME)
        """The last time that is not doubted."""
        self._progress = [clock.progress for clock in clocks]

    def since(self, side: int) -> StreamProgress:
        """Return the mark of rows of a stream that are put apart now."""
        return self._progress[side]

    def judge(self, side: int, first: int, since: StreamProgress, patience: int) -> Verdict:
        """Say what becomes of rows put apart earlier, by their first time; believed are those up to the limit."""
        if first <= self.limit:
            return "believed"
        return "given up" if self._progress[side].on_for(since, patience) else "doubted"

    def same(self, side: int, since: StreamProgress, patience: int) -> bool:
        """Whether rows put apart at that mark and rows put apart now may be kept together, under the earlier mark.

        Then the later rows wait a little less. The proof above still holds: less than a part of the patience has passed
        when they come, so a row y comes after them before they are given up. Under the later mark the earlier rows
        would wait longer than the controller assumes. It drops their assignment once the patience has passed since
        they came.
        """
        now, width = self._progress[side], max(1, patience // _PARTS)
        return since.leaps == now.leaps and since.moved // width == now.moved // width
