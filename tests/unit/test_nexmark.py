"""NEXMark's events: proportions, order of arrival, who refers to whom, and the share of what is hot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.generators.nexmark import ACTIVE_PERSONS, FIRST_ID, IN_FLIGHT, LEAD, Events, nexmark_events

from braided.errors import BraidedError
from braided.workloads.calls import ORIGIN

EVENTS, BATCH, RATE = 60_000, 20_000, 10_000
SECOND = 1_000_000


def generated(**options: Any) -> list[Events]:
    return list(nexmark_events(**{"events": EVENTS, "batch": BATCH, **options}))


def whole(**options: Any) -> Events:
    return Events(*(pa.concat_tables(tables) for tables in zip(*generated(**options), strict=True)))


def micros(table: pa.Table, column: str = "dateTime") -> np.ndarray[Any, np.dtype[np.int64]]:
    return table[column].cast(pa.int64()).to_numpy() - ORIGIN


def event_number(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The lowest number that an event of a row's time can have; ten happen in a millisecond."""
    return micros(table) * RATE // SECOND


def test_one_person_three_auctions_and_forty_six_bids_of_fifty_events() -> None:
    persons, auctions, bids = whole()
    assert (persons.num_rows, auctions.num_rows, bids.num_rows) == (1_200, 3_600, 55_200)
    assert sorted(persons["id"].to_pylist()) == list(range(FIRST_ID, FIRST_ID + 1_200))
    assert sorted(auctions["id"].to_pylist()) == list(range(FIRST_ID, FIRST_ID + 3_600))


def test_times_are_even_and_in_whole_milliseconds() -> None:
    for table in whole():
        times = np.sort(micros(table))
        assert (times % 1000 == 0).all()
        assert times[-1] == pytest.approx(EVENTS / RATE * SECOND, rel=0.01)
        assert np.bincount(times // SECOND).tolist() == [table.num_rows // 6] * 6


def test_a_tenth_is_held_back_up_to_the_delay_and_no_more() -> None:
    bids = whole().bids
    behind = np.maximum.accumulate(micros(bids)) - micros(bids)
    assert (behind > 0).mean() == pytest.approx(0.1, abs=0.01)
    assert 2.8 * SECOND < behind.max() <= 3 * SECOND
    in_time = whole(delayed=0)
    assert all((np.diff(micros(table)) >= 0).all() for table in in_time)


def test_batches_are_cut_by_arrival_and_hold_about_as_many_events() -> None:
    batches = generated()
    assert len(batches) == 3
    for number, batch in enumerate(batches):
        times = micros(batch.bids)
        assert times.max() < (number + 1) * BATCH / RATE * SECOND
        assert 0.8 * BATCH < sum(table.num_rows for table in batch) < 1.2 * BATCH
        assert times.min() >= number * BATCH / RATE * SECOND - 3 * SECOND
    assert sum(table.num_rows for batch in batches for table in batch) == EVENTS


@pytest.mark.parametrize(("ratio", "share"), [(1, 0), (2, 1 / 2), (4, 3 / 4), (100, 99 / 100)])
def test_the_ratio_is_the_share_of_what_is_hot(ratio: int, share: float) -> None:
    _, auctions, bids = whole(hot_auctions=ratio, hot_sellers=ratio, hot_bidders=ratio, delayed=0)
    # One of a hundred is hot; of those that are not, a hundredth looks so.
    looks = share + (1 - share) / 100
    assert ((bids["auction"].to_numpy() - FIRST_ID) % 100 == 0).mean() == pytest.approx(looks, abs=0.01)
    assert ((bids["bidder"].to_numpy() - FIRST_ID) % 100 == 1).mean() == pytest.approx(looks, abs=0.01)
    assert ((auctions["seller"].to_numpy() - FIRST_ID) % 100 == 0).mean() == pytest.approx(looks, abs=0.02)


def test_bids_are_for_auctions_in_flight_by_active_persons() -> None:
    persons, auctions, bids = whole()
    opened = event_number(bids) * 3 // 50 - bids["auction"].to_numpy() + FIRST_ID
    assert opened.min() >= -LEAD - 3
    assert opened.max() <= IN_FLIGHT
    for table, column in ((bids, "bidder"), (auctions, "seller")):
        known = event_number(table) // 50 - table[column].to_numpy() + FIRST_ID
        assert known.min() >= -LEAD - 1
        assert 900 < known.max() < ACTIVE_PERSONS
        assert set(table[column].to_pylist()) - set(persons["id"].to_pylist()) <= set(range(FIRST_ID + 1_200, 3_000))
    assert bids["price"].to_numpy().min() >= 100
    assert bids["price"].to_numpy().max() <= 100_000_000
    assert set(auctions["category"].to_pylist()) == set(range(10, 15))


def test_auctions_last_as_long_as_a_hundred_take_to_open_on_average() -> None:
    auctions = whole().auctions
    lasts = micros(auctions, "expires") - micros(auctions)
    assert lasts.min() >= 1000
    assert lasts.max() <= 335_000
    assert lasts.mean() == pytest.approx(166_700, rel=0.05)


def test_events_have_their_mean_sizes() -> None:
    text = {"persons": 200, "auctions": 500}
    found = whole()
    for name, size in text.items():
        table = getattr(found, name)
        fields = [table[field.name] for field in table.schema if pa.types.is_string(field.type)]
        numbers = {"persons": 8, "auctions": 48}[name]
        lengths = sum(np.array([len(value) for value in column.to_pylist()]) for column in fields) + numbers
        assert np.mean(lengths) == pytest.approx(size, rel=0.02)


def test_the_same_arguments_give_the_same_events() -> None:
    assert all(a.equals(b) for a, b in zip(whole(), whole(), strict=True))
    assert not any(a.equals(b) for a, b in zip(whole(), whole(seed=2), strict=True))
    assert whole().bids["price"] != whole(seed=2).bids["price"]


def test_few_events_and_none() -> None:
    assert generated(events=0) == []
    [only] = generated(events=1)
    assert [table.num_rows for table in only] == [1, 0, 0]
    assert [table.schema for table in only] == [table.schema for table in whole()]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"events": -1}, "events=-1: write a whole number, 0 or more"),
        ({"batch": 0}, "batch=0: write a whole number, 1 or more"),
        ({"hot_auctions": 0}, "hot_auctions=0: write a whole number, 1 or more"),
        ({"rate": 0}, "rate=0: not a rate; write a number of events a second above 0"),
        ({"delayed": 2}, "delayed=2: not a share; write a number from 0 to 1"),
        ({"delay": "-1 second"}, "delay='-1 second': is negative; write '3 seconds'"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BraidedError) as caught:
        nexmark_events(**{"events": 10, **options})
    assert str(caught.value) == text
