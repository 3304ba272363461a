"""EBS's experiments: how K is learned (5a), how it changes when a detector moves (5b), and placement at runtime (6b).

K is learned by the package's `Learner`, promises of topics move its `StreamClock`, and Figure 6b runs whole peers with
their optimisation master. The paper's forwarding exists only here: topics do not need it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

from braided.fleet.component_host import Job
from braided.fleet.fleet_peer import Settings
from braided.fleet.virtual_network import run
from braided.sim.simulated_fleet import Floats, Pipelines, SimulatedFleet
from braided.sim.slack import SlackRun, slack_rows
from braided.storage.topic_progress import Progress
from braided.time.lateness import Lateness
from braided.time.learning.learner import Learner
from braided.time.stream_clock import StreamClock, StreamTime, all_safe

MS, SECOND = 1_000, 1_000_000
Ints = npt.NDArray[np.int64]

# Figure 5a


@dataclass(frozen=True)
class Hits:
    """The events of the paper's Player Hits Ball by arrival: a third are 1 to 2 ms late and set the clock."""

    times: Ints
    arrivals: Ints
    sets: npt.NDArray[np.bool_]


def hits(rows: int, seed: int) -> Hits:
    """Return events: a third come regularly and set the clock; the others come at random, 5 to 45 ms late."""
    random = np.random.default_rng([5, seed])
    count = rows // 3
    chance = np.sort(random.uniform(0, 6_000 * count, rows - count)).astype(np.int64)
    times = np.concatenate([np.arange(count) * 6_000, chance])
    sets = np.arange(rows) < count
    delays = np.where(sets, random.integers(1_000, 2_000, rows), random.integers(5_000, 45_000, rows))
    order = np.argsort(times + delays, kind="stable")
    return Hits(times[order], (times + delays)[order], sets[order])


@dataclass(frozen=True)
class Ordered:
    """The run of an ordering unit: K after each event, which events came too late, and the latency of each."""

    lateness: Ints
    in_order: npt.NDArray[np.bool_]
    latency: Ints


def order_hits(given: Hits, margin: float, lateness: int | None = None) -> Ordered:
    """Put events in order with K learned under a margin, the paper's lambda, or fixed."""
    spec = Lateness(margin=margin, floor="0 seconds", measure="next" if lateness is None else "arrival")
    found: SlackRun = slack_rows(given.times, spec, clock_rows=given.sets, lateness=lateness)
    clock = np.maximum.accumulate(np.where(given.sets, given.times, given.times[0]))
    # An event is released when the clock has moved by its wait: with the event that moves it.
    leaves = np.searchsorted(clock, clock + found.wait)
    moved = given.arrivals[np.minimum(leaves, len(clock) - 1)]
    return Ordered(found.lateness, found.in_order, np.maximum(moved, given.arrivals) - given.times)


# Figure 5b


@dataclass(frozen=True)
class Source:
    """An event type: its rate per second, and its delays at the old and the new host in microseconds.

    first : the first time of a type that comes regularly; None for one that comes at random times.
    """

    name: str
    rate: float
    before: int
    after: int
    jitter: int = 2 * MS
    first: int | None = None


SOURCES = (
    Source("ball", 200.0, 2 * MS, 2 * MS, 0, 0),
    Source("near", 200.0, 36 * MS, 15 * MS),
    Source("touch", 44.0, 20 * MS, 56 * MS),
    Source("whistle", 0.025, 30 * MS, 45 * MS, first=30 * SECOND),
)
"""The first type sets the clock. K is about 40 ms at the old host and 60 ms at the new one, where it takes 30 s until
each type has come once, as in the paper."""
FORWARD = 30 * MS
"""The sub-delay: the time of an event from the old host to the new one."""
MANIFEST = 5 * MS
"""The time between two manifests of a topic here. A Spark job's trigger is longer, and so is its lag."""
GAP = 2 * SECOND
"""The time in which a detector that moves by position and state does not run (docs/how-to/peers.md)."""


@dataclass(frozen=True, order=True)
class Event:
    """An event of one type, with its jitter: how much later than usual it arrives."""

    kind: int
    time: int
    late: int

    def arrives(self, *, after: bool) -> int:
        source = SOURCES[self.kind]
        return self.time + (source.after if after else source.before) + self.late


