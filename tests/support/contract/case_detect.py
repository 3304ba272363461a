"""Hierarchies of detectors: everything sorted and run level by level over lists, and the variants to try."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import braided
from braided.operators.detect.spec import DetectSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.time.lateness import Lateness
from support.contract.histories import SCHEMA, Row
from support.contract.kinds import Bag, Case, Change, Kind, Streams, fixed, learned, micros, names_of, us
from support.detect_reference import PAIRS, ManyThirds, Nexts, Texts, Thirds, evaluate, nexts, pairs, texts, thirds

MEANINGS = {"third": thirds, "text": texts, "next": nexts, "pair": pairs}


class Echo(braided.Detector):
    """Publishes what it sees."""

    subscribes = "a"
    publishes = "echo"
    schema = "t timestamp, s string, id bigint"

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
        return events.select(["t", "s", "id"])


class LearnedThirds(Thirds):
    """Its delay is learned; it is never longer than what it starts with."""

    delay = Lateness(floor="4 us", margin=0.5)


class More(Thirds):
    """One more detector."""

    publishes = "more"


class OfU(Thirds):
    """Dates its events in another column."""

    schema = "u timestamp, row bigint, n int"


def wanted(spec: DetectSpec, streams: Streams) -> Bag:
    """Return all events of the types that are asked for."""
    plan = build(spec, [Stream(label, SCHEMA) for label in spec.labels])
    nodes = plan.operator.nodes  # type: ignore[attr-defined]
    schemas = dict.fromkeys(spec.streams, SCHEMA) | {node.publishes: node.schema for node in nodes}
    timed = {
        name: [row for row in rows if row[spec.time] is not None]
        for name, rows in zip(spec.streams, streams, strict=True)
    }
    key = names_of(spec.key, 1)[0]
    order = [(node.publishes, node.subscribes, MEANINGS[node.publishes]) for node in nodes]
    events = evaluate(timed, schemas, order, key, spec.time)
    bag: Bag = Counter()
    for type_ in spec.chosen():
        own = [name for name in schemas[type_].names if name not in (*key, "at")]
        for row in events[type_]:
            values = tuple(plain(row[name]) for name in own)
            bag[(type_, *(row[name] for name in key), row["t"], row["at"], values)] += 1
    return bag


def content(spec: DetectSpec, row: Row) -> tuple[Any, ...]:
    """Return a result as the bag has it."""
    key = names_of(spec.key, 1)[0]
    values = tuple(plain(value) for value in row[row["type"]].values())
    others = [name for name in spec.chosen() if name != row["type"]]
    assert all(row[name] is None for name in others), "an event has columns of another type"
    return (row["type"], *(row[name] for name in key), row["t"], row["at"], values)


def plain(value: Any) -> Any:
    """Return a time as a whole number."""
    return value if value is None or isinstance(value, str) else int(value)


def some(*detectors: Any, streams: tuple[str, ...] = ("a", "b"), **options: Any) -> DetectSpec:
    """Return a spec of some of the detectors."""
    given = {"time": "t", "key": "k", "lateness": us(5), **options}
    return DetectSpec(streams=streams, detectors=detectors, **given)


@st.composite
def specs(draw: st.DrawFn, lateness: Any = micros, third: Any = None) -> DetectSpec:
    streams: tuple[str, ...] = ("a", "b")
    below = (third or draw(st.sampled_from((Thirds, ManyThirds))))()
    detectors: list[Any] = [Nexts(), below, Texts(), PAIRS][: draw(st.integers(1, 4))]
    if len(detectors) == 1:
        detectors, streams = [below], ("a",)
    elif len(detectors) == 2:
        below = type(below)()
        below.subscribes = ("a", "b")
        detectors = [Texts(), below]
    late = draw(lateness)
    named = draw(st.booleans()) and dict.fromkeys(streams, late)
    published = [one.publishes for one in detectors]
    return some(
        *detectors,
        streams=streams,
        key=draw(st.sampled_from((None, "k", ("k", "s")))),
        types=draw(st.none() | st.permutations(published).map(tuple)),
        idle=draw(st.sampled_from((None, "1 hour"))),
        lateness=named or late,
    )


def all_changed(spec: DetectSpec) -> dict[str, Any]:
    """Return the options of a spec that has another time column."""
    return {"time": "u", "detectors": [OfU()], "streams": ("a",), "types": None}


DETECTIONS = Kind(
    wanted=wanted,
    content=content,
    of_parts=lambda spec: False,
    crowded=lambda spec: (some(Echo(), streams=("a",)), 270_000, 2_000),
    cases=(
        Case("one detector", some(Thirds(), streams=("a",)), specs()),
        Case("a hierarchy", some(PAIRS, Nexts(), Texts(), Thirds()), specs()),
        Case(
            "many keys at once",
            some(ManyThirds(), Nexts(), Texts(), PAIRS, key=("k", "s"), types=("next", "pair", "third")),
            specs(third=ManyThirds),
        ),
        Case(
            "learned lateness and delay",
            some(LearnedThirds(), Nexts(), Texts(), lateness=Lateness(floor=us(4), memory=us(50))),
            specs(learned, LearnedThirds),
        ),
    ),
    changes=(
        Change("time", "time", all_changed, lambda spec: len(spec.streams) == 1),
        Change("key", "key", {"key": "s"}, lambda spec: len(spec.streams) == 1),
        Change("detectors", "detectors", lambda spec: {"detectors": (*spec.detectors, More())}),
        Change(
            "detectors",
            r"detectors\[0\].forget",
            lambda spec: {"detectors": (_longer(),)},
            lambda spec: len(spec.streams) == 1,
        ),
        Change("types", None, lambda spec: {"types": spec.chosen()[::-1]}),
        Change("idle", None, {"idle": "1 hour"}),
        Change("lateness", None, {"lateness": us(7)}, fixed),
        Change("lateness", "lateness", {"lateness": us(4)}, fixed),
        Change("lateness", "lateness", {"lateness": Lateness(floor=us(30))}),
    ),
)


def _longer() -> Thirds:
    detector = Thirds()
    detector.forget = "10 us"
    return detector
