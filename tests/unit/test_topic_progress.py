"""Progress in topics: what is cut over jobs gives the rows of the same in one query, batch for batch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.detect_reference import PAIRS, ManyThirds, Nexts, Texts, Thirds
from support.profiles import examples
from support.topic_jobs import TopicJob

import braided
from braided.local.runtime import LocalRuntime
from braided.operators.detect.spec import DetectSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.order.spec import OrderSpec
from braided.operators.physical import EngineFeatures
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.storage.manifest import Manifest, from_bytes, to_bytes
from braided.storage.topic import create_topic
from braided.storage.topic_progress import Progress
from braided.time.clocks import MIN_TIME
from braided.time.lateness import Lateness
from braided.time.stream_clock import StreamClock, StreamTime
from braided.time.trust import Cluster

US = pa.timestamp("us")
SCHEMA = pa.schema([("t", US), ("k", pa.int64()), ("id", pa.int64()), ("s", pa.string())])


def rows(random: np.random.Generator, count: int, start: int, span: int, late: int) -> pa.RecordBatch:
    """Return rows of a span of time, some of them behind it by so much at most."""
    times = start + random.integers(0, span, count) - random.integers(0, late + 1, count)
    return pa.record_batch(
        [
            pa.array(times, US),
            pa.array(random.integers(0, 3, count)),
            pa.array(random.integers(0, 1 << 40, count)),
            pa.array(random.choice(["x", "y"], count).tolist(), pa.string()),
        ],
        schema=SCHEMA,
    )


def bag(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(str(sorted(row.items())) for row in found)


def local(spec: Any, schemas: list[pa.Schema], workers: int) -> LocalRuntime:
    streams = [Stream(label, schema) for label, schema in zip(spec.labels, schemas, strict=True)]
    return LocalRuntime(build(spec, streams, EngineFeatures(adaptive=False)).operator, workers)


class LearnedThirds(Thirds):
    """Its delay is learned, from nothing: its first events may come too late for detectors above it."""

    delay = Lateness(floor="0 seconds", margin=0.5)


PAIR = braided.Pattern(
    "pair",
    subscribes="third",
    pattern="A B",
    within="8 us",
    measures={"t": "first(t)", "until": "last(t)", "one": "first(row)", "two": "last(row)"},
)
RUN = braided.Pattern(
    "run",
    subscribes=("pair", "third"),
    pattern="A B+",
    within="12 us",
    measures={"t": "last(t)", "since": "first(t)", "types": "count(*)", "two": "last(type)"},
)
WORKERS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
RESTARTS = st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=4)
BATCHES = 12


class Cut:
    """A hierarchy in one query, and the same cut over two jobs: the upper one reads a topic, and maybe a stream."""

    def __init__(
        self, folder: str, lowest: Any, upper: list[Any], beside: list[str], lateness: str, workers: tuple[int, ...]
    ) -> None:
        options: dict[str, Any] = {"time": "t", "key": "k"}
        top = upper[-1].publishes
        whole = DetectSpec(streams=("a", *beside), detectors=(lowest, *upper), lateness=lateness, types=top, **options)
        below = DetectSpec(streams=("a",), detectors=(lowest,), lateness=lateness, types="third", **options)
        own = {"third": "auto", **dict.fromkeys(beside, lateness)}
        above = DetectSpec(streams=("third", *beside), detectors=tuple(upper), lateness=own, types=top, **options)
        self.whole = local(whole, [SCHEMA] * (1 + len(beside)), workers[0])
        self.first = TopicJob(below, [SCHEMA], f"{folder}/third", workers[1], {})
        schemas = [self.first.schema, *[SCHEMA] * len(beside)]
        self.second = TopicJob(above, schemas, f"{folder}/top", workers[2], {0: self.first.topic})
        self.expected: list[dict[str, Any]] = []
        self.actual: list[dict[str, Any]] = []
        self._waiting: list[tuple[int, list[pa.RecordBatch]]] = []

    def run(self, parts: list[pa.RecordBatch], *, final: bool, reads: bool) -> None:
        """Run a batch, also of the upper job if it reads."""
        for piece in self.whole.run_batch([(side, [part]) for side, part in enumerate(parts)], final=final):
            self.expected += piece.to_pylist()
        self.first.run([(0, parts[:1])], final=final)
        self._waiting += [(side, [part]) for side, part in enumerate(parts) if side]
        if reads or final:
            self.actual += self.second.run(self._waiting, final=final)
            self._waiting = []

    def restart(self, number: int, restarts: list[tuple[int, bool]]) -> None:
        """Let the jobs go on elsewhere that are to do so after this batch."""
        for batch, upper in restarts:
            if batch == number:
                (self.second if upper else self.first).restart()


@settings(max_examples=examples(160, quick=16), deadline=None)
@given(seed=st.integers(0, 1 << 20), learned=st.booleans(), lagging=st.booleans(), workers=WORKERS, restarts=RESTARTS)
def test_a_hierarchy_cut_over_two_jobs_gives_the_rows_of_one_query(
    seed: int, learned: bool, lagging: bool, workers: tuple[int, ...], restarts: list[tuple[int, bool]]
) -> None:
    """Batch for batch, late rows included. A job that lags behind has the same rows whenever it has caught up.

    Where D is learned, each worker learns it from its own events: so all have one worker, and no batch is skipped.
    """
    random = np.random.default_rng(seed)
    lowest = LearnedThirds() if learned else (ManyThirds, Thirds)[seed % 2]()
    with TemporaryDirectory() as folder:
        cut = Cut(folder, lowest, [PAIR, RUN], [], "8 us", (1, 1, 1) if learned else workers)
        for batch in range(BATCHES):
            part = rows(random, int(random.integers(0, 50)), 1000 + 12 * batch, 16, 18)
            reads = learned or not lagging or bool(random.random() < 0.5)
            cut.run([part], final=batch == BATCHES - 1, reads=reads)
            if reads:
                assert bag(cut.actual) == bag(cut.expected), f"after batch {batch}"
            cut.restart(batch, restarts)
        assert bag(cut.actual) == bag(cut.expected)


@settings(max_examples=examples(80, quick=10), deadline=None)
@given(seed=st.integers(0, 1 << 20), workers=WORKERS, restarts=RESTARTS)
def test_with_a_stream_beside_the_topic_nothing_comes_later_than_in_one_query(
    seed: int, workers: tuple[int, ...], restarts: list[tuple[int, bool]]
) -> None:
    """In one query all detectors wait for the slowest stream; a job waits for its own, so it may be earlier.

    Only at the start of the streams it may be later: in one query, a few rows of two streams together make clocks count.
    """
    random = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        cut = Cut(folder, Thirds(), [Texts(), Nexts(), PAIRS], ["b"], "10 us", workers)
        for batch in range(BATCHES):
            parts = [rows(random, int(random.integers(0, 25)), 1000 + 12 * batch, 12, 10) for _ in range(2)]
            reads = bool(random.random() < 0.7)
            cut.run(parts, final=batch == BATCHES - 1, reads=reads)
            if reads and cut.first.counts():
                assert not bag(cut.expected) - bag(cut.actual), f"after batch {batch}"
            cut.restart(batch, restarts)
        assert bag(cut.actual) == bag(cut.expected)


def test_a_reader_of_a_topic_needs_no_lateness_of_its_own(tmp_path: Path) -> None:
    """Results of a join are minutes out of order, and rare: the reader waits as long as the join may be late."""
    random = np.random.default_rng(3)
    join = JoinSpec(on="k", time="t", within="60 us", lateness="20 us", how="left")
    lower = TopicJob(join, [SCHEMA, SCHEMA], str(tmp_path / "pairs"), 2, {})
    order = OrderSpec(time="t", key="k")
    upper = TopicJob(order, [lower.schema], str(tmp_path / "ordered"), 3, {0: lower.topic})
    joined, ordered = [], []
    for batch in range(40):
        sides = [rows(random, 4, 1000 + 10 * batch, 10, 20) for _ in range(2)]
        final = batch == 39
        new = lower.run([(side, [part]) for side, part in enumerate(sides)], final=final)
        joined += new
        ordered += upper.run(final=final)
    assert upper.late() == 0
    assert bag([{name: row[name] for name in joined[0]} for row in ordered]) == bag(joined)
    for key in range(3):
        times = [row["t"] for row in ordered if row["k"] == key]
        assert times == sorted(times)
        assert len(times) > 50


def test_manifests_without_files_carry_progress_and_are_kept_when_entries_are_merged(tmp_path: Path) -> None:
    topic = create_topic(str(tmp_path / "t"), "{}")
    writer = topic.claim("q")
    assert writer.commit(0, "a", [], {"ts": Progress(10, 2)})
    assert not writer.commit(1, "b", [], {"ts": Progress(10, 2)}), "nothing new"
    assert not writer.commit(2, "c", []), "nothing at all"
    assert writer.commit(3, "d", [], {"ts": Progress(10, 5, 1)}), "K alone has risen: the paper's pseudo event"
    for batch in range(4, 20):
        assert writer.commit(batch, str(batch), [], {"ts": Progress(batch, 5, 1)})
    last = topic.latest()
    assert topic.progress(0, last + 1) == {"ts": Progress(19, 5, 1)}
    assert topic.progress(0, 2) == {"ts": Progress(10, 2)}
    assert topic.compact(keep=4) > 10
    assert topic.progress(0, last - 3) == {"ts": Progress(15, 5, 1)}
    topic.claim("q")
    assert topic.progress(last, last + 2) == {"ts": Progress(19, 5, 1)}, "a claim says nothing of time"


def test_a_manifest_without_progress_is_written_as_before() -> None:
    entry = Manifest(3, "claim", 1, "q")
    assert b"progress" not in to_bytes(entry)
    assert from_bytes(to_bytes(entry), "there") == entry
    told = Manifest(4, "batch", 1, "q", 2, "x", progress={"ts": Progress(5, 1, 2)})
    assert from_bytes(to_bytes(told), "there") == told


def test_a_promise_is_the_clock_where_k_would_be_learned_and_ends_with_rows_that_bring_none() -> None:
    learned = StreamClock(Lateness(floor="0 seconds"))
    fixed, recall = StreamClock(5), StreamClock(Lateness(recall=0.9, floor="0 seconds"))
    near = StreamTime(rows=20, clusters=[Cluster(90, 100, 20)], top=100, promise=Progress(60, 30, 15))
    far = StreamTime(rows=1, clusters=[Cluster(1 << 60, 1 << 60, 1)], top=1 << 60, promise=Progress(70, 30, 15))
    for clock in (learned, fixed, recall):
        clock.update(near)
    assert (learned.safe, learned.lateness, learned.spread, learned.settled) == (60, 0, 45, True)
    assert (fixed.safe, recall.clock) == (95, 100)
    learned.update(far)
    assert learned.safe == 70
    assert learned.limit > 1 << 60, "its own rows are never doubted"
    again = StreamClock(Lateness(floor="0 seconds"))
    again.restore(json.loads(json.dumps(learned.to_json())))
    assert (again.safe, again.limit) == (70, learned.limit)
    again.update(StreamTime())
    assert again.safe == 70
    again.update(StreamTime(rows=20, clusters=[Cluster(90, 101, 20)], top=101))
    assert again.promise is None
    assert again.clock == 101
    empty = StreamClock(Lateness(floor="0 seconds"))
    empty.update(StreamTime(promise=Progress(MIN_TIME)))
    assert (empty.clock, empty.counted, empty.safe) == (None, None, MIN_TIME)