def events(seconds: float, seed: int) -> list[Event]:
    """Return the events of a span around the move, which is at 0, in order of time; equally long before and after."""
    random = np.random.default_rng([6, seed])
    out = []
    for kind, source in enumerate(SOURCES):
        if source.first is None:
            count = random.poisson(2 * seconds * source.rate)
            times = np.sort(random.uniform(-seconds, seconds, count) * SECOND).astype(np.int64)
        else:
            step = int(SECOND / source.rate)
            times = np.arange(source.first % step - int(seconds) * SECOND // step * step, int(seconds) * SECOND, step)
        late = random.integers(-source.jitter, source.jitter + 1, len(times))
        out += [Event(kind, int(time), int(jitter)) for time, jitter in zip(times, late, strict=True)]
    return sorted(out, key=lambda event: (event.time, event.kind))


@dataclass
class Moved:
    """The effects of a move: K over time at the new host, events that came too late, and forwarded packets."""

    seconds: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    failures: int = 0
    forwarded: int = 0
    slowest: float = 0.0
    """The largest latency of an event in seconds."""


class OrderingUnit:
    """The paper's unit: rows wait for K behind the clock, which one type sets; K comes from the package's learner.

    at_least : a lower bound of K that is known before.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.at_least = 0
        self.clock: int | None = None
        self._pending: list[int] = []
        self._waiting: list[tuple[int, int]] = []
        self._last = -(1 << 62)
        self.failures = 0
        self.slowest = 0

    @property
    def lateness(self) -> int:
        return max(self.at_least, self.learner.lateness)

    def take(self, kind: int, time: int, now: int, *, learns: bool = True) -> None:
        """Take an event as it arrives; release the events that are in order by now."""
        self.failures += time < self._last
        heapq.heappush(self._waiting, (time, kind))
        if learns:
            self._pending.append(time)
        if kind:
            return
        self.clock = time if self.clock is None else max(self.clock, time)
        if self._pending:
            self.learner.learn(np.maximum(self.clock - np.array(self._pending), 0), self.clock)
            self._pending = []
        while self._waiting and self._waiting[0][0] + self.lateness <= self.clock:
            left = heapq.heappop(self._waiting)[0]
            self._last = max(self._last, left)
            self.slowest = max(self.slowest, now - left)


def _learned(given: Sequence[Event]) -> OrderingUnit:
    """Return the unit of the old host at the time when the detector moves."""
    unit = OrderingUnit(Learner(Lateness(margin=0, floor="0 seconds", measure="next")))
    for event in sorted((e for e in given if e.arrives(after=False) < 0), key=lambda e: e.arrives(after=False)):
        unit.take(event.kind, event.time, event.arrives(after=False))
    return unit


def _follow(unit: OrderingUnit, given: Sequence[tuple[int, Event, bool]], out: Moved, seconds: float) -> None:
    """Let a unit take events as (arrival, event, whether its delay counts), and record K."""
    for now, event, learns in given:
        if 0 <= now <= seconds * SECOND:
            unit.take(event.kind, event.time, now, learns=learns)
            out.seconds.append(now / SECOND)
            out.lateness.append(unit.lateness / MS)
    out.failures, out.slowest = unit.failures, unit.slowest / SECOND


def classic(seconds: float, seed: int) -> Moved:
    """K moves with the state, and the old host forwards everything until each type has come directly once."""
    given, out = events(seconds, seed), Moved()
    unit = _learned(given)
    unit.failures = 0
    direct = sorted((e.arrives(after=True), e) for e in _keyed(given))
    _follow(unit, [(at, event, True) for at, event in direct], out, seconds)
    first = {kind: min(at for at, e in direct if e.kind == kind and at >= 0) for kind in {e.kind for _, e in direct}}
    ends = max(first.values())
    out.forwarded = sum(0 <= e.arrives(after=False) <= ends for e in given)
    return out


def _keyed(given: Sequence[Event]) -> list[Event]:
    """Return the events that are not before the move; events in flight reach the detector at its current host."""
    return [event for event in given if event.time >= 0]


def forwarding(seconds: float, seed: int) -> Moved:
    """The paper's way: events come directly and through the old host, which stops type by type; duplicates are dropped.

    K starts with the old K plus the sub-delay. Once a type has come directly, its own delay counts instead.
    """
    given, out = events(seconds, seed), Moved()
    old = _learned(given)
    unit = OrderingUnit(Learner(Lateness(margin=0, floor="0 seconds", measure="next")))
    fresh = _keyed(given)
    first = {
        kind: min((e.arrives(after=True) for e in fresh if e.kind == kind), default=1 << 62)
        for kind in range(len(SOURCES))
    }
    arriving: list[tuple[int, int, Event, bool]] = []
    for number, event in enumerate(fresh):
        arriving.append((event.arrives(after=True), number, event, True))
        leaves = event.arrives(after=False)
        if leaves <= first[event.kind] + FORWARD:  # until the stop has reached the old host
            out.forwarded += 1
            arriving.append((leaves + FORWARD, number, event, False))
    start = old.lateness + FORWARD
    known = dict.fromkeys(range(1, len(SOURCES)), start)
    seen: set[int] = set()
    unit.at_least = start
    for now, number, event, is_direct in sorted(arriving, key=lambda one: one[:2]):
        if now > seconds * SECOND:
            break
        if is_direct and event.kind:
            usual = now - event.time
            known[event.kind] = usual if known[event.kind] == start else max(known[event.kind], usual)
            unit.at_least = max(known.values())
        if number in seen:
            continue  # a duplicate
        seen.add(number)
        unit.take(event.kind, event.time, now, learns=is_direct)
        out.seconds.append(now / SECOND)
        out.lateness.append(unit.lateness / MS)
    out.failures, out.slowest = unit.failures, unit.slowest / SECOND
    return out


def by_topics(seconds: float, seed: int) -> Moved:
    """Our way: every type is a topic with promises; the detector stops, and continues elsewhere at the same offsets.

    Each manifest has the events of its span, and promises that no earlier event comes any more. The clock of a stream
    is the package's, moved only by promises; events that all clocks have passed are released.
    """
    given, out = _keyed(events(seconds, seed)), Moved()
    clocks = [StreamClock(Lateness(floor="0 seconds")) for _ in SOURCES]
    by_span: dict[tuple[int, int], list[Event]] = {}
    for event in given:
        by_span.setdefault((event.kind, event.time // MANIFEST), []).append(event)
    manifests = []
    for kind, source in enumerate(SOURCES):
        for span in range(int(seconds * SECOND) // MANIFEST):
            mine = by_span.get((kind, span), [])
            end = (span + 1) * MANIFEST
            own = max([end, *(event.time + event.late for event in mine)])
            # At the new host, the topics have the events that came while the detector did not run.
            manifests.append((max(GAP, own + source.after), kind, end, mine))
    newest, last = 0, -1
    waiting: list[int] = []
    for now, kind, end, mine in sorted(manifests, key=lambda one: (one[0], one[2], one[1])):
        if now > seconds * SECOND:
            break
        for event in mine:
            out.failures += event.time < last
            heapq.heappush(waiting, event.time)
            newest = max(newest, event.time)
        clocks[kind].update(StreamTime(rows=len(mine), promise=Progress(end)))
        until = all_safe(clocks)
        while waiting and waiting[0] < until:
            last = heapq.heappop(waiting)
            out.slowest = max(out.slowest, (now - last) / SECOND)
        out.seconds.append(now / SECOND)
        out.lateness.append(max(0, newest - until) / MS if until > 0 else 0.0)
    return out


# Figure 6b

LOUD, QUIET, SWING = 100.0, 5.0, 100.0
"""Events per second of producers, and the seconds between two swings."""
STATIC = np.array([0, 1, 0, 1, 1, 0, 1, 0])
"""The first hosts of eight detectors: as far as possible, none is on the host of its inputs."""
_READS = {4: (0, 3), 5: (1, 0), 6: (2, 1), 7: (3, 2)}
"""Which detectors the upper four subscribe to: each of the lower four has two subscribers."""


def rates(now: float) -> Floats:
    """Return the events per second of each detector: 0 and 2 publish many in one pattern, 1 and 3 in the other."""
    loud = (0, 2) if int(now // SWING) % 2 == 0 else (1, 3)
    return np.array([LOUD if number in loud else QUIET for number in range(4)] + [1.0] * 4)


def remote(at: npt.NDArray[np.int64], now: float) -> float:
    """Return the events per second between the two hosts."""
    published = rates(now)
    return float(sum(published[low] for high, lows in _READS.items() for low in lows if at[high] != at[low]))


def best(now: float, room: int) -> float:
    """Return the least possible traffic: all allocations with at most `room` detectors per host are tried."""
    allocations = (np.array(at) for at in product((0, 1), repeat=8) if 8 - room <= sum(at) <= room)
    return min(remote(at, now) for at in allocations)


@dataclass(frozen=True)
class Swings:
    """Traffic between two hosts over time: with the static allocation, with running peers, and the least possible."""

    seconds: list[float]
    static: list[float]
    master: list[float]
    best: list[float]
    moves: int


def swings(seconds: float, seed: int) -> Swings:
    """Run two peers with their optimisation master; detectors move by the six phases."""
    names = [f"detector{number}" for number in range(8)]
    model = Pipelines(names, ["detect"] * 8, np.full(8, 1e-4), np.full(8, -1), rates, 2)
    jobs = [
        Job(
            name,
            "detect",
            tuple(f"topics/{names[low]}" for low in _READS.get(number, ())),
            (f"topics/{name}",),
            cores=0.1,
        )
        for number, name in enumerate(names)
    ]
    settings = Settings(period=1.0, ttl=60.0, placement=5.0, evaluations=2000)
    fleet = SimulatedFleet(model, [("detect",)] * 2, settings, seed=seed, delay=(0.001, 0.005))
    samples = run(fleet.run(jobs, STATIC.tolist(), seconds, every=1.0))
    last = STATIC.copy()
    master = []
    for sample in samples:
        last = np.where(sample.at < 0, last, sample.at)  # while it moves, its events go to the old host
        master.append(remote(last, sample.second - 1))
    moments = [sample.second for sample in samples]
    return Swings(
        moments,
        [remote(STATIC, second - 1) for second in moments],
        master,
        [best(second - 1, 5) for second in moments],
        fleet.moves,
    )
