"""The options of a join of many streams on a common key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.operators.shared_options import WithBudget, WithLateness, WithLateRows, one_of
from braided.operators.spec import option
from braided.typing import Duration, MultiOn

MOST_STREAMS = 8


def check_streams(streams: object) -> int:
    """Return the number of streams; refuse anything but a list of 2 to 8."""
    if not isinstance(streams, list | tuple):
        raise OptionError(f"streams: give a list of streams, not a {type(streams).__name__}")
    if not 2 <= len(streams) <= MOST_STREAMS:
        raise OptionError(f"streams: {len(streams)} given; give 2 to {MOST_STREAMS}")
    return len(streams)


@dataclass(frozen=True, kw_only=True)
class MultiJoinSpec(WithLateness, WithLateRows, WithBudget):
    """An inner join of 2 to 8 streams on equal keys, all times of a combination within a window.

    >>> MultiJoinSpec(streams=3, on="id", time="ts", within="1 hour").span
    3600000000
    """

    kind: ClassVar[str] = "multijoin"

    streams: int
    on: MultiOn = option(
        '``"phone"``, ``["a", "b"]``, or with a name for each stream ``[("caller", "phone", "number"), "b"]``.'
    )
    time: str | Sequence[str] = option(
        "The event-time column, or one for each stream. TIMESTAMP everywhere, or TIMESTAMP_NTZ everywhere."
    )
    within: Duration = option(
        'How far apart the earliest and the latest row of a combination may be, such as ``"10 seconds"``.'
    )
    suffixes: Sequence[str] | None = option(
        'Appended to column names that clash, one for each stream. Default: ``("", "_2", "_3", ...)``.', default=None
    )
    partition: Literal["auto", "hash"] = option(
        '``"auto"`` hashes keys and, if the routing adapts, splits the first stream of a hot key over workers and '
        'copies the others to each: put the stream with the most rows first. ``"hash"`` only hashes.',
        default="auto",
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"streams[{number}]" for number in range(self.streams))

    def time_of(self, stream: int) -> object:
        return one_of(self.time, stream)

    @property
    def span(self) -> int:
        if isinstance(self.within, tuple):
            raise OptionError(f"within={self.within!r}: write one duration, such as '10 seconds'")
        span = parse_duration(self.within, "within")
        if span < 0:
            raise OptionError(f"within={self.within!r}: negative; write '0 seconds' or more")
        return span

    def check(self) -> None:
        if self.partition not in ("auto", "hash"):
            raise OptionError(f"partition={self.partition!r}: a join of many streams is hashed; write 'auto' or 'hash'")
        if self.on is None:
            raise OptionError(
                "on=None: a join of many streams needs a key; two streams join without one in braided.join"
            )
        _ = self.span
        super().check()
