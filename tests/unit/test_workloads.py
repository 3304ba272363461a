"""The generated streams: arrival, disorder, the hot phone and the errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import braided
from braided.workloads.calls import FIRST_PHONE, ORIGIN, call_records, suspicious_numbers

UTC = pa.timestamp("us", "UTC")
SECOND = 1_000_000
ROWS = 20_000
CALLS: dict[str, Any] = {
    "rows": ROWS,
    "rate": 1000,
    "phones": 300,
    "disorder": "5 seconds",
    "hot_share": 0.3,
    "hot_from": "8 seconds",
}
NUMBERS: dict[str, Any] = {"rows": ROWS, "rate": 1000, "phones": 300, "disorder": "5 seconds"}


def micros(table: pa.Table, column: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return table[column].cast(pa.int64()).to_numpy()


@pytest.mark.parametrize(
    ("table", "time"),
    [(call_records(**CALLS), "start"), (suspicious_numbers(**NUMBERS), "seen_at")],
    ids=["calls", "numbers"],
)
def test_rows_arrive_in_order_and_at_most_the_disorder_late(table: pa.Table, time: str) -> None:
    arrived = micros(table, "arrived")
    assert arrived[0] == ORIGIN
    assert (np.diff(arrived) == SECOND // 1000).all()
    delay = arrived - micros(table, time)
    assert delay.min() >= 0
    assert 4.9 * SECOND < delay.max() <= 5 * SECOND
    behind = np.maximum.accumulate(micros(table, time)) - micros(table, time)
    assert 4.5 * SECOND < behind.max() <= 5 * SECOND


def test_one_phone_turns_hot() -> None:
    calls = call_records(**CALLS)
    start, hot = micros(calls, "start"), calls["caller"].to_numpy() == FIRST_PHONE
    before, after = hot[start < ORIGIN + 8 * SECOND], hot[start >= ORIGIN + 8 * SECOND]
    assert before.mean() < 0.02
    assert after.mean() == pytest.approx(0.3, abs=0.02)


def test_phones_cells_and_durations_are_in_range() -> None:
    calls, numbers = call_records(**CALLS, cells=7), suspicious_numbers(**NUMBERS)
    for phone in (calls["caller"], calls["callee"], numbers["phone"]):
        values = phone.to_numpy()
        assert values.min() == FIRST_PHONE
        assert values.max() == FIRST_PHONE + 299
    assert (calls["caller"].to_numpy() != calls["callee"].to_numpy()).all()
    assert set(calls["cell"].to_pylist()) == set(range(7))
    assert calls["duration"].to_numpy().min() >= 1
    assert len(set(numbers["reason"].to_pylist())) == 5
    assert calls.schema.types == [pa.int64(), pa.int64(), UTC, pa.int32(), pa.int32(), UTC]


def test_the_seed_decides_everything() -> None:
    assert call_records(**CALLS).equals(call_records(**CALLS))
    assert not call_records(**CALLS).equals(call_records(**CALLS, seed=2))
    assert suspicious_numbers(**NUMBERS).equals(suspicious_numbers(**NUMBERS))
    assert not suspicious_numbers(**NUMBERS).equals(suspicious_numbers(**NUMBERS, seed=2))


def test_calls_and_numbers_of_one_seed_are_independent() -> None:
    calls, numbers = call_records(**{**CALLS, "hot_share": 0.0}), suspicious_numbers(**NUMBERS)
    both = np.corrcoef(calls["caller"].to_numpy(), numbers["phone"].to_numpy())
    assert abs(both[0, 1]) < 0.05


def test_no_rows_is_a_table_too() -> None:
    assert call_records(**{**CALLS, "rows": 0}).schema == call_records(**CALLS).schema
    assert suspicious_numbers(**{**NUMBERS, "rows": 0}).schema == suspicious_numbers(**NUMBERS).schema


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": -1}, "rows=-1: write a number of 0 or more"),
        ({"rate": 0}, "rate=0: not a rate; write a number of rows per second above 0"),
        ({"phones": 1}, "phones=1: write a number of 2 or more"),
        ({"disorder": "-1 second"}, "disorder='-1 second': negative; write '5 seconds'"),
        ({"disorder": "soon"}, "disorder='soon': not a duration; write '10 seconds'"),
        ({"hot_share": 1.5}, "hot_share=1.5: not a share; write a number from 0 to 1"),
    ],
)
def test_errors_say_what_to_write(change: dict[str, Any], message: str) -> None:
    with pytest.raises(braided.BraidedError) as caught:
        call_records(**{**CALLS, **change})
    assert str(caught.value) == message
