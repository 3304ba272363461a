"""NEXMark: an auction house's persons, auctions and bids, as its public generator makes them.

Every 50 events are a person, three auctions and 46 bids, evenly in time. Sellers and bidders are active for the time
of 1000 further persons, auctions are bid for until 100 more have opened, and *hot* ones get more than the rest:

```
 auctions   ... 1200 .......... 1299 1300 ............ 1342 | now
                                     ^^^^ hot: the first of its hundred, until the next hundred begins
                     <-- 100 in flight, each bid for alike -->
```

After https://github.com/nexmark/nexmark, with its names, proportions and defaults. Two things differ. A bidder is one
of the persons (that generator adds 1000 to the number twice, so that its bidders are persons who come 1000 later). And
events are held back as in the generator that it descends from, Apache Beam's, which alone uses the delays that both
have among their defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.workloads.calls import ORIGIN

__all__ = ["ACTIVE_PERSONS", "FIRST_ID", "IN_FLIGHT", "LEAD", "Events", "nexmark_events"]

PERSONS, AUCTIONS, BIDS = 1, 3, 46
"""Of every 50 events."""
FIRST_ID = 1000
"""The number of the first person, and of the first auction."""
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS = 1000
"""Sellers and bidders are among the last persons; this many."""
IN_FLIGHT = 100
"""Bids are for one of the last auctions; this many."""
LEAD = 10
"""Up to so many persons or auctions are mentioned before they have come."""
HOT_EVERY = 100
"""Of so many persons or auctions one is hot."""
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
"""The mean size of an event; a column of no meaning, `extra`, makes up for what the others lack."""

_EPOCH = PERSONS + AUCTIONS + BIDS
_TIME = pa.timestamp("us", tz="UTC")
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = [
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
]
_FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_NAMES = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_OTHER_CHANNELS = 10_000
_CARDS = [f"{number:04d}" for number in range(10_000)]
_POOL_BYTES = 1 << 20
_ARRIVED = "arrived"

Ints = npt.NDArray[np.int64]


class Events(NamedTuple):
    """What arrives in one stretch of time, each table in order of arrival.

    persons : ``id``, ``name``, ``emailAddress``, ``creditCard``, ``city``, ``state``, ``dateTime``, ``extra``.
    auctions : ``id``, ``itemName``, ``description``, ``initialBid``, ``reserve``, ``dateTime``, ``expires``,
        ``seller``, ``category``, ``extra``.
    bids : ``auction``, ``bidder``, ``price``, ``channel``, ``url``, ``dateTime``, ``extra``.

    Numbers are int64; times are UTC, in whole milliseconds, as microseconds.
    """

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table


def nexmark_events(
    *,
    events: int,
    rate: float = 10_000,
    batch: int = 100_000,
    hot_auctions: int = 2,
    hot_sellers: int = 4,
    hot_bidders: int = 4,
    delayed: float = 0.1,
    delay: str = "3 seconds",
    seed: int = 1,
) -> Iterator[Events]:
    """Generate NEXMark's three streams, one batch after the other.

    Parameters
    ----------
    events, rate:
        How many, and how many of them happen a second, all three kinds together.
    batch:
        How many events happen in the time of a batch. Those that are held back come with a later one; whatever is
        left at the end comes with the last.
    hot_auctions, hot_sellers, hot_bidders:
        Of n bids, n - 1 are for the hot auction (of n auctions n - 1 by the hot seller, of n bids n - 1 by the hot
        bidder). 1: none is hot. The higher, the more skewed.
    delayed, delay:
        The share of events that are held back, and for how long at most.
    seed:
        The same arguments give the same events.

    Cost: 2 microseconds an event, and the memory of two batches, 2 KB an event.

    >>> first, second = nexmark_events(events=10_000, batch=5_000, delayed=0)
    >>> [table.num_rows for table in first]
    [100, 300, 4600]
    >>> second.persons["id"][0].as_py()
    1100
    """
    for name, number, least in (
        ("events", events, 0),
        ("batch", batch, 1),
        ("hot_auctions", hot_auctions, 1),
        ("hot_sellers", hot_sellers, 1),
        ("hot_bidders", hot_bidders, 1),
    ):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise OptionError(f"{name}={number!r}: write a whole number, {least} or more")
    if not rate > 0:
        raise OptionError(f"rate={rate!r}: not a rate; write a number of events a second above 0")
    if not 0 <= delayed <= 1:
        raise OptionError(f"delayed={delayed!r}: not a share; write a number from 0 to 1")
    longest = parse_duration(delay, "delay") // 1000
    if longest < 0:
        raise OptionError(f"delay={delay!r}: is negative; write '3 seconds'")
    return _batches(events, batch, _House(rate, hot_auctions, hot_sellers, hot_bidders, seed), delayed, longest, seed)


def _batches(events: int, batch: int, house: _House, delayed: float, longest: int, seed: int) -> Iterator[Events]:
    waiting: list[pa.Table] | None = None
    for number, start in enumerate(range(0, events, batch)):
        stop = min(start + batch, events)
        rng = np.random.default_rng([seed, number])
        ids = np.arange(start, stop)
        # Drawn for all events first, so that how an event looks does not depend on whether it is held back.
        late = np.where(rng.random(len(ids)) < delayed, 1 + (rng.random(len(ids)) * longest).astype(np.int64), 0)
        arrived = house.at(ids) + np.minimum(late, longest)
        kind = ids % _EPOCH
        chosen = [kind < PERSONS, (kind >= PERSONS) & (kind < PERSONS + AUCTIONS), kind >= PERSONS + AUCTIONS]
        makers = (house.persons, house.auctions, house.bids)
        made = [make(rng, ids[which]) for make, which in zip(makers, chosen, strict=True)]
        end = house.at(np.array([stop]))[0] if stop < events else np.iinfo(np.int64).max
        pairs = [
            _released(table.append_column(_ARRIVED, pa.array(arrived[which])), before, end)
            for table, which, before in zip(made, chosen, waiting or [None] * len(made), strict=True)
        ]
        waiting = [later for _, later in pairs]
        yield Events(*(now for now, _ in pairs))


def _released(fresh: pa.Table, waiting: pa.Table | None, end: int) -> tuple[pa.Table, pa.Table]:
    """Return what arrives before `end`, in that order, and what does not yet."""
    both = fresh if waiting is None else pa.concat_tables([waiting, fresh])
    arrived = both[_ARRIVED].to_numpy()
    order = np.argsort(arrived, kind="stable")
    now = int(np.searchsorted(arrived[order], end))
    return both.take(pa.array(order[:now])).drop_columns(_ARRIVED), both.take(pa.array(order[now:]))


class _House:
    """Makes events of given numbers; an event's number decides its time, and whom it may refer to."""

    def __init__(self, rate: float, hot_auctions: int, hot_sellers: int, hot_bidders: int, seed: int) -> None:
        self.rate = rate
        self.hot_auctions = hot_auctions
        self.hot_sellers = hot_sellers
        self.hot_bidders = hot_bidders
        rng = np.random.default_rng([seed, 1 << 32])
        self.letters = rng.integers(ord("a"), ord("z") + 1, _POOL_BYTES, dtype=np.uint8)
        self.words = np.where(rng.random(_POOL_BYTES) < 1 / 13, np.uint8(ord(" ")), self.letters)
        self.channels = pa.array([*_HOT_CHANNELS, *(f"channel-{n}" for n in range(_OTHER_CHANNELS))])
        self.urls = pa.array(_urls(rng))

    def at(self, ids: Ints) -> Ints:
        """Return when events happen, in milliseconds."""
        milliseconds: Ints = (ids * (1000 / self.rate)).astype(np.int64) + ORIGIN // 1000
        return milliseconds

    def persons(self, rng: np.random.Generator, ids: Ints) -> pa.Table:
        """Make persons."""
        rows = len(ids)
        spaces, at, end = (pa.array([part]).take(pa.array(np.zeros(rows, np.int8))) for part in (" ", "@", ".com"))
        columns = {
            "name": _drawn(rng, _NAMES, rows),
            "emailAddress": _joined(self._word(rng, rows, 7), at, self._word(rng, rows, 5), end),
            "creditCard": _joined(
                *(part for four in range(4) for part in ([spaces] * (four > 0) + [_drawn(rng, _CARDS, rows)]))
            ),
            "city": _drawn(rng, _CITIES, rows),
            "state": _drawn(rng, _STATES, rows),
        }
        extra = self._extra(rng, PERSON_BYTES - 8 - _lengths(*columns.values()))
        return pa.table({
            "id": FIRST_ID + _last_person(ids), **columns, "dateTime": _times(self.at(ids)), "extra": extra,
        })  # fmt: skip

    def auctions(self, rng: np.random.Generator, ids: Ints) -> pa.Table:
        """Make auctions."""
        rows, at = len(ids), self.at(ids)
        hot = rng.integers(0, self.hot_sellers, rows) > 0
        seller = np.where(hot, _last_person(ids) // HOT_EVERY * HOT_EVERY, _some_person(rng, ids))
        horizon = self.at(ids + IN_FLIGHT * _EPOCH // AUCTIONS) - at
        first = _prices(rng, rows)
        name, description = (_slices(rng, self.words, rng.integers(3, most, rows)) for most in (20, 100))
        return pa.table({
            "id": FIRST_ID + _last_auction(ids),
            "itemName": name,
            "description": description,
            "initialBid": first,
            "reserve": first + _prices(rng, rows),
            "dateTime": _times(at),
            "expires": _times(at + 1 + (rng.random(rows) * np.maximum(2 * horizon, 1)).astype(np.int64)),
            "seller": FIRST_ID + seller,
            "category": FIRST_CATEGORY + rng.integers(0, CATEGORIES, rows),
            "extra": self._extra(rng, AUCTION_BYTES - 48 - _lengths(name, description)),
        })  # fmt: skip

    def bids(self, rng: np.random.Generator, ids: Ints) -> pa.Table:
        """Make bids."""
        rows = len(ids)
        last = _last_auction(ids)
        oldest = np.maximum(last - IN_FLIGHT, 0)
        some = oldest + (rng.random(rows) * (last - oldest + 1 + LEAD)).astype(np.int64)
        auction = np.where(rng.integers(0, self.hot_auctions, rows) > 0, last // HOT_EVERY * HOT_EVERY, some)
        # The second of its hundred, so that hot bidders are not hot sellers.
        hot_bidder = _last_person(ids) // HOT_EVERY * HOT_EVERY + 1
        bidder = np.where(rng.integers(0, self.hot_bidders, rows) > 0, hot_bidder, _some_person(rng, ids))
        hot_channel = rng.integers(0, len(_HOT_CHANNELS), rows)
        other = len(_HOT_CHANNELS) + rng.integers(0, _OTHER_CHANNELS, rows)
        channel = pa.array(np.where(rng.random(rows) < 0.5, hot_channel, other))
        return pa.table({
            "auction": FIRST_ID + auction,
            "bidder": FIRST_ID + bidder,
            "price": _prices(rng, rows),
            "channel": self.channels.take(channel),
            "url": self.urls.take(channel),
            "dateTime": _times(self.at(ids)),
            "extra": self._extra(rng, np.full(rows, BID_BYTES - 32)),
        })  # fmt: skip

    def _word(self, rng: np.random.Generator, rows: int, below: int) -> pa.Array:
        return _slices(rng, self.letters, rng.integers(3, below, rows))

    def _extra(self, rng: np.random.Generator, mean: Ints) -> pa.Array:
        """Make texts whose lengths are within a fifth of those given."""
        mean = np.maximum(mean, 0)
        fifth = np.round(mean * 0.2).astype(np.int64)
        return _slices(rng, self.letters, mean - fifth + (rng.random(len(mean)) * 2 * fifth).astype(np.int64))


def _last_person(ids: Ints) -> Ints:
    """Return the number, from 0, of the last person when an event happens: its own, if it is one."""
    return ids // _EPOCH * PERSONS + np.minimum(ids % _EPOCH, PERSONS - 1)


def _last_auction(ids: Ints) -> Ints:
    """Return the number, from 0, of the last auction when an auction or a bid happens."""
    return ids // _EPOCH * AUCTIONS + np.minimum(ids % _EPOCH - PERSONS, AUCTIONS - 1)


def _some_person(rng: np.random.Generator, ids: Ints) -> Ints:
    known = _last_person(ids) + 1
    active = np.minimum(known, ACTIVE_PERSONS)
    drawn: Ints = known - active + (rng.random(len(ids)) * (active + LEAD)).astype(np.int64)
    return drawn


def _prices(rng: np.random.Generator, rows: int) -> Ints:
    cents: Ints = np.round(10 ** (6 * rng.random(rows)) * 100).astype(np.int64)
    return cents


def _times(milliseconds: Ints) -> pa.Array:
    return pa.array(milliseconds * 1000, _TIME)


def _drawn(rng: np.random.Generator, values: list[str], rows: int) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), rows)))


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _lengths(*columns: pa.Array) -> Ints:
    """Return how long the texts of each row are together."""
    total = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        total += pc.binary_length(column).to_numpy(zero_copy_only=False)
    return total


def _slices(rng: np.random.Generator, pool: npt.NDArray[np.uint8], lengths: Ints) -> pa.Array:
    """Return pieces of a long text, one of each length, from places chosen at random."""
    ends = np.cumsum(lengths)
    starts = rng.integers(0, len(pool) // 2, len(lengths)) - (ends - lengths)
    letters = pool[np.repeat(starts, lengths) + np.arange(ends[-1] if len(ends) else 0)]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters))


def _urls(rng: np.random.Generator) -> list[str]:
    """Return an address for each channel, which names it in nine of ten of those that are not hot."""
    letters = rng.integers(ord("a"), ord("z") + 1, (len(_HOT_CHANNELS) + _OTHER_CHANNELS, 12), dtype=np.uint8)
    texts = [row.tobytes().decode() for row in letters]
    named = rng.random(len(texts)) < 0.9
    return [
        f"https://www.nexmark.com/{text[:4]}/{text[4:8]}/{text[8:]}/item.htm?query=1"
        + (f"&channel_id={at - len(_HOT_CHANNELS)}" if at >= len(_HOT_CHANNELS) and named[at] else "")
        for at, text in enumerate(texts)
    ]
