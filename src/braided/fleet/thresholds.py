"""When a peer counts as hot and when it reports its load: Synergy's thresholds h, l and t, and its load levels."""

from __future__ import annotations

from dataclasses import dataclass

from braided.balance.hot_spots import HORIZON, PERSISTENCE, HotSpotRule
from braided.balance.levels import EqualLevels, Levels, OverlappingLevels
from braided.balance.load_averages import HORIZONS
from braided.errors import BraidedError, PeerError

LEVELS = OverlappingLevels(floor=0.2, growth=1.5, overlap=0.3, top=1.0)
"""Six levels, close to the paper's five. Each is half as large again, and they overlap: a peer's CPU varies by 10%."""
FLOOR = 0.5
"""A peer that uses less than half of its cores is never hot: a move interrupts the component."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When a peer is a hot spot. The thresholds are the same in all peers of a fleet.

    overload : h, the load above which a peer is hot. None: 1.2 times the mean of the peers, and half of its cores.
    imbalance : l, how much more load the most loaded must have than the least loaded. None: a fifth of the mean.
    lasting : t, over how many periods the average must exceed h too: 1, 5 or 15. Both criteria must hold in three
        periods in a row, or in one where `lasting` is 1.
    levels : a peer reports its load when this changes level.

    The paper's setting, with periods of a minute and loads that count processes:

    >>> paper = Thresholds(overload=2.0, imbalance=0.2, lasting=1, levels=EqualLevels(count=5, overlap=0.2, top=10.0))
    """

    overload: float | None = None
    imbalance: float | None = None
    lasting: int = HORIZON
    levels: Levels = LEVELS

    def __post_init__(self) -> None:
        for name in ("overload", "imbalance"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise PeerError(f"{name}={value}: write a load above 0; 1 is all cores of a peer")
        if self.lasting not in HORIZONS:
            raise PeerError(f"lasting={self.lasting}: write one of {', '.join(map(str, HORIZONS))} periods")

    @property
    def busy(self) -> float:
        """The load from which on a peer also reports the shares of its components."""
        return FLOOR if self.overload is None else self.overload

    def rule(self) -> HotSpotRule:
        """Return a new rule for the hosts of one operator."""
        return HotSpotRule(
            floor=FLOOR,
            period="periods",
            overload=self.overload,
            imbalance=self.imbalance,
            horizon=self.lasting,
            persistence=min(self.lasting, PERSISTENCE),
        )


def read_levels(text: str | None) -> Levels:
    """Return levels of equal width from `NUMBER[,OVERLAP[,TOP]]`, or the default levels without a text.

    >>> read_levels("7,0.1").bounds[:2]
    (0.16666666666666666, 0.3333333333333333)
    """
    if text is None:
        return LEVELS
    try:
        count, *more = text.split(",")
        overlap, top = [*map(float, more), *(0.0, 1.0)[len(more) :]]
        return EqualLevels(count=int(count), overlap=overlap, top=top)
    except (ValueError, BraidedError) as error:
        why = f"; {error}" if isinstance(error, BraidedError) else ""
        raise PeerError(
            f"levels={text!r}: write a number of levels, their overlap and the top, such as 5,0.02,1{why}"
        ) from error
