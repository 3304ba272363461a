"""Streams put in order: all rows that have a time, and the variants to try."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

from braided.operators.order.spec import OrderSpec
from braided.time.lateness import Lateness
from support.contract.histories import Row
from support.contract.kinds import Bag, Case, Change, Kind, Streams, fixed, learned, micros, names_of, us


def wanted(spec: OrderSpec, streams: Streams) -> Bag:
    """Return all rows that have a time; `lines` says in which order."""
    return Counter(tuple(row.values()) for rows in streams for row in rows if row[spec.time] is not None)


_orders: dict[str, Any] = {"time": st.just("t"), "lateness": micros, "key": st.sampled_from((None, "k", ("k", "s")))}


def _line(spec: OrderSpec, row: Row) -> Any:
    return tuple(row[name] for name in names_of(spec.key, 1)[0])


ORDERS = Kind(
    wanted=wanted,
    content=lambda spec, row: tuple(value for name, value in row.items() if name not in ("seq", "late")),
    line=_line,
    keeps_late=lambda spec: spec.late != "drop",
    crowded=lambda spec: (spec, 270_000 // spec.inputs, 2_000 // spec.inputs),
    cases=(
        Case(
            "one stream",
            OrderSpec(time="t", lateness=us(5)),
            st.builds(OrderSpec, late=st.sampled_from(("flag", "side", "drop")), **_orders),
        ),
        Case(
            "per key",
            OrderSpec(time="t", key=("k", "s"), lateness=us(5), late="drop"),
            st.builds(OrderSpec, **{**_orders, "key": st.sampled_from(("k", ("k", "s")))}),
        ),
        Case(
            "several streams",
            OrderSpec(inputs=3, time="t", lateness=us(5), idle=None),
            st.builds(OrderSpec, inputs=st.integers(2, 3), idle=st.sampled_from((None, "1 hour")), **_orders),
        ),
        Case(
            "learned lateness",
            OrderSpec(time="t", lateness=Lateness(floor=us(4), memory=us(50)), key="k"),
            st.builds(OrderSpec, inputs=st.integers(1, 2), **{**_orders, "lateness": learned}),
        ),
    ),
    changes=(
        Change("time", "time", {"time": "u"}),
        Change("key", "key", {"key": "id"}),
        Change("late", None, lambda spec: {"late": "drop" if spec.late == "flag" else "flag"}),
        Change("lateness", None, {"lateness": us(7)}, fixed),
        Change("lateness", "lateness", {"lateness": us(4)}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
        Change("idle", None, {"idle": "1 hour"}),
    ),
)
