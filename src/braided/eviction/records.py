"""The state of a bounded buffer as plain record arrays, which the kernels of this package read and write.

There are `capacity` slots, one per stored row; the sizes of all other arrays follow from the capacity::

    rows      time stream row credit               a slot per stored row, of any stream
    chains    (entry, stream) -> first, last       the slots of one key and stream, oldest first
    order     standing seq, links                  the rows of each chain by credit, the least on top (`order`)
    heap      (pool, place) -> credit, chain       the chains by their least row, the smallest credit on top (`heap`)
    table     hash of key -> entry                 open addressing

A *pool* has the rows with which a newcomer competes: one for all streams (share="unified") or one per stream.

A credit does not change when other credits rise. A gain of all rows of one key and stream is added once, to their
chain. A row's credit is::

    rows.credit + chains.gained

The state of the policy is separate (`braided.eviction.policies.policy`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Links = npt.NDArray[np.int32]
UInt64s = npt.NDArray[np.uint64]
Reals = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.int8]
Records = npt.NDArray[Any]

NONE = -1
EVERYTHING = float("inf")
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2**64 / golden ratio: a product with it spreads numbers that differ in few bits."""

_i8, _i4, _f8, _u8 = np.int64, np.int32, np.float64, np.uint64

SETTINGS = np.dtype([("room", _i8), ("room_bytes", _i8), ("combining", _i8)])
TOTALS = np.dtype(
    [
        ("rows", _i8),
        ("free_row", _i8),
        ("free_entry", _i8),
        ("seq", _i8),
        ("events", _i8),
        ("phase", _i8),
        ("at_stream", _i8),
        ("at_slot", _i8),
        ("pairs", _i8),
        ("results", _i8),
        ("expired", _i8),
        ("evicted", _i8),
        ("refused", _i8),
        ("too_large", _i8),
        ("bytes", _i8),
        ("alike", _i8),
    ]
)
POOL = np.dtype([("rows", _i8), ("bytes", _i8), ("chains", _i8)])
STREAM = np.dtype([("soonest", _i8), ("retention", _i8), ("first", _i8), ("last", _i8), ("arrived", _i8)])
ROW = np.dtype(
    [
        ("time", _i8),
        ("row", _i8),
        ("credit", _f8),
        ("stream", _i4),
        ("entry", _i4),
        ("before", _i4),
        ("after", _i4),
        ("older", _i4),
        ("newer", _i4),
    ]
)
"""A free row has no entry, and its `newer` is the next free row."""
ORDER = np.dtype([("standing", _f8), ("seq", _i8), ("child", _i4), ("next", _i4), ("prev", _i4)])
HEAP = np.dtype([("credit", _f8), ("seq", _i8), ("item", _i4)])
CHAIN = np.dtype([("gained", _f8), ("first", _i4), ("last", _i4), ("rows", _i4), ("least", _i4)])
ENTRY = np.dtype([("key", _u8), ("rows", _i4)])


class State(NamedTuple):
    """The state of a buffer without that of its policy.

    `chain_list` has the records of `chains`, one after the other; the heap uses the number of a chain in it.

    The caller sets `sizes` and `probes` by row id: the bytes of a row, and whether it only probes, so that it does not
    match other rows that only probe. If they are empty, there is no limit in bytes, or there are no such rows.
    """

    settings: Records
    totals: Records
    pools: Records
    streams: Records
    rows: Records
    order: Records
    heap: Records
    heap_at: Links
    table: Links
    entries: Records
    chains: Records
    chain_list: Records
    sizes: Ints
    probes: Bytes


def power_of_two(least: int) -> int:
    """Return the smallest power of two that is at least the argument."""
    return 1 << max(0, int(least - 1).bit_length())


def allocate(capacity: int, streams: int, pools: int) -> State:
    chains = np.zeros((capacity, streams), CHAIN)
    state = State(
        settings=np.zeros(1, SETTINGS),
        totals=np.zeros(1, TOTALS),
        pools=np.zeros(pools, POOL),
        streams=np.zeros(streams, STREAM),
        rows=np.zeros(capacity, ROW),
        order=np.zeros(capacity, ORDER),
        heap=np.zeros((pools, capacity), HEAP),
        heap_at=np.full(capacity * streams, NONE, np.int32),
        table=np.full(power_of_two(2 * capacity), NONE, np.int32),
        entries=np.zeros(capacity, ENTRY),
        chains=chains,
        chain_list=chains.reshape(-1),
        sizes=np.zeros(0, np.int64),
        probes=np.zeros(0, np.int8),
    )
    state.totals["at_stream"] = state.totals["at_slot"] = NONE
    state.streams["first"] = state.streams["last"] = NONE
    state.chains["first"] = state.chains["last"] = NONE
    state.rows["entry"] = NONE
    # A free place has the number of the next free place.
    state.rows["newer"] = np.arange(1, capacity + 1)
    state.rows["newer"][-1] = NONE
    state.entries["rows"] = np.arange(1, capacity + 1)
    state.entries["rows"][-1] = NONE
    return state
