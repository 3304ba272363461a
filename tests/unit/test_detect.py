"""Detectors: what a hierarchy refuses, how delays are learned, what late events do, and errors with their words."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.detect_reference import Nexts, Thirds, evaluate, nexts, thirds
from support.profiles import some

import braided
from braided.errors import DetectorError, OptionError
from braided.local.runtime import LocalRuntime
from braided.operators.detect.spec import DetectSpec
from braided.operators.registry import build
from braided.operators.stream import Stream

US = pa.timestamp("us")


def table(times: list[int], **columns: Any) -> pa.Table:
    count = len(times)
    return pa.table({"k": [1] * count, "t": pa.array(times, US), "v": list(range(count)), **columns})


def detector(
    publishes: str = "seen", subscribes: Any = "row", schema: Any = "t timestamp, v bigint", **more: Any
) -> braided.Detector:
    """Return a detector that publishes what it sees, or what a function makes of it."""

    class TestedDetector(braided.Detector):
        made: Callable[[pa.RecordBatch], Any] = staticmethod(lambda events: events.select(["t", "v"]))

        def on_events(self, events: pa.RecordBatch) -> Any:
            return type(self).made(events)

    for name, value in {"publishes": publishes, "subscribes": subscribes, "schema": schema, **more}.items():
        setattr(TestedDetector, name, staticmethod(value) if name == "made" else value)
    return TestedDetector()


def run(*detectors: Any, rows: Any = None, **options: Any) -> Any:
    data = table([1, 2, 3]) if rows is None else rows
    streams = data if isinstance(data, dict) else {"row": data}
    return braided.local.detect(streams, list(detectors), **{"time": "t", "key": "k", "lateness": "0 us", **options})


def refused(*detectors: Any, **options: Any) -> str:
    with pytest.raises(OptionError) as caught:
        run(*detectors, **options)
    return str(caught.value)


def test_the_result_has_a_struct_for_each_type_or_the_columns_of_one() -> None:
    one, two = detector(), detector("again", "seen")
    every = run(one, two).table
    assert every.column_names == ["type", "k", "t", "at", "seen", "again"]
    assert sorted(every["type"].to_pylist()) == ["again"] * 3 + ["seen"] * 3
    first = every.filter(pc.equal(every["type"], "again")).to_pylist()[0]
    assert first["seen"] is None
    assert first["again"]["v"] == 0
    chosen = run(one, two, types=["again"]).table
    assert chosen.column_names == ["type", "k", "t", "at", "again"]
    assert chosen.num_rows == 3
    flat = run(one, two, types="again").table
    assert flat.column_names == ["k", "t", "v", "at"]
    assert flat["v"].to_pylist() == [0, 1, 2]


def test_a_hierarchy_is_found_from_subscriptions_in_any_order() -> None:
    names = ["a", "b", "c", "d"]
    chain = [detector(name, before) for before, name in zip(["row", *names], names, strict=False)]
    for order in (chain, chain[::-1], [chain[2], chain[0], chain[3], chain[1]]):
        assert run(*order, types="d").table["v"].to_pylist() == [0, 1, 2]


def test_cycles_unknown_types_and_clashing_schemas_are_refused_by_name() -> None:
    assert refused(detector("a", ("row", "c")), detector("b", "a"), detector("c", "b")) == (
        "detectors: a -> b -> c -> a is a cycle; a detector must not receive events that result from its own"
    )
    assert refused(detector("a", ("row", "a"))).startswith("detectors: a -> a is a cycle")
    assert refused(detector("a", ("row", "nothing"))) == (
        "detector 'a': subscribes to 'nothing', which no detector publishes; write one of a, row"
    )
    # Also where no stream is subscribed to then.
    assert refused(detector("a", "nothing")).startswith(
        "detector 'a': subscribes to 'nothing', which no detector publishes"
    )
    assert refused(detector("a", "a")).startswith("detectors: a -> a is a cycle")
    other = detector("seen", schema="t timestamp, v string")
    assert refused(detector(), other) == (
        "detectors: 'seen' is published with k int64, t timestamp[us], v int64 and with k int64, t timestamp[us], "
        "v string; give both the same columns, or two names"
    )
    both = detector("both", ("row", "text"))
    assert refused(detector("text", schema="t timestamp, v string"), both) == (
        "detector 'both': column 'v' is int64 in 'row' and string in 'text'; give it one type, or another name"
    )


def test_two_detectors_may_publish_one_type() -> None:
    low = detector(made=lambda events: events.filter(pc.less(events["v"], 1)).select(["t", "v"]))
    high = detector(made=lambda events: events.filter(pc.greater(events["v"], 1)).select(["t", "v"]))
    above = detector("above", "seen")
    result = run(above, low, high, types="above")
    assert result.table["v"].to_pylist() == [0, 2]
    assert [one["name"] for one in result.report.query["detectors"]] == ["seen", "seen (2)", "above"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"publishes": ""}, "TestedDetector: publishes='': write the name of an event type"),
        ({"publishes": "row"}, "TestedDetector: publishes 'row', which is a stream; choose another name"),
        ({"subscribes": ()}, "TestedDetector: subscribes=(): write one event type or several"),
        ({"subscribes": ("row", "row")}, "TestedDetector: subscribes=('row', 'row'): names a type twice; name each once"),
        ({"schema": "t timestamp, v money"}, "TestedDetector.schema: 'v money': unknown type; write one of "),
        ({"schema": "t timestamp, v"}, "TestedDetector.schema: 'v': not a column; write a name and a type, such as 'player int'"),
        ({"schema": "v int"}, "TestedDetector.schema='v int': has no time column 't'; write 't timestamp, ...'"),
        ({"schema": "t int"}, "TestedDetector.schema='t int': has no time column 't'; write 't timestamp, ...'"),
        ({"schema": "t timestamp, k int"}, "TestedDetector.schema: column 'k' is part of the key, which Braided adds; leave it out or rename it"),
        ({"schema": "t timestamp, at int"}, "TestedDetector.schema: column 'at' is added by Braided; leave it out or rename it"),
        ({"schema": "t timestamp, V int, v int"}, "has two columns 'v'; name each once"),
        ({"schema": 7}, "TestedDetector.schema=7: write text such as 'time timestamp, player int', or a pyarrow.Schema"),
        ({"delay": "-1 second"}, "TestedDetector.delay='-1 second': negative; write '0 seconds' or more"),
        ({"delay": "a while"}, "TestedDetector.delay='a while': not a duration"),
        ({"delay": braided.Lateness(recall=0.9)}, "TestedDetector.delay: recall and clock_rows do not apply here; leave them out"),
        ({"forget": "-1 second"}, "TestedDetector.forget='-1 second': every event would get a new instance; write a duration"),
        ({"forget": "0 seconds"}, "TestedDetector.forget='0 seconds': every event would get a new instance; write a duration"),
    ],
)  # fmt: skip
def test_what_a_detector_declares_is_checked(given: dict[str, Any], said: str) -> None:
    assert said in refused(detector(**given))


def test_options_are_checked() -> None:
    assert refused(detector) == "detectors: give a list of detectors, instances of braided.Detector or braided.Pattern"
    assert refused().startswith("0 detectors over 1 streams given; give 1 to 64")
    rows = {"row": table([1]), "more": table([1])}
    assert refused(detector(), rows=rows) == "streams: no detector subscribes to 'more'; leave it out"
    assert refused(detector(), types="none") == "types='none': no detector publishes 'none'; write one of seen"
    assert refused(detector(), types=[]).startswith("types=(): write one event type")
    assert refused(detector(), rows=table([1], type=["x"])) == (
        "streams['row']: column 'type': events already have a column of that name; rename it"
    )
    assert refused(detector("t")).startswith("types: the result already has a column 't'")
    assert "names a column twice, or the time" in refused(detector(), key=["k", "k"])
    other = {"row": table([1]), "more": table([1]).set_column(0, "k", pa.array(["x"]))}
    assert refused(detector(subscribes=("row", "more")), rows=other) == (
        "key='k': has type string in streams['more'] and int64 in streams['row']; cast one"
    )
    pattern = braided.Pattern("p", subscribes="row", pattern="A B(", measures={"t": "A.t"}, within="1 second")
    assert refused(pattern).startswith("Pattern('p'): pattern=")
    untimed = braided.Pattern("p", subscribes="row", pattern="A", measures={"v": "A.v"})
    assert refused(untimed) == "Pattern('p'): no measure is named as the time column 't'; write {'t': 'last(A.t)'}"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda events: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda events: sys.exit(3), "raised SystemExit: 3"),
        (lambda events: 7, "returned int; return a pyarrow.RecordBatch or None"),
        (lambda events: events.select(["t"]), "returned rows with t timestamp[us], at timestamp[us]; its schema is "),
        (
            lambda events: events.select(["t"]).append_column("v", pa.array(["x"] * len(events))),
            "returned rows with t timestamp[us], v string, at timestamp[us]; its schema is t timestamp[us], v int64",
        ),
        (
            lambda events: events.select(["v"]).append_column("t", pa.nulls(len(events), US)),
            "published an event without its t",
        ),
    ],
)
def test_a_detector_that_fails_is_named_with_its_batch_and_first_event(made: Any, said: str) -> None:
    with pytest.raises(DetectorError) as caught:
        run(detector("bad", made=made), rows=table(list(range(100))), batch_rows=100)
    text = str(caught.value)
    assert text.startswith(f"detector 'bad' {said}")
    assert "in its batch 0, with 99 events of which the first is {'type': 'row', 'k': 1, 't': " in text
    assert "1970" in text


def test_an_error_that_cannot_say_its_own_words_is_named_too() -> None:
    class Speechless(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fail(events: pa.RecordBatch) -> None:
        raise Speechless

    with pytest.raises(DetectorError, match=r"detector 'bad' raised Speechless; in its batch"):
        run(detector("bad", made=fail), rows=table([1]))


def test_values_that_the_schema_has_no_room_for() -> None:
    small = detector(schema="t timestamp, v tinyint")
    with pytest.raises(DetectorError, match=r"returned values that do not fit its schema: .*1000"):
        run(small, rows=table([1], v=[1000]))


def test_a_batch_that_failed_runs_again_and_nothing_is_lost() -> None:

    def plan(made: Any) -> Any:
        spec = DetectSpec(
            streams=("row",), detectors=[detector(made=made)], time="t", key="k", lateness="0 us", types="seen"
        )
        return build(spec, [Stream("row", table([1]).schema)]).operator

    runtime = LocalRuntime(plan(lambda events: events.select(["t", "v"])), 1)
    batches = [table(list(range(100))), table(list(range(100, 200)))]
    list(runtime.run_batch([(0, batches[0].to_batches())]))
    # A batch that fails commits nothing: Spark goes on from the state before it.
    broken = LocalRuntime(plan(lambda events: 1 / 0), stores=pickle.loads(pickle.dumps(runtime.stores)))
    with pytest.raises(DetectorError, match="in its batch 1"):
        list(broken.run_batch([(0, batches[1].to_batches())]))
    again = list(runtime.run_batch([(0, batches[1].to_batches())]))
    rest = list(runtime.run_batch([(0, [])], final=True))
    assert [value for piece in (*again, *rest) for value in piece["t"].cast(pa.int64()).to_pylist()] == list(
        range(99, 200)
    )


def backdated(by: int, **more: Any) -> braided.Detector:
    """Return a detector that dates every event earlier than its trigger."""

    def made(events: pa.RecordBatch) -> pa.RecordBatch:
        times = pa.array(np.array(events["t"].cast(pa.int64())) - by, US)
        return pa.record_batch({"t": times, "v": events["v"], "at": events["t"]})

    return detector("early", made=made, **more)


def test_rows_older_than_they_may_be_are_refused() -> None:
    with pytest.raises(DetectorError) as caught:
        run(backdated(5, delay="4 us"))
    assert "'v': 0, 'at': " in str(caught.value)
    assert "but at is more than its delay of 4 us after its time; declare a longer delay" in str(caught.value)
    run(backdated(5, delay="5 us"))

    def unsaid(events: pa.RecordBatch) -> pa.RecordBatch:
        return backdated(5).on_events(events).drop_columns(["at"])

    with pytest.raises(
        DetectorError, match="at is the time of none of its events; return in at the time of the event that"
    ):
        run(detector(made=unsaid))


def test_a_delay_is_learned_its_rise_handed_up_at_once_and_late_events_counted() -> None:
    rows = table(list(range(0, 1000, 10)))
    above = detector("above", "early")
    whole = run(above, backdated(25), rows=rows)
    assert whole.report.query["detectors"][1]["late"] == 0, "a rise is handed up in the same batch"
    assert whole.table.num_rows == 200
    cut = run(above, backdated(25), rows=rows, batch_rows=1)
    early, seen = cut.report.query["detectors"]
    assert early["name"] == "early"
    assert early["delay"] == 25
    assert early["delay_history"][0][1] == 25
    # The first events set D before anything was let go; all later ones are waited for.
    assert seen["late"] == 0
    assert seen["behind"] == 25
    assert cut.table.num_rows == 200


def test_events_that_come_while_a_delay_is_learned_are_late_and_counted() -> None:
    def made(events: pa.RecordBatch) -> pa.RecordBatch:
        times = np.array(events["t"].cast(pa.int64()))
        back = np.where(times >= 500, 60, 10)
        return pa.record_batch({"t": pa.array(times - back, US), "v": events["v"], "at": events["t"]})

    rows = table(list(range(0, 1000, 10)))
    late = {}
    for margin in (0, 0.5):
        below = detector("early", made=made, delay=braided.Lateness(margin=margin, floor="0 us"))
        result = run(below, detector("above", "early"), rows=rows, batch_rows=1)
        told = result.report.query["detectors"]
        late[margin] = told[1]["late"]
        assert told[0]["events"] == 100
        assert told[1]["events"] == 100 - told[1]["late"], "what is late is not seen, and all else is"
        assert told[1]["late_by_most"] <= 50
    assert late[0] >= 1
    declared = run(detector("early", made=made, delay="60 us"), detector("above", "early"), rows=rows, batch_rows=1)
    assert declared.report.query["detectors"][1]["late"] == 0


def test_published_events_set_no_clock() -> None:
    """A detector above two others waits for neither of them: one publishes nothing at all."""
    silent = detector("silent", made=lambda events: None)
    seen: list[int] = []

    def remember(events: pa.RecordBatch) -> None:
        seen.extend(events["v"].to_pylist())

    above = detector("above", ("row", "silent"), schema="t timestamp", made=remember)
    rows = table(list(range(100)))

    spec = DetectSpec(streams=("row",), detectors=[above, silent], time="t", key="k", lateness="0 us")
    runtime = LocalRuntime(build(spec, [Stream("row", rows.schema)]).operator, 1)
    list(runtime.run_batch([(0, rows.to_batches())]))
    assert seen == list(range(99)), "all before the clock"


def test_state_must_be_json_or_arrow() -> None:
    class Bad(braided.Detector):
        subscribes, publishes, schema = "row", "bad", "t timestamp"

        def on_events(self, events: pa.RecordBatch) -> None:
            return None

        def save(self) -> Any:
            return {"when": object()}

    with pytest.raises(DetectorError, match=r"saved a state that is neither JSON nor Arrow \(Object of type object"):
        run(Bad())


def test_states_of_many_keys_are_kept_apart_also_where_hashes_are_shared_by_blocks(monkeypatch: Any) -> None:
    """So many keys that their states lie in several leaves; keys of text, whose hashes may collide."""
    monkeypatch.setattr("braided.operators.match.open_rows.LEAF_ROWS", 16)
    monkeypatch.setattr("braided.operators.match.open_rows._CHUNK_ROWS", 40)

    class Count(braided.Detector):
        subscribes, publishes, schema = "row", "count", "t timestamp, n int"

        def __init__(self) -> None:
            self.n = 0

        def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
            self.n += len(events)
            return pa.record_batch({"t": events["t"].take([len(events) - 1]), "n": [self.n]})

        def save(self) -> Any:
            return self.n

        def load(self, state: Any) -> None:
            self.n = state

    rng = np.random.default_rng(1)
    keys = [None if n == 3 else f"key {n}" for n in rng.integers(0, 300, 3000)]
    rows = pa.table({"k": keys, "t": pa.array(np.arange(3000), US)})
    result = run(Count(), rows=rows, batch_rows=170, types="count", workers=2).table.to_pylist()
    most: dict[Any, int] = {}
    for row in result:
        most[row["k"]] = max(most.get(row["k"], 0), row["n"])
    assert most == {key: keys.count(key) for key in set(keys)}


def test_keyed_detectors_return_groups_that_they_were_given() -> None:
    class Many(braided.KeyedDetector):
        subscribes, publishes, schema, state = "row", "many", "t timestamp", "n int"
        answer: Any = None

        def on_events(self, events: pa.RecordBatch, state: pa.RecordBatch) -> Any:
            return type(self).answer(events, state)

    def said(answer: Any) -> str:
        Many.answer = staticmethod(answer)
        with pytest.raises(DetectorError) as caught:
            run(Many())
        return str(caught.value)

    def rows(group: list[Any], t: Any) -> pa.RecordBatch:
        return pa.record_batch({"group": pa.array(group, pa.int64()), "t": t})

    assert "returned NoneType; return what is published and the new state" in said(lambda e, s: None)
    assert "returned an unknown group" in said(lambda e, s: (rows([1], e["t"].slice(0, 1)), None))
    assert "returned a row without a group" in said(lambda e, s: (rows([None], e["t"].slice(0, 1)), None))
    state = pa.record_batch({"group": [0, 0], "n": [1, 1]})
    assert "returned two states for one key" in said(lambda e, s: (None, state))
    assert "returned a state with group int64; its schema is group int32, n int32" in said(
        lambda e, s: (None, state.select(["group"]))
    )
    assert "raised KeyError" in said(lambda e, s: e["nothing"])
    assert "raised SystemExit" in said(lambda e, s: sys.exit())


def test_a_pattern_dated_before_its_match_is_refused() -> None:
    rows = table(list(range(0, 1000, 10)), u=pa.array([0] * 100, US))
    bad = braided.Pattern("p", subscribes="row", pattern="A", measures={"t": "A.u"})
    with pytest.raises(
        DetectorError, match="published an event that is older than its match; let the measure 't' be a time"
    ):
        run(bad, rows=rows, batch_rows=80)


def test_late_rows_of_streams_are_counted_and_not_seen() -> None:
    result = run(detector(), rows=table([*range(100), 5, 200]), batch_rows=100, types="seen")
    assert result.report.streams[0]["late"] == 1
    assert result.table["v"].to_pylist() == [*range(100), 101]
    assert "late  waiting           delay          behind" in str(result.report)


@pytest.mark.parametrize("margin", some([3, 0], 1))
def test_where_no_event_is_late_the_output_is_that_of_sorted_events(margin: float) -> None:
    """A delay that is learned from nothing: some cuts make events late, and all others give the same."""
    rng = np.random.default_rng(5)
    steps = rng.integers(0, 3, 400)
    steps[200] = 40
    rows = pa.table(
        {
            "k": rng.integers(0, 4, 400),
            "s": rng.choice(["a", "bb"], 400),
            "t": pa.array(np.cumsum(steps), US),
            "id": np.arange(400),
        }
    )
    below = Thirds()
    below.delay = braided.Lateness(margin=margin, floor="0 us")
    above = Nexts()
    above.subscribes = ("third", "a")
    spec = DetectSpec(streams=("a",), detectors=[below, above], time="t", key="k")
    nodes = build(spec, [Stream("a", rows.schema)]).operator.nodes  # type: ignore[attr-defined]
    plain = rows.set_column(2, "t", rows["t"].cast(pa.int64())).to_pylist()
    schemas = {"a": rows.schema, **{node.publishes: node.schema for node in nodes}}
    order = [("third", ("a",), thirds), ("next", above.subscribes, nexts)]
    events = evaluate({"a": plain}, schemas, order, ["k"], "t")
    wanted = sorted((row["k"], row["t"], row["what"]) for row in events["next"])
    late = []
    for size in some([2, 70, 400, 1, 3, 7, 110], 3):
        result = run(below, above, rows={"a": rows}, batch_rows=size, types="next")
        late.append(result.report.query["detectors"][1]["late"])
        times = result.table["t"].cast(pa.int64()).to_pylist()
        found = sorted(zip(result.table["k"].to_pylist(), times, result.table["what"].to_pylist(), strict=True))
        assert (found == wanted) == (late[-1] == 0), f"{late[-1]} late with batches of {size}"
    assert late[0] > 0, "of two rows a batch"
    assert late[2] == 0, "all in one"


def test_an_error_about_an_event_that_python_has_no_date_for_names_the_detector() -> None:
    class Raises(braided.Detector):
        subscribes, publishes, schema = "r", "x", "ts timestamp"

        def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
            raise ValueError("mine")

    rows = pa.table({"k": [1], "ts": pa.array([10**18], pa.timestamp("us"))})
    with pytest.raises(braided.DetectorError, match=r"ValueError.*mine.*'ts': 1000000000000000000"):
        braided.local.detect({"r": rows}, [Raises()], key="k", time="ts")
