"""As-of joins: a nested loop over the whole streams, and the variants to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from braided.operators.asof.spec import AsofSpec
from braided.time.lateness import Lateness
from support.contract.histories import Row
from support.contract.kinds import Bag, Case, Change, Kind, Streams, beside, fixed, key_of, keys, learned, micros, us
from support.contract.kinds import names_of as columns_of


def rank(row: Row) -> tuple[Any, ...]:
    """Return what a row compares by: its values in order, null before every value."""
    return tuple((value is not None, 0 if value is None else value) for value in row.values())


def answer(spec: AsofSpec, left: Row, rights: Sequence[Row], keys: Sequence[Sequence[str]]) -> Row | None:
    """Return the right row of a left row: every right row is looked at."""
    times = [str(spec.time_of(side)) for side in (0, 1)]
    key, at = key_of(left, keys[0]), left[times[0]]
    if key is None or at is None:
        return None
    near = []
    for right in rights:
        then = right[times[1]]
        if then is None or key_of(right, keys[1]) != key:
            continue
        if then == at and not spec.allow_exact_matches:
            continue
        if (spec.direction == "backward" and then > at) or (spec.direction == "forward" and then < at):
            continue
        if spec.tolerance_us is None or abs(then - at) <= spec.tolerance_us:
            near.append(right)
    # The closest; of two as close the earlier; of several at one time the largest.
    best = min(((abs(r[times[1]] - at), r[times[1]]) for r in near), default=None)
    ties = [r for r in near if (abs(r[times[1]] - at), r[times[1]]) == best]
    return max(ties, key=rank, default=None)


def wanted(spec: AsofSpec, streams: Streams) -> Bag:
    """Return each left row with its answer."""
    found: Bag = Counter()
    keys = columns_of(spec.on, 2)
    for left in streams[0]:
        right = answer(spec, left, streams[1], keys)
        if right is not None or spec.how == "left":
            nulls = beside(dict.fromkeys(left), keys[1])
            after = nulls if right is None else beside(right, keys[1])
            found[*(left[name] for name in keys[0]), *beside(left, keys[0]), *after] += 1
    return found


def some(**options: Any) -> AsofSpec:
    """Return a spec."""
    return AsofSpec(**{"on": "k", "time": "t", "tolerance": us(6), "lateness": (us(3), us(5)), **options})


_two = st.tuples(micros, micros)
_tolerances = st.integers(1, 12).map(us)


@st.composite
def specs(draw: st.DrawFn, lateness: Any = _two) -> AsofSpec:
    direction = draw(st.sampled_from(("backward", "forward", "nearest")))
    return some(
        on=draw(keys | st.none()),
        time=draw(st.sampled_from(("t", ("t", "u")))),
        direction=direction,
        tolerance=draw(_tolerances | st.none() if direction == "backward" else _tolerances),
        allow_exact_matches=draw(st.booleans()),
        how=draw(st.sampled_from(("left", "inner"))),
        lateness=draw(lateness),
        suffixes=draw(st.sampled_from((("", "_right"), ("_l", "_r")))),
        idle=draw(st.sampled_from((None, "1 hour"))),
        late=draw(st.sampled_from(("join", "drop"))),
    )


ASOFS = Kind(
    wanted=wanted,
    null_key=lambda spec, side, row: key_of(row, columns_of(spec.on, 2)[side]) is None,
    # A left row may get another answer, or none, where its own came too late.
    of_parts=lambda spec: False,
    crowded=lambda spec: (some(direction=spec.direction), 270_000, 2_000),
    cases=(
        Case("backward", some(), specs()),
        Case("forward", some(direction="forward", on="s", how="inner"), specs()),
        Case("nearest", some(direction="nearest", on=("k", "s"), allow_exact_matches=False), specs()),
        Case(
            "learned lateness",
            some(direction="nearest", lateness=Lateness(floor=us(5), memory=us(50))),
            specs(st.tuples(learned, learned | micros)),
        ),
    ),
    changes=(
        Change("on", "on", {"on": (("k", "id"), "s")}),
        Change("time", "time", {"time": "u"}),
        Change(
            "direction",
            "direction",
            lambda spec: {"direction": "backward" if spec.direction == "forward" else "forward"},
        ),
        Change("tolerance", "tolerance", {"tolerance": us(7)}),
        Change(
            "allow_exact_matches",
            "allow_exact_matches",
            lambda spec: {"allow_exact_matches": not spec.allow_exact_matches},
        ),
        Change("how", "how", lambda spec: {"how": "left" if spec.how == "inner" else "inner"}),
        Change("lateness", None, {"lateness": (us(7), us(5))}, fixed),
        Change("lateness", "lateness", {"lateness": (us(3), us(2))}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("suffixes", None, {"suffixes": ("_l", "_r")}),
        Change("idle", None, {"idle": "1 hour"}),
        Change("late", None, lambda spec: {"late": "drop" if spec.late == "join" else "join"}),
    ),
)
