"""Time in the model of outer joins: random streams, their clocks, learned lateness, quarantine and horizons.

It has in small what `braided.time` has: a clock leaps where most of the last rows are, and a row far ahead of all clocks
is doubted until a clock gets near, or until its stream has gone on for long without it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from support.outer_rules import Rules

NEVER, FOREVER = -(10**9), 10**9
LEFT, RIGHT = 0, 1
PRESERVED = {"left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}
"""Which sides a join preserves. Semi and anti joins are other readings of a left or a right join."""
_BOUNDS = ((-3, 3), (-6, 0), (0, 6), (-6, 6), (-9, -1), (1, 9), (0, 0), (-12, 12))
_CALM = 4  # batches without a long delay after which the lateness shrinks


class Row(NamedTuple):
    """One row of a stream."""

    number: int
    side: int
    key: int
    time: int


class Batch(NamedTuple):
    """Rows that come together, and when."""

    moment: int
    rows: list[Row]


@dataclass(frozen=True)
class Setting:
    """The join, lo <= right.time - left.time <= hi, and the size of everything."""

    kind: str
    workers: int
    keys: int
    buckets: int
    lo: int
    hi: int
    jump: int
    quorum: int
    voters: int
    floors: tuple[int, int]
    idle: int | None

    @classmethod
    def random(cls, chance: random.Random, kind: str) -> Setting:
        """Return a small setting; bounds may be unequal, or both on one side of a row."""
        lo, hi = chance.choice(_BOUNDS)
        lo, hi = sorted((lo + chance.randint(0, 2), hi))
        return cls(
            kind, chance.randint(1, 5), chance.randint(1, 4), chance.randint(1, 2), lo, hi, chance.randint(8, 14),
            chance.randint(1, 3), chance.randint(3, 8), (chance.randint(0, 3), chance.randint(0, 3)),
            chance.choice((None, None, 2, 4)),
        )  # fmt: skip

    def stays(self, side: int) -> int:
        """How far beyond a row's time the last row may be that it matches."""
        return self.hi if side == LEFT else -self.lo

    def match(self, left: Row, right: Row) -> bool:
        """Whether two rows belong together."""
        return left.key == right.key and self.lo <= right.time - left.time <= self.hi


def random_batches(chance: random.Random, setting: Setting) -> list[Batch]:
    """Return streams with late rows, wrong times far ahead, silences of one stream, and leaps of both."""
    batches, now, number = [], 0, 0
    behind = (0, chance.choice((0, 0, 0, 6)))
    wrong, ahead = chance.choice((0.0, 0.0, 0.05, 0.15, 0.3)), setting.jump + chance.randint(1, 16)
    silent = [0, 0]
    for moment in range(chance.randint(6, 36)):
        now += chance.choice((0, 1, 1, 2, 2, 4)) if chance.random() > 0.02 else 2 * setting.jump
        silent = [max(0, left - 1) if left or chance.random() > 0.04 else chance.randint(2, 8) for left in silent]
        rows = []
        for _ in range(int(5 * chance.random())):
            side = int(2 * chance.random())
            if silent[side]:
                continue
            time, luck = now - behind[side] + int(3 * chance.random()), chance.random()
            if luck < wrong:
                time += ahead
            elif luck > 0.7:
                time -= chance.choice((1, 2, 3, chance.randint(0, 14)))
            rows.append(Row(number, side, int(setting.keys * chance.random()), time))
            number += 1
        batches.append(Batch(moment, rows))
    return batches


Streams = tuple[Setting, list[Batch]]


def doubted_before_silence() -> Streams:
    """Return a right stream that goes on for just as long as a doubted row is waited for, and is silent then.

    A second doubted row comes soon after the first, so that both are kept until a little later.
    """
    setting = Setting("left", 2, 1, 1, lo=-8, hi=0, jump=10, quorum=1, voters=4, floors=(0, 0), idle=None)
    both = [[0], [1, 25], [3, 26], *([time] for time in range(4, 11))]
    times = [([right[0]], right) for right in both] + [([left], []) for left in (*range(12, 29, 2), *range(29, 34))]
    batches, number = [], 0
    for moment, sides in enumerate(times):
        rows = [(side, time) for side, mine in enumerate(sides) for time in mine]
        batches.append(Batch(moment, [Row(number + at, side, 0, time) for at, (side, time) in enumerate(rows)]))
        number += len(rows)
    return setting, batches


