"""Options that several logical operators share, each written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from braided.durations import format_duration, parse_duration
from braided.errors import OptionError
from braided.operators.spec import Spec, option
from braided.time.resolve import resolve_idle
from braided.typing import Duration, Evict, Latenesses, LateRowsOption, Memory, Share, Shed

LATENESS_TEXT = (
    'How late a row may be and still count: one duration, or one for each stream. ``"auto"`` or a `braided.Lateness` '
    "learns it from the stream's own delays. Default: the delay of the input's own `withWatermark`, else ``\"auto\"``. "
    "The result of another braided operator has a lateness of its own; a given one is added to it."
)


class DefaultDuration(str):
    """A duration that is a default: equal to the same duration written by a user, but of another type."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class WithIdle(Spec):
    """An operator that may stop waiting for silent streams."""

    idle: Duration | None = option(
        "Once a stream has been silent for this long, measured by the batches' timestamps, the other streams no longer "
        "wait for it. If it returns with older rows, they are late. Once all streams are silent, waiting rows are "
        "released. None: streams always wait.",
        default=None,
    )

    def check(self) -> None:
        """Refuse anything but a duration above zero."""
        super().check()
        resolve_idle(self.idle)


@dataclass(frozen=True, kw_only=True)
class WithLateness(WithIdle):
    """An operator that accepts late rows, up to a lateness for each stream."""

    lateness: Latenesses = option(LATENESS_TEXT, default=None)


@dataclass(frozen=True, kw_only=True)
class WithLateRows(Spec):
    """An operator that joins, drops or returns rows that come too late."""

    late: LateRowsOption = option(
        'What happens to a row that is more than the lateness behind its stream\'s clock: ``"join"`` joins it with the '
        'rows that are still stored, and counts it; ``"drop"`` drops and counts it; ``"side"`` returns a pair, the '
        "joined rows and the late rows: docs/reference/outer.md. (Two queries over the pair read the sources twice.)",
        default="join",
    )

    def check(self) -> None:
        """Refuse unknown values, and budgets, which treat late rows in their own way."""
        super().check()
        if self.late not in get_args(LateRowsOption):
            raise OptionError(f"late={self.late!r}: write 'join', 'drop' or 'side'")
        for name in ("memory", "shed"):
            if self.late != "join" and getattr(self, name, None) is not None:
                raise OptionError(f"late={self.late!r}: {name}= drops rows itself; leave one of them out")


@dataclass(frozen=True, kw_only=True)
class WithBudget(Spec):
    """An operator that stores no more than a budget allows."""

    memory: Memory | None = option(
        'A budget per worker over all streams: a number of rows, or ``"256 MB"`` (credits and indexes included). The '
        "result is then the part of the exact one that the stored rows allow. Rows are put in order first, so results "
        "are delayed by the lateness.",
        default=None,
    )
    evict: Evict = option(
        'Which row is evicted: ``"auto"`` (the policy that finds most results on a sample), ``"gdj"``, ``"recent"``, '
        '``"prob"``, ``"age"``, ``"fifo"``, ``"random"``, ``"tail"``, or a policy with parameters: '
        "``braided.GDJ(initial=0.3)``.",
        default="auto",
    )
    share: Share = option(
        '``"unified"`` lets all streams compete for the budget, ``"proportional"`` divides it by their rates.',
        default="unified",
    )
    shed: Shed | None = option(
        'Drop this share of each stream at random first, so that results are a fair sample; ``"unbiased"`` drops so '
        "many rows that the rest fits the budget for the whole window.",
        default=None,
    )

    def check(self) -> None:
        """Refuse unknown ways to share."""
        super().check()
        if self.share not in ("unified", "proportional"):
            raise OptionError(f"share={self.share!r}: write 'unified' or 'proportional'")


RUNTIME = {
    "condition": "The join's condition as `DataFrame.join` takes it, instead of `on`, `time`, `within`, `between` and "
    "`where`: keys, bounds on times and the rest are found in it. The result then has all columns of both streams.",
    "cap": "The largest distance between two times that the condition bounds on one side only, such as `clickTime >= "
    "adTime`. This is your promise: rows are stored for this long, and pairs that are further apart are not found.",
    "name": "The name of this operator in reports.",
    "control": "Where the routing tables are stored. With them the routing adapts while the query runs; results are "
    "the same either way. By default they are in the checkpoint, or below the directory that the setting "
    "``spark.braided.control`` names, a path or fsspec URL that the driver and all executors can reach. A path or URL "
    "given here is a directory for this operator alone. False: the routing is fixed. With a budget, and with "
    "``partition='hash'``, it is fixed unless this is True or a directory.",
    "redact": "Keep the values of hot keys out of reports and of the control directory; their hashes remain.",
    "workers": "The number of workers. With several workers the routing adapts, as on Spark. With a budget it is "
    "fixed, because it decides which rows fit.",
    "arrival": "The column whose values give the order in which rows arrive, one name or one for each input; any "
    "sortable type that all inputs share. Default: the event times.",
    "batch_rows": "The number of rows, of all inputs together, in one batch.",
}
"""Descriptions of options that belong to a runtime, not to a spec."""


def one_of(value: object, stream: int) -> object:
    """Return a stream's value of an option that has one value for all or one for each; None if it is missing."""
    if isinstance(value, list | tuple):
        return value[stream] if stream < len(value) else None
    return value


def resolve_bounds(within: object, between: object) -> tuple[int, int]:
    """Return (lo, hi) in microseconds: lo <= r.t - l.t <= hi.

    >>> resolve_bounds("10 seconds", None)
    (-10000000, 10000000)
    >>> resolve_bounds(("5 seconds", "1 second"), None)
    (-1000000, 5000000)
    """
    if (within is None) == (between is None):
        raise OptionError("give within= or between=, exactly one of them; for example within='10 seconds'")
    if within is not None:
        if isinstance(within, tuple | list):
            if len(within) != 2:
                raise OptionError(f"within={within!r}: write one duration or a pair (left, right)")
            left, right = (parse_duration(part, "within") for part in within)
        else:
            left = right = parse_duration(within, "within")
        if left < 0 or right < 0:
            raise OptionError(f"within={within!r}: negative; use between= for bounds on one side of zero")
        return -right, left
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise OptionError(f"between={between!r}: write a pair, ('5 seconds', '10 seconds')")
    lo, hi = (parse_duration(part, "between") for part in between)
    if lo > hi:
        raise OptionError(f"between={between!r}: {no_pair(lo, hi)}")
    return lo, hi


def no_pair(lo: int, hi: int) -> str:
    """Return why a window has no pair in it."""
    return f"the lower bound {format_duration(lo)} is above the upper bound {format_duration(hi)}, so no pair can match"
