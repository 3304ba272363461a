"""An independent reading of hierarchies of detectors: sort everything, then run detectors level by level over lists.

It knows neither batches, horizons, ordering units nor Arrow: a detector is a function of all events of a key, in order.
Detectors of both kinds that do the same as the functions are beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

import braided
from braided.routing.content import row_hashes

Event = dict[str, Any]
Meaning = Callable[[list[Event]], list[Event]]


def evaluate(
    streams: Mapping[str, Sequence[Event]],
    schemas: Mapping[str, pa.Schema],
    order: Sequence[tuple[str, Sequence[str], Meaning]],
    key: Sequence[str],
    time: str,
) -> dict[str, list[Event]]:
    """Return all events of every type; `order` has detectors from the lowest up: type, subscriptions, meaning.

    Events of one time are in the order of subscriptions, then of their content as `schemas` has it.
    """
    events: dict[str, list[Event]] = {name: list(rows) for name, rows in streams.items()}
    for publishes, subscribes, meaning in order:
        of_keys: dict[Any, list[tuple[Any, Event]]] = {}
        for rank, type_ in enumerate(subscribes):
            hashes = row_hashes(pa.RecordBatch.from_pylist(events[type_], schemas[type_])).tolist()
            for row, content in zip(events[type_], hashes, strict=True):
                known = of_keys.setdefault(tuple(row[name] for name in key), [])
                known.append(((row[time], rank, content), {"at": row[time], **row, "type": type_}))
        published = events.setdefault(publishes, [])
        for values, seen in of_keys.items():
            ordered = [row for _, row in sorted(seen, key=lambda pair: pair[0])]
            for row in meaning(ordered):
                published.append({**dict(zip(key, values, strict=True)), "at": row[time], **row})
    return events


def runs(events: list[Event], gap: int | None) -> list[list[Event]]:
    """Cut events where more than a gap is between two."""
    out: list[list[Event]] = []
    for event in events:
        if out and (gap is None or event["t"] - out[-1][-1]["t"] <= gap):
            out[-1].append(event)
        else:
            out.append([event])
    return out


FORGET = 9


def thirds(events: list[Event]) -> list[Event]:
    """Every third event of a run, dated as the event before it, if that is not long ago."""
    out = []
    for run in runs(events, FORGET):
        for number in range(2, len(run), 3):
            early, late = run[number - 1]["t"], run[number]["t"]
            if late - early <= 4:
                out.append({"t": early, "row": run[number]["id"], "n": number, "at": late})
    return out


class Thirds(braided.Detector):
    """The same, event by event, with its state as JSON."""

    subscribes: Any = ("a",)
    publishes = "third"
    schema = "t timestamp, row bigint, n int"
    delay: Any = "4 us"
    forget = f"{FORGET} us"

    def __init__(self) -> None:
        self.n, self.before = 0, 0

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        out = []
        for time, number in zip(micros(events, "t"), events["id"].to_pylist(), strict=True):
            if self.n % 3 == 2 and time - self.before <= 4:
                out.append((self.before, number, self.n, time))
            self.n, self.before = self.n + 1, time
        if not out:
            return None
        t, ids, n, at = zip(*out, strict=True)
        kind = events.schema.field("t").type
        return pa.record_batch(
            {"at": pa.array(at, kind), "row": ids, "n": pa.array(n, pa.int64()), "t": pa.array(t, kind)}
        )

    def save(self) -> Any:
        return {"n": self.n, "before": self.before}

    def load(self, state: Any) -> None:
        self.n, self.before = state["n"], state["before"]


class ManyThirds(braided.KeyedDetector):
    """The same for many keys at once."""

    subscribes: Any = ("a",)
    publishes = "third"
    schema = Thirds.schema
    state = "n int, before timestamp"
    delay: Any = "4 us"
    forget = Thirds.forget

    def on_events(self, events: pa.RecordBatch, state: pa.RecordBatch) -> Any:
        group = events["group"].to_numpy()
        times = np.array(micros(events, "t"))
        first = np.flatnonzero(np.diff(group, prepend=-1))
        n, before = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
        n[state["group"].to_numpy()] = state["n"].to_numpy()
        before[state["group"].to_numpy()] = micros(state, "before")
        number = np.arange(len(group)) - first[group] + n[group]
        early = np.where(np.arange(len(group)) == first[group], before[group], np.roll(times, 1))
        found = np.flatnonzero((number % 3 == 2) & (times - early <= 4))
        kind = events.schema.field("t").type
        published = pa.record_batch(
            {
                "group": group[found],
                "t": pa.array(early[found], kind),
                "row": events["id"].take(pa.array(found)),
                "n": pa.array(number[found]),
                "at": events["t"].take(pa.array(found)),
            }
        )
        last = np.append(first[1:], len(group)) - 1
        kept = pa.record_batch(
            {"group": np.arange(len(first)), "n": number[last] + 1, "before": events["t"].take(pa.array(last))}
        )
        return published, kept


def texts(events: list[Event]) -> list[Event]:
    """An event for each row whose text is not the one before; its state is Arrow."""
    out = []
    for run in runs(events, 6):
        before = None
        for row in run:
            if row["s"] != before:
                out.append({"t": row["t"], "text": row["s"], "was": before})
            before = row["s"]
    return out


class Texts(braided.Detector):
    """The same, with its state as Arrow."""

    subscribes: Any = "b"
    publishes = "text"
    schema = "t timestamp, text string, was string"
    forget = "6 us"

    def __init__(self) -> None:
        self.before: str | None = None

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        out = []
        for time, text in zip(events["t"].to_pylist(), events["s"].to_pylist(), strict=True):
            if text != self.before:
                out.append({"t": time, "text": text, "was": self.before})
            self.before = text
        kind = events.schema.field("t").type
        schema = pa.schema([("t", kind), ("text", pa.string()), ("was", pa.string())])
        return pa.RecordBatch.from_pylist(out, schema) if out else None

    def save(self) -> Any:
        return pa.record_batch({"before": pa.array([self.before], pa.string())})

    def load(self, state: Any) -> None:
        self.before = state["before"][0].as_py()


def nexts(events: list[Event]) -> list[Event]:
    """Of every two events of different types in a row the second, with what is known of both."""
    out = []
    for run in runs(events, 5):
        for before, event in pairwise(run):
            if event["type"] != before["type"]:
                late = event["at"] - event["t"]
                out.append({"t": event["t"], "what": f"{before['type']} {event['type']}", "late": late})
    return out


class Nexts(braided.Detector):
    """The same."""

    subscribes: Any = ("third", "b", "text")
    publishes = "next"
    schema = pa.schema([("t", pa.timestamp("us")), ("what", pa.large_string()), ("late", pa.int64())])
    delay: Any = "0 us"
    forget = "5 us"

    def __init__(self) -> None:
        self.before: str | None = None

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        out: dict[str, list[Any]] = {"t": [], "what": [], "late": []}
        triples = zip(micros(events, "t"), micros(events, "at"), events["type"].to_pylist(), strict=True)
        for time, at, type_ in triples:
            if self.before not in (None, type_):
                for name, value in (("t", time), ("what", f"{self.before} {type_}"), ("late", at - time)):
                    out[name].append(value)
            self.before = type_
        kind = events.schema.field("t").type
        return pa.record_batch({**out, "t": pa.array(out["t"], kind)}) if out["t"] else None

    def save(self) -> Any:
        return [self.before]

    def load(self, state: Any) -> None:
        (self.before,) = state


def pairs(events: list[Event]) -> list[Event]:
    """Two events in a row within 8: as a pattern that skips past its last row."""
    out, at = [], 0
    while at + 1 < len(events):
        first, second = events[at], events[at + 1]
        if second["t"] - first["t"] <= 8:
            out.append({"t": first["t"], "until": second["t"], "one": first["type"], "two": second["type"]})
            at += 1
        at += 1
    return out


PAIRS = braided.Pattern(
    "pair",
    subscribes=("next", "third"),
    pattern="A B",
    within="8 us",
    measures={
        "t": "first(t)",
        "until": "last(t)",
        "one": "first(type)",
        "two": "last(type)",
    },
)


def micros(rows: pa.RecordBatch, column: str) -> list[int]:
    """Return times as whole numbers."""
    values: list[int] = rows[column].cast(pa.int64()).to_pylist()
    return values