class Progress(NamedTuple):
    """How far a stream has gone on since its clock last leapt."""

    leaps: int = 0
    moved: int = 0
    rows: int = 0

    def on_for(self, since: Progress, patience: int, voters: int) -> bool:
        """Whether it has gone on for longer than that."""
        moved, rows = (since.moved, since.rows) if since.leaps == self.leaps else (0, 0)
        return self.moved - moved > max(0, patience) and self.rows - rows >= voters


class Stream:
    """A stream's clock, which leaps only to where most of the last rows are, and its learned lateness."""

    def __init__(self, setting: Setting, side: int) -> None:
        self._setting = setting
        self.clock: int | None = None
        self.settled = False
        self.top = NEVER
        self.progress = Progress()
        self.lateness = self._floor = setting.floors[side]
        self._calm = 0
        self._votes: list[int] = []
        self._last_rows: int | None = None
        self._silent = 0

    @property
    def counted(self) -> int | None:
        """The clock, once enough rows have confirmed it."""
        return self.clock if self.settled else None

    @property
    def idle(self) -> bool:
        """Whether the stream has been silent for so long that it holds the other one back no longer."""
        return self._setting.idle is not None and self._silent >= self._setting.idle

    def update(self, times: list[int], moment: int, other: int | None) -> None:
        """Take a batch; `other` is where the other stream's clock was."""
        if times or self._last_rows is None:
            self._last_rows = moment
        self._silent = moment - self._last_rows
        if times:
            self.top = max(self.top, *times)
            if self.clock is None:
                self.clock = sorted(times)[len(times) // 2]
            self._learn(self.clock, times)
            self._move(self.clock, times, other)

    def _learn(self, clock: int, times: list[int]) -> None:
        delay = max((clock - time for time in times if clock - time <= self._setting.jump), default=0)
        self._calm = 0 if delay >= self.lateness else self._calm + 1
        if delay > self.lateness:
            self.lateness = delay
        elif self._calm > _CALM:
            self.lateness = max(self._floor, self.lateness - 1)

    def _move(self, clock: int, times: list[int], other: int | None) -> None:
        jump, quorum = self._setting.jump, self._setting.quorum
        self._votes = [*self._votes, *times][-max(len(times), self._setting.voters) :]
        near = [time for time in times if abs(time - clock) <= jump]
        vouched = [] if near or other is None else [t for t in times if t - clock > jump and t - other <= jump]
        for sign in (1, -1) if len(near) < len(times) and not vouched else ():
            votes = sorted(vote for vote in self._votes if sign * (vote - clock) > jump)
            new = any(sign * (time - clock) > jump for time in times)
            if new and len(votes) >= quorum and 2 * len(votes) > len(self._votes):
                self.clock, self.settled = votes[len(votes) // 2], True
                self.progress = Progress(self.progress.leaps + 1)
                return
        self.clock = max([clock, *near, *vouched])
        if vouched:
            self.progress = Progress(self.progress.leaps + 1)
        elif self.settled:
            leaps, moved, rows = self.progress
            self.progress = Progress(leaps, moved + self.clock - clock, rows + len(near))
        else:
            self.settled = sum(abs(vote - clock) <= jump for vote in self._votes) >= quorum


class Horizons:
    """What all workers keep of time: which rows are late, which times are doubted, and how long."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self._setting, self._rules = setting, rules
        self.streams = [Stream(setting, side) for side in (LEFT, RIGHT)]
        self.highest = [NEVER, NEVER]
        self.limit = FOREVER
        self.patience = [0, 0]
        self._without_idle = [NEVER, NEVER]

    def late(self, row: Row) -> bool:
        """Whether a row is behind the highest horizon committed before its batch."""
        return row.time < (self.highest if "idle" in self._rules else self._without_idle)[row.side]

    def advance(self, batch: Batch) -> None:
        """Move the clocks and commit the horizons."""
        before = [stream.counted for stream in self.streams]
        for side, stream in enumerate(self.streams):
            stream.update([row.time for row in batch.rows if row.side == side], batch.moment, before[1 - side])
        clocks = [stream.counted for stream in self.streams]
        furthest = max((clock for clock in clocks if clock is not None), default=None)
        if furthest is None:
            return
        self.limit = furthest + self._setting.jump
        for side, stream in enumerate(self.streams):
            own = clocks[side]
            clock = furthest if stream.idle else own
            if clock is not None:
                horizon = clock - stream.lateness
                self.highest[side] = max(self.highest[side], horizon) if "horizon" in self._rules else horizon
            if own is not None:
                self._without_idle[side] = max(self._without_idle[side], own - stream.lateness)
        both = sum(stream.lateness for stream in self.streams)
        self.patience = [self._setting.stays(side) + both for side in (LEFT, RIGHT)]
