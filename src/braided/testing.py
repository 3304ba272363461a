"""A check for users' detectors: the output must depend on nothing but the events."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from braided.durations import format_duration, parse_duration
from braided.errors import DetectorError, OptionError
from braided.local.reading import cut_into_batches, in_microseconds, read
from braided.local.runtime import LocalRuntime
from braided.operators.detect.arranging import subscriptions
from braided.operators.detect.detect_operator import DetectOperator
from braided.operators.detect.detector import Detector
from braided.operators.detect.event_batches import times_of
from braided.operators.detect.hierarchy import Hierarchy
from braided.operators.detect.spec import DetectSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.runtime.blocks import Blocks
from braided.runtime.store import MemoryStore
from braided.time.clocks import MAX_TIME
from braided.typing import AnyDetector, ArrowData, Duration, Keys

__all__ = ["check_detector"]

Bag = Counter[str]


def check_detector(
    detector: AnyDetector,
    events: ArrowData | Mapping[str, ArrowData],
    *,
    time: str = "time",
    key: Keys = None,
    lateness: Duration | None = None,
    tries: int = 20,
    seed: int = 0,
) -> None:
    """Run a detector with random batch cuts, restarts and orders of arrival, and report if its output depends on them.

    First the detector gets all events at once, in order of time. Then it gets each key alone; it gets the events in
    batches, one per moment and at random cuts; it is restored from its saved state after every batch; and it gets
    events out of order. The output must always be the same. If not, a `braided.DetectorError` names which of these
    makes a difference, at which event, and in which row.

    Parameters
    ----------
    detector : an instance. It is not changed.
    events : the events for it: a table, or a dict with a table for each type that it subscribes to.
    time, key : as in `braided.detect`.
    lateness : how far out of order events arrive; by default a twentieth of the time from the first to the last event.
    tries : how many random cuts, and how many random orders, to try.
    seed : the seed of the random cuts and orders.

    >>> import pyarrow as pa
    >>> class Second(Detector):
    ...     subscribes, publishes, schema = "row", "second", "ts timestamp"
    ...     def on_events(self, events):  # the second of each batch
    ...         return events.select(["ts"]).slice(1, 1)
    >>> rows = pa.table({"ts": pa.array([10, 20, 30], pa.timestamp("us"))})
    >>> check_detector(Second(), rows, time="ts")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    braided.errors.DetectorError: detector 'second': its output depends on where batches are cut: with a cut before ...
    """
    check = _Check.of(detector, events, time, key)
    wanted = check.whole()
    difference = _difference(wanted, check.whole())
    if difference:
        raise check.failed(
            f"two runs over the same events differ: it uses random numbers, a clock or other state: {difference}"
        )
    # A detector that mixes up keys depends on cuts too, but the cuts are not the cause; so check keys first.
    _compare_keys(check, wanted)
    rng = np.random.default_rng(seed)
    every = [check.moments[1:], *(_some(check.moments[1:], rng) for _ in range(tries))]
    if isinstance(detector, Detector):
        alive = _Check.of(_Alive(detector, check.operator.keys.key, time), events, time, key)
        _compare(check, every, wanted, alive.cut, "its output depends on where batches are cut")
        what = "its output depends on restarts: save() or load() loses something"
    else:
        what = "its output depends on where batches are cut"
    _compare(check, every, wanted, check.cut, what)
    late = _lateness(check, lateness)
    for number in range(tries):
        result = check.disordered(np.random.default_rng([seed, number]), late)
        difference = _difference(wanted, result)
        if difference:
            raise check.failed(
                "its output depends on the order in which events arrive: out of order by up to "
                f"{format_duration(late)}, {difference}"
            )


@dataclass(frozen=True)
class _Check:
    """A detector with its events, each type in order of time."""

    spec: DetectSpec
    tables: dict[str, pa.Table]
    operator: DetectOperator
    moments: list[int]

    @classmethod
    def of(cls, detector: AnyDetector, events: Any, time: str, key: Keys) -> _Check:
        types = subscriptions(detector)
        if not isinstance(events, Mapping):
            if len(types) != 1:
                raise OptionError(f"events: give a dict with a table for each of {', '.join(types)}")
            events = {types[0]: events}
        if set(events) != set(types):
            raise OptionError(f"events: has {', '.join(events)}; the detector subscribes to {', '.join(types)}")
        tables = {name: in_microseconds(read(events[name], name), time) for name in types}
        tables = {name: rows.filter(rows[time].is_valid()).combine_chunks() for name, rows in tables.items()}
        spec = DetectSpec(
            streams=types, detectors=[detector], time=time, key=key, lateness="0 us", types=detector.publishes
        )
        plan = build(spec, [Stream(label, tables[name].schema) for name, label in zip(types, spec.labels, strict=True)])
        assert isinstance(plan.operator, DetectOperator)
        times = [rows[time].cast(pa.int64()).to_numpy() for rows in tables.values()]
        return cls(spec, tables, plan.operator, np.unique(np.concatenate(times)).tolist())

    def failed(self, what: str) -> DetectorError:
        return DetectorError(f"detector {self.operator.nodes[0].name!r}: {what}")

    def whole(self) -> Bag:
        """Return the output when all events come at once."""
        return self.cut([])

    def cut(self, cuts: Sequence[int]) -> Bag:
        """Return the output when batches begin at some times, and all is restored from the state between them."""
        for one in self.spec.detectors:
            if isinstance(one, _Alive):
                one.restart()
        known: dict[str, int | str] = {}
        store, state = MemoryStore(), None
        bag: Bag = Counter()
        streams = dict(zip(self.operator.names, self.operator.schemas, strict=True))
        for batch, (start, stop) in enumerate(pairwise([-MAX_TIME, *cuts, MAX_TIME])):
            operator = copy.deepcopy(self.operator)
            hierarchy = Hierarchy(streams, operator.nodes, Blocks(store, 0, known), state, batch)
            for published in hierarchy.advance([self._between(name, start, stop) for name in streams], stop):
                bag.update(_texts(published.rows))
            hierarchy.tidy()
            state = json.loads(json.dumps(hierarchy.to_json()))
            store = pickle.loads(pickle.dumps(store))
        return bag

    def _between(self, name: str, start: int, stop: int) -> pa.RecordBatch:
        rows = self.tables[name]
        batch = pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], schema=rows.schema)
        times = times_of(batch, self.spec.time)
        return batch.filter(pa.array((times >= start) & ((times < stop) | (stop == MAX_TIME))))

    def disordered(self, rng: np.random.Generator, late: int) -> Bag:
        """Return the output when events arrive out of order, in batches of a random size."""
        spec = replace(self.spec, lateness=f"{late} us", detectors=copy.deepcopy(self.spec.detectors))
        streams = [Stream(label, schema) for label, schema in zip(spec.labels, self.operator.schemas, strict=True)]
        runtime = LocalRuntime(build(spec, streams).operator, 1)
        tables = list(self.tables.values())
        times = np.concatenate([rows[spec.time].cast(pa.int64()).to_numpy() for rows in tables])
        order = np.argsort(times + rng.integers(0, late + 1, len(times)), kind="stable")
        size = int(rng.integers(1, len(times) + 2))
        bag: Bag = Counter()
        for batch in [*cut_into_batches(tables, order, size), [(0, [])]]:
            for piece in runtime.run_batch(batch, final=batch == [(0, [])]):
                bag.update(_texts(piece))
        return bag


class _Alive(Detector):
    """Keeps the instance of each key without saving it, so that a difference comes from cuts alone."""

    def __init__(self, detector: Detector, key: Sequence[str], time: str) -> None:
        self._detector, self._key, self._time = detector, key, time
        self.subscribes, self.publishes, self.schema = detector.subscribes, detector.publishes, detector.schema
        self.delay, self.forget = detector.delay, detector.forget
        self._forget = None if detector.forget is None else parse_duration(detector.forget, "forget")
        self._of: dict[Any, tuple[Detector, int]] = {}

    def __deepcopy__(self, memo: Any) -> _Alive:
        return self

    def restart(self) -> None:
        self._of = {}

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        key = repr([events[name][0].as_py() for name in self._key])
        times = times_of(events, self._time)
        known = self._of.get(key)
        if known is not None and self._forget is not None and int(times[0]) - known[1] > self._forget:
            known = None
        instance = copy.deepcopy(self._detector) if known is None else known[0]
        self._of[key] = instance, int(times[-1])
        return instance.on_events(events)


def _some(moments: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Return some of the times at which events can be cut."""
    if not moments:
        return []
    count = int(rng.integers(1, min(len(moments), 12) + 1))
    return [moments[at] for at in sorted(rng.choice(len(moments), count, replace=False).tolist())]


