"""`braided.testing.check_detector`: good detectors pass, and of bad ones it says what their output depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.detect_reference import PAIRS, ManyThirds, Nexts, Texts, Thirds, micros
from support.profiles import size

import braided
from braided.testing import check_detector

US = pa.timestamp("us")


def events(seed: int = 0, count: int = 120) -> pa.Table:
    """Return rows of three keys, some at one time."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "k": rng.integers(0, 3, count),
            "s": rng.choice(["a", "bb"], count),
            "t": pa.array(np.sort(rng.integers(0, 2 * count, count)), US),
            "id": np.arange(count),
        }
    )


def said(detector: Any, rows: Any = None, **options: Any) -> str:
    with pytest.raises(braided.DetectorError) as caught:
        check_detector(detector, events() if rows is None else rows, time="t", key="k", tries=5, **options)
    return str(caught.value)


@pytest.mark.long
def test_our_own_detectors_pass() -> None:
    tries = size(quick=2, slow=5)
    check_detector(Thirds(), events(), time="t", key="k", tries=tries)
    check_detector(Thirds(), events(), time="t", tries=tries)
    check_detector(ManyThirds(), events(), time="t", key=["k", "s"], tries=tries)
    texts = Texts()
    texts.subscribes = "a"
    check_detector(texts, events().to_pandas(), time="t", key="k", tries=tries)
    third = pa.table({name: events(1)[name] for name in ("k", "t")}).append_column("row", events(1)["id"])
    check_detector(Nexts(), {"third": third, "b": events(2), "text": events(3)}, time="t", key="k", tries=tries)
    several = {"next": events(2, 60), "third": events(3, 60)}
    check_detector(PAIRS, several, time="t", key="k", tries=tries)


class OfBatch(braided.Detector):
    """Publishes the last event of each batch."""

    subscribes, publishes, schema = "a", "last", "t timestamp"

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
        return events.select(["t"]).slice(len(events) - 1)


class Forgets(Thirds):
    """Does not save all of its state."""

    def save(self) -> Any:
        return {"n": self.n, "before": 0}


class Shares(ManyThirds):
    """Publishes how many keys it sees."""

    def on_events(self, events: pa.RecordBatch, state: pa.RecordBatch) -> Any:
        published, kept = super().on_events(events, state)
        keys = len(np.unique(events["group"]))
        rows = published.num_rows
        n = pa.array(np.full(rows, keys), pa.int32())
        return published.set_column(published.schema.get_field_index("n"), "n", n), kept


class Counts(Thirds):
    """Publishes a number that goes on from run to run."""

    calls = 0

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        found = super().on_events(events)
        Counts.calls += 1
        return None if found is None else found.set_column(2, "n", pa.array([Counts.calls] * len(found)))


class Undated(Thirds):
    """Does not say what triggered an event that it dates earlier."""

    def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch | None:
        found = super().on_events(events)
        return None if found is None else found.drop_columns(["at"])


def test_a_time_that_is_no_column() -> None:
    with pytest.raises(braided.OptionError, match=r"time='time': no such column; the columns are k, s, t, id"):
        check_detector(Thirds(), events(), key="k")


def test_what_depends_on_cuts() -> None:
    text = said(OfBatch())
    assert text.startswith("detector 'last': its output depends on where batches are cut: with a cut before 1970-01-01")
    assert text.endswith("is new")
    # Of all cuts the one that is enough is named.
    assert text.count("1970-01-01") == 1


def test_what_depends_on_restarts() -> None:
    assert said(Forgets()).startswith(
        "detector 'third': its output depends on restarts: save() or load() loses something"
    )


def test_what_depends_on_something_else() -> None:
    assert said(Counts()).startswith(
        "detector 'third': two runs over the same events differ: it uses random numbers, a clock or"
    )


def test_what_depends_on_other_keys() -> None:
    assert said(Shares()).startswith(
        "detector 'third': its output for a key depends on other keys: with every key alone, {"
    )


def test_what_fails_under_cuts_only_says_how() -> None:
    assert "at is the time of none of its events" in said(Undated())


def test_cuts_are_those_of_moments() -> None:
    """A detector that needs all events of one time together may count on it."""

    class Moments(braided.Detector):
        subscribes, publishes, schema = "a", "moment", "t timestamp, n int"

        def on_events(self, events: pa.RecordBatch) -> pa.RecordBatch:
            times, counts = np.unique(micros(events, "t"), return_counts=True)
            return pa.record_batch({"t": pa.array(times, events.schema.field("t").type), "n": counts})

    check_detector(Moments(), events(), time="t", key="k", tries=5)


def test_events_are_checked() -> None:
    with pytest.raises(braided.OptionError, match="events: give a dict with a table for each of third, b, text"):
        check_detector(Nexts(), events(), time="t")
    with pytest.raises(braided.OptionError, match="events: has b; the detector subscribes to a"):
        check_detector(Thirds(), {"b": events()}, time="t")
