"""GDJ, GreedyDual-Join: the row with the smallest credit is evicted, and credits rise with matches (section 4).

It has three rules (section 4.1): the initial credit of a newcomer, the gain of a match, and the decay per unit of time.

A decay of all rows of a pool is not subtracted from each row, but added to the pool's `decayed`. The credit of a row is
its own value minus `decayed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from braided.compiled import in_place
from braided.durations import Duration, as_text, parse_duration
from braided.errors import OptionError
from braided.eviction.policies.hooks import GroupHooks, Hooks
from braided.eviction.policies.percentiles import percentile_index, select, shell_sort, values_below
from braided.eviction.policies.policy import Adopted, Policy, Shape, check_choice, check_count
from braided.eviction.records import EVERYTHING, Bytes, Ints, Reals, Records, State, UInt64s
from braided.eviction.sections import Facts, Reader, Writer, require
from braided.eviction.stored_rows import current_credit, pool_of

if TYPE_CHECKING:
    from braided.eviction.tuning.challenge import Challenge

_GAIN_ONE, _GAIN_RANK, _GAIN_NONE, _GAIN_RESET = range(4)
_GAINS = {"one": _GAIN_ONE, "rank": _GAIN_RANK, "none": _GAIN_NONE, "reset": _GAIN_RESET}
_DECAY_NONE, _DECAY_ONE, _DECAY_MEAN = range(3)
_DECAYS = {"none": _DECAY_NONE, "one": _DECAY_ONE, "mean": _DECAY_MEAN}
FIRST_GUESS = 0.2  # at most 5% worse than the best percentile on every Zipf-Pareto stream that we tried
_FRACTION = 1048576.0  # constants and decays are multiples of 2**-20, so that sums of credits are exact
_LN2 = 0.6931471805599453

CREDITS = np.dtype([("decayed", np.float64), ("added", np.float64), ("initial", np.float64), ("snapshot", np.int64)])
_SAVED = ("decayed", "added", "initial", "snapshot")


class Credits(NamedTuple):
    """The state of GDJ: its rules, the current unit of time, and for each pool the last snapshot of its credits."""

    gain: int
    decay: int
    unit: int
    by_percentile: int
    percentile: float
    constant: float
    refresh: int
    now: Ints
    """The number of the unit, and whether there was an event before."""
    pools: Records
    snapshot: Reals


@in_place
def _refresh(learned: Credits, rows: Records, chains: Records) -> None:
    """Take a snapshot of each pool's credits, for the percentile (and, sorted, for ranks)."""
    pools = len(learned.pools)
    for p in range(pools):
        credits = learned.snapshot[p]
        n = 0
        for slot in range(len(rows)):
            if rows[slot].entry >= 0 and (pools == 1 or rows[slot].stream == p):
                credits[n] = current_credit(rows, chains, slot)
                n += 1
        look_at(learned, p, n)


@in_place
def look_at(learned: Credits, pool: int, n: int) -> None:
    """Use the first n credits of a pool's snapshot as its current ones."""
    credits = learned.snapshot[pool]
    learned.pools[pool].snapshot = n
    learned.pools[pool].initial = learned.pools[pool].decayed
    k = percentile_index(learned.percentile, n)
    if learned.gain == _GAIN_RANK:
        shell_sort(credits, n)
        if n > 0 and learned.by_percentile:
            learned.pools[pool].initial = credits[k]
    elif n > 0 and learned.by_percentile:
        learned.pools[pool].initial = select(credits, n, k)


@in_place
def gain_of(learned: Credits, pool: int, credit: float) -> float:
    """Return what a match adds to the credit of a row, with gain one, rank or none."""
    if learned.gain == _GAIN_ONE:
        return 1.0
    if learned.gain == _GAIN_RANK:
        return 1.0 + values_below(learned.snapshot[pool], learned.pools[pool].snapshot, credit)
    return 0.0


@in_place
def initial_credit(learned: Credits, pool: int) -> float:
    """Return the initial credit of a newcomer: a percentile of the pool's credits, or a constant."""
    if learned.by_percentile:
        return float(learned.pools[pool].initial)
    return float(learned.constant + learned.pools[pool].decayed)


@in_place
def _begin(state: State, learned: Credits, time: int) -> None:
    """Apply the decay of the units of time that ended before this event, by raising `decayed`."""
    if learned.decay == _DECAY_NONE:
        return
    unit = time // learned.unit
    passed = unit - learned.now[0]
    if learned.now[1] and passed > 0:
        for p in range(len(learned.pools)):
            pool = learned.pools[p]
            if learned.decay == _DECAY_ONE:
                pool.decayed += passed
            elif state.pools[p].rows > 0:
                pool.decayed += np.floor(pool.added / state.pools[p].rows * _FRACTION) / _FRACTION
            pool.added = 0.0
    learned.now[0], learned.now[1] = unit, 1