def _compare(
    check: _Check, every: Sequence[Sequence[int]], wanted: Bag, run: Callable[[Sequence[int]], Bag], what: str
) -> None:
    """Run all lists of cuts; reduce the first that makes a difference to the cuts that matter, and raise with them."""

    def differs(cuts: Sequence[int]) -> str | None:
        return _difference(wanted, run(cuts))

    for cuts in every:
        if differs(cuts) is None:
            continue
        few = list(_fewer(cuts, differs))
        difference = differs(few)
        shown = ", ".join(_moment(check, cut) for cut in few[:3]) + (f" and {len(few) - 3} others" if few[3:] else "")
        raise check.failed(f"{what}: with a cut before {shown}, {difference}")


def _fewer(cuts: Sequence[int], differs: Callable[[Sequence[int]], str | None]) -> Sequence[int]:
    """Return a few of the cuts that still make a difference: remove halves first, then single cuts."""
    step = max(1, len(cuts) // 2)
    while True:
        at = 0
        while at < len(cuts):
            less = [*cuts[:at], *cuts[at + step :]]
            if less and differs(less) is not None:
                cuts = less
            else:
                at += step
        if step == 1:
            return cuts
        step //= 2


def _moment(check: _Check, time: int) -> str:
    """Return a time as text, in the type of its column."""
    kind = check.operator.schemas[0].field(check.spec.time).type
    return str(pa.array([time], pa.int64()).cast(kind)[0].as_py())


def _compare_keys(check: _Check, wanted: Bag) -> None:
    """Give each key to the detector alone."""
    names = list(check.operator.keys.key)
    if not names:
        return
    results: Bag = Counter()
    for tables in _per_key(check.tables, names):
        alone = _Check(check.spec, tables, check.operator, [])
        results += alone.whole()
    difference = _difference(wanted, results)
    if difference:
        raise check.failed(f"its output for a key depends on other keys: with every key alone, {difference}")


def _per_key(tables: Mapping[str, pa.Table], names: list[str]) -> Iterator[dict[str, pa.Table]]:
    numbered: dict[str, dict[str, list[int]]] = {}
    for name, rows in tables.items():
        for at, values in enumerate(rows.select(names).to_pylist()):
            numbered.setdefault(repr(values), {}).setdefault(name, []).append(at)
    for places in numbered.values():
        yield {
            name: rows.take(pa.array(places.get(name, []), pa.int64())).combine_chunks()
            for name, rows in tables.items()
        }


def _lateness(check: _Check, lateness: Duration | None) -> int:
    if lateness is not None:
        return parse_duration(lateness, "lateness")
    return (check.moments[-1] - check.moments[0]) // 20 if check.moments else 0


def _texts(rows: pa.RecordBatch) -> list[str]:
    return [repr(row) for row in rows.to_pylist()]


def _difference(wanted: Bag, results: Bag) -> str | None:
    """Return which row is missing or new; None if there is no difference."""
    missing, more = wanted - results, results - wanted
    if missing:
        return f"{min(missing)} is missing" + (f" and {min(more)} is new" if more else "")
    return f"{min(more)} is new" if more else None
