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
    "The result of another braided operator brings its own, to which a given one is added."
)


class DefaultDuration(str):
    """A duration that nobody wrote: equal to the same one as a user writes it, and yet known from it."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class WithIdle(Spec):
    """Waits for streams that fall silent, or not."""

    idle: Duration | None = option(
        "A stream that has been silent for so long, judged by the batches' timestamps, no longer holds the others "
        "back; should it return with older rows, they are late. If all are, what waits leaves. None: they always wait.",
        default=None,
    )

    def check(self) -> None:
        """Refuse what is no duration above zero."""
        super().check()
        resolve_idle(self.idle)


@dataclass(frozen=True, kw_only=True)
class WithLateness(WithIdle):
    """Takes rows that come late, by so much."""

    lateness: Latenesses = option(LATENESS_TEXT, default=None)


@dataclass(frozen=True, kw_only=True)
class WithLateRows(Spec):
    """Says what becomes of rows that come too late."""

    late: LateRowsOption = option(
        'What becomes of a row more than the lateness behind its stream\'s clock: ``"join"`` joins it with what is '
        'still stored and counts it, ``"drop"`` counts and drops it, ``"side"`` makes the result a pair, the joined '
        "rows and the late ones: docs/reference/outer.md. (Two queries over the pair read the sources twice.)",
        default="join",
    )

    def check(self) -> None:
        """Refuse ways that do not exist, and budgets, which have their own."""
        super().check()
        if self.late not in get_args(LateRowsOption):
            raise OptionError(f"late={self.late!r}: write 'join', 'drop' or 'side'")
        for name in ("memory", "shed"):
            if self.late != "join" and getattr(self, name, None) is not None:
                raise OptionError(f"late={self.late!r}: {name}= drops rows itself; leave one of them out")


@dataclass(frozen=True, kw_only=True)
class WithBudget(Spec):
    """Keeps no more than a budget allows."""

    memory: Memory | None = option(
        'A budget per worker over all streams: a number of rows, or ``"256 MB"`` (credits and indexes included). The '
        "result is then as much of the exact one as the kept rows allow. Rows are put in order first, so results come "
        "later by the lateness.",
        default=None,
    )
    evict: Evict = option(
        'Which row gives way: ``"auto"`` (whichever policy finds most on a sample of keys), ``"gdj"``, ``"recent"``, '
        '``"prob"``, ``"age"``, ``"fifo"``, ``"random"``, ``"tail"``, or a policy with parameters: '
        "``braided.GDJ(initial=0.3)``.",
        default="auto",
    )
    share: Share = option(
        '``"unified"`` lets all streams compete for the budget, ``"proportional"`` divides it by their rates.',
        default="unified",
    )
    shed: Shed | None = option(
        'Drop this share of each stream at random first, so that results are a fair sample; ``"unbiased"`` drops as '
        "many as make the rest fit the budget for the whole window.",
        default=None,
    )

    def check(self) -> None:
        """Refuse ways to share that do not exist."""
        super().check()
        if self.share not in ("unified", "proportional"):
            raise OptionError(f"share={self.share!r}: write 'unified' or 'proportional'")


RUNTIME = {
    "condition": "The join's condition as `DataFrame.join` takes it, instead of `on`, `time`, `within`, `between` and "
    "`where`: keys, bounds on times and the rest are found in it. The result then has all columns of both streams.",
    "cap": "How far apart two times are at most that the condition bounds on one side only, such as `clickTime >= "
    "adTime`. You vouch for it: rows are kept for so long, and pairs that are further apart are not found.",
    "name": "What reports call this operator.",
    "control": "Where the routing tables are, with which the routing adapts while the query runs; results are the same "
    "either way. By default they are in the checkpoint, or below what the setting ``spark.braided.control`` names, a "
    "path or fsspec URL that the driver and all executors reach. A path or URL is a directory for this operator alone. "
    "False: the routing is fixed. With a budget, and with ``partition='hash'``, it is fixed unless this is True or a "
    "directory.",
    "redact": "Keep the values of hot keys out of reports and of the control directory; their hashes remain.",
    "workers": "How many workers there are. With several the routing adapts, as on Spark; with a budget it stays as it "
    "is, since what fits depends on it.",
    "arrival": "The column by whose values rows arrive, one name or one for each input; any sortable type that all "
    "share. Default: the event times.",
    "batch_rows": "So many rows of all inputs together make a batch.",
}
"""What the reference says of options that are a runtime's and no spec's."""


def one_of(value: object, stream: int) -> object:
    """Return a stream's part of an option that is one for all or one for each; None where it is neither."""
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