@in_place
def _by_chain(learned: Credits) -> bool:
    return learned.gain in (_GAIN_ONE, _GAIN_NONE)


@in_place
def _chain_matched(state: State, learned: Credits, pool: int, entry: int, stream: int, shares: float) -> None:
    if learned.gain == _GAIN_ONE:
        state.chains[entry, stream].gained += shares
        learned.pools[pool].added += shares * state.chains[entry, stream].rows


@in_place
def _row_matched(state: State, learned: Credits, pool: int, slot: int, age: int, shares: float) -> None:
    if learned.gain == _GAIN_NONE or shares == 0.0:
        return
    before = current_credit(state.rows, state.chains, slot)
    if learned.gain != _GAIN_RESET:
        added = gain_of(learned, pool, before)
    else:
        added = max(0.0, initial_credit(learned, pool) - before)
    state.rows[slot].credit += added
    learned.pools[pool].added += added


@in_place
def _arrived(state: State, learned: Credits, key: np.uint64, time: int, stream: int, entry: int) -> None:
    if learned.snapshot.shape[1] > 0 and state.totals[0].events % learned.refresh == 0:
        _refresh(learned, state.rows, state.chains)


@in_place
def _newcomer(
    state: State, learned: Credits, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    return initial_credit(learned, pool_of(state.pools, stream)), EVERYTHING


@in_place
def _group_matched(state: Any, learned: Credits, slot: int) -> None:
    state.rows[slot].credit += gain_of(learned, 0, current_credit(state.rows, state.chains, slot))


@in_place
def _group_arrived(state: Any, learned: Credits, keys: UInt64s, roles: Bytes) -> None:
    if learned.snapshot.shape[1] > 0 and state.totals[0].events % learned.refresh == 0:
        _refresh(learned, state.rows, state.chains)


@in_place
def _group_newcomer(
    state: Any, learned: Credits, keys: UInt64s, roles: Bytes, content: np.uint64
) -> tuple[float, float]:
    return initial_credit(learned, 0), EVERYTHING


@dataclass(frozen=True, kw_only=True, repr=False)
class GDJ(Policy):
    """Gives every newcomer a trial, and keeps rows that have matched, whether they are popular for long or in a burst.

    initial : the percentile of the current credits with which a newcomer starts: 0 is the smallest credit, 1 the
        largest; ``"auto"`` tunes it while running (`braided.eviction.tuning.challenge`). The paper's best "rank
        percentiles", 0.84 to 0.998, give "a low-rank credit": we read them as counted from the largest.
    constant : an initial credit, rounded to 20 binary places, instead of `initial`.
    gain : what a result adds to a stored row that is part of it: ``"one"``; ``"rank"``, its place among the pool's
        credits, 1 for the smallest; ``"none"``; ``"reset"``, back to the initial credit if that is more.
    decay : what every credit loses at the end of a unit of time: ``"none"``; ``"one"``; ``"mean"``, the credits added
        in that unit divided by the number of stored rows.
    unit : the unit of time.
    refresh : after how many events percentiles and ranks are computed again; default: an 8th of the capacity, which has
        at most 2% fewer results than half of it. With 1, they are always current.

    The paper's METHOD 1 is gain one and decay none; METHOD 2 is rank and one; METHOD 3 is one and mean (`method`). A
    decay that is the same for all rows changes neither the order of credits nor which row has a percentile, so with an
    `initial` percentile METHODs 1 and 3 keep the same rows; decay matters only with `constant`. LFU is constant, one,
    none; LRU is constant, reset, one; FIFO is constant, none, one.

    If results are combinations of many streams (`Buffer`), an event with gain one adds to a row the number of results
    that contain both; this is 0 if a third stream has no row of the key. Rank and reset add once if there is a result.

    A group of joins supports METHODs 1 to 3, that is gain one, none or rank. With an `initial` percentile any decay
    keeps the same rows as no decay, so none is applied. With `constant` it supports no decay. There ``"auto"`` is a
    fixed percentile.

    Cost: gain one needs one addition for all rows that an event matches; rank and reset need one step per row. Memory:
    190 bytes per row of capacity, 380 with ``"auto"``; 1 or 2 bytes per stored row when saved.

    >>> GDJ(initial=0.3)
    GDJ(initial=0.3)
    >>> GDJ.method(2, initial=0.95)
    GDJ(initial=0.95, gain='rank', decay='one')
    >>> GDJ(initial=1.5)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: initial=1.5: write a percentile from 0 to 1, or 'auto'
    """

    initial: float | Literal["auto"] = "auto"
    constant: float | None = None
    gain: Literal["one", "rank", "none", "reset"] = "one"
    decay: Literal["none", "one", "mean"] = "none"
    unit: Duration = "1 second"
    refresh: int | None = None

    name = "gdj"
    row_bytes = 376
    stream_bytes = 58
    in_groups = "'gdj' (gain 'one', 'none' or 'rank'; with constant= no decay)"

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", as_text(self.unit, "unit"))
        check_choice("gain", self.gain, _GAINS)
        check_choice("decay", self.decay, _DECAYS)
        if parse_duration(self.unit, "unit") <= 0:
            raise OptionError(f"unit={self.unit!r}: not above zero; write '1 second'")
        check_count("refresh", self.refresh, "a number of events above 0")
        if self.constant is not None or self.initial == "auto":
            return
        if isinstance(self.initial, str | bool) or not 0 <= self.initial <= 1:
            raise OptionError(f"initial={self.initial!r}: write a percentile from 0 to 1, or 'auto'")

    @property
    def hooks(self) -> Hooks:
        """The hooks, which raise the credits of matched rows, and lower all credits as time passes."""
        return Hooks(
            begin=_begin, by_chain=_by_chain, chain_matched=_chain_matched, row_matched=_row_matched, arrived=_arrived,
            newcomer=_newcomer,
        )  # fmt: skip

    @classmethod
    def method(cls, number: int, *, initial: float | Literal["auto"] = "auto", unit: Duration = "1 second") -> GDJ:
        """Return the paper's METHOD 1, 2 or 3 (section 5.2)."""
        if number == 1:
            return cls(initial=initial, gain="one", decay="none", unit=unit)
        if number == 2:
            return cls(initial=initial, gain="rank", decay="one", unit=unit)
        if number == 3:
            return cls(initial=initial, gain="one", decay="mean", unit=unit)
        raise OptionError(f"method={number!r}: unknown method; the paper has METHODs 1, 2 and 3")

    @property
    def group_hooks(self) -> GroupHooks | None:
        """The hooks for a group of joins, in which a match in any join adds to the row's credit."""
        if self.gain == "reset" or (self.decay != "none" and self.constant is not None):
            return None
        return GroupHooks(_group_matched, _group_arrived, _group_newcomer)

    def tuner(self) -> Challenge | None:
        """Return the tuner of the percentile if ``initial="auto"``."""
        from braided.eviction.tuning.challenge import Challenge

        return Challenge(self) if self.initial == "auto" and self.constant is None else None

    def learned(self, shape: Shape) -> Credits:
        """Return the rules as numbers, and an empty snapshot; ``"auto"`` starts with a first guess."""
        by_percentile = self.constant is None
        looks = by_percentile or self.gain == "rank"
        return Credits(
            gain=_GAINS[self.gain],
            decay=_DECAYS[self.decay],
            unit=parse_duration(self.unit, "unit"),
            by_percentile=int(by_percentile),
            percentile=float(FIRST_GUESS if self.initial == "auto" else self.initial) if by_percentile else 0.0,
            constant=round((self.constant or 0.0) * _FRACTION) / _FRACTION,
            refresh=self.refresh or max(1, shape.capacity // 8),
            now=np.zeros(2, np.int64),
            pools=np.zeros(shape.pools, CREDITS),
            snapshot=np.zeros((shape.pools, shape.capacity if looks else 0), np.float64),
        )

    def save(self, learned: Credits, write: Writer) -> Facts:
        """Write the state of each pool, and its snapshot if ranks are computed from it."""
        if self.gain == "rank":
            for p, n in enumerate(learned.pools["snapshot"]):
                write.reals(learned.snapshot[p, :n])
        pools = [[pool[name].item() for name in _SAVED] for pool in learned.pools]
        return {"percentile": learned.percentile, "now": learned.now.tolist(), "pools": pools}

    def load(self, learned: Credits, facts: Facts, read: Reader) -> Credits:
        """Restore the state of each pool."""
        require(len(facts["pools"]) == len(learned.pools), "its pools")
        for p, values in enumerate(facts["pools"]):
            for name, value in zip(_SAVED, values, strict=True):
                learned.pools[name][p] = value
        if self.gain == "rank":
            for p, n in enumerate(learned.pools["snapshot"]):
                values = read.reals()
                require(len(values) == n <= learned.snapshot.shape[1], "its snapshot")
                learned.snapshot[p, :n] = values
        learned.now[:] = facts["now"]
        return learned._replace(percentile=float(facts["percentile"]))

    def adopt(self, learned: Credits, rows: Adopted) -> Reals:
        """Set credits to the expected number of results so far, from how often the keys have occurred recently."""
        per_window = _LN2 * rows.seen / rows.others  # matches in each other stream, on average
        seen = per_window * (rows.now - rows.stored.times) / rows.span
        credit: Reals = np.floor(rows.others * seen**rows.others)
        pool = rows.stored.streams if len(learned.pools) > 1 else np.zeros(len(credit), np.int8)
        for p in range(len(learned.pools)):
            credits = np.sort(credit[pool == p])
            if len(credits):
                learned.pools["initial"][p] = credits[percentile_index(learned.percentile, len(credits))]
        return credit
