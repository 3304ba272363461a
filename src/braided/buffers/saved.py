"""A buffer as bytes: a JSON header, then the stored rows, oldest first, and what the policy has learned.

Only what cannot be computed again is saved. Heap, index and chains are built anew, and since equal credits are told
apart by age alone, a buffer that was saved goes on as if it had not been::

    "BRDB" | crc32 of the rest | length of header | header | sections of packed numbers (`braided.buffers.packed`)

A row takes 12 to 22 bytes: key 8, time 1 to 3, id 2 to 4, credit 0 to 8, stream 1 bit. Whoever saves the rows
themselves leaves out key, time and id (`rows_elsewhere`): then it is the credit and a bit. PROB's and RECENT's credits
follow from their counts and take nothing; a counted key takes 8 to 9 bytes for PROB, and 4 to 8 for RECENT.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np

from braided.buffers.packed import (
    pack,
    pack_reals,
    pack_rising,
    pack_sparse,
    unpack,
    unpack_reals,
    unpack_rising,
    unpack_sparse,
)
from braided.buffers.policies.counts import place_of
from braided.buffers.policies.fading import worth_of_rows
from braided.buffers.policies.policy import Plan
from braided.buffers.records import AGE, GAIN_RANK, NONE, PROB, Bytes, Ints, Links, Reals, Records, State, Words
from braided.buffers.rows import insert_row
from braided.compiled import compiled
from braided.errors import BraidedError

_MAGIC = b"BRDB"
_VERSION = 3
_PREFIX = struct.Struct("<4sIQ")
_KEPT_TOTALS = (
    "events",
    "phase",
    "unit",
    "unit_seen",
    "pairs",
    "results",
    "expired",
    "evicted",
    "refused",
    "too_large",
    "at_stream",
)
_KEPT_POOL = ("decayed", "added", "initial")
_KEPT_STREAM = ("arrived", "keep")
Known = tuple[Words, Ints, Ints]


def save(state: State, plan: Plan, options: dict[str, Any], *, rows_elsewhere: bool = False) -> bytes:
    """Return the state as bytes; `options` are whatever the buffer needs to be made again, as JSON."""
    slots = slots_by_age(state)
    rows = state.rows[slots]
    used = np.zeros(len(state.counts), np.bool_)
    for s in range(state.counts.shape[1]):  # 5 times as fast as any(axis=1)
        used |= state.counts[:, s] != 0
    counted = np.flatnonzero(used)
    counted = counted[np.argsort(state.count_key[counted])]
    cursor = NONE
    if state.totals["at_stream"][0] != NONE:  # stopped among the matches of an event
        cursor = int(np.flatnonzero(slots == state.totals["at_slot"][0])[0])
    known = (
        [] if rows_elsewhere else [pack(rows["key"].copy()), pack_rising(rows["time"].copy()), pack(rows["row"].copy())]
    )
    planes = [np.packbits(rows["stream"] >> bit & 1) for bit in range(_planes(len(state.streams)))]
    credit = rows["credit"] + state.chains["gained"][rows["entry"], rows["stream"]]
    sections = [
        *known,
        *(pack(plane) for plane in planes),
        *_pack_credits(state, plan, rows, credit),
        pack_rising(state.count_key[counted]),
        *(pack_sparse(state.counts[counted, s]) for s in range(state.counts.shape[1])),
        pack(state.sketch.ravel()),
        pack_reals(state.age_matches.ravel()),
        pack_reals(state.age_exits.ravel()),
        *(pack_reals(state.snapshot[p, :n]) for p, n in enumerate(state.pools["snapshot"] if _ranks(plan) else ())),
    ]
    header = {
        "version": _VERSION,
        "options": options,
        "plan": asdict(plan),
        "percentile": float(state.settings["percentile"][0]),
        "room": int(state.settings["room"][0]),
        "totals": {name: int(state.totals[name][0]) for name in _KEPT_TOTALS},
        "cursor": cursor,
        "pools": [[float(pool[name]) for name in _KEPT_POOL] for pool in state.pools],
        "streams": [[int(stream[name]) for name in _KEPT_STREAM] for stream in state.streams],
        "snapshots": [int(n) for n in state.pools["snapshot"]],
        "rows": len(rows),
        "rows_elsewhere": rows_elsewhere,
        "sections": [facts for facts, _ in sections],
    }
    text = json.dumps(header, sort_keys=True).encode()
    body = text + b"".join(data for _, data in sections)
    return _PREFIX.pack(_MAGIC, zlib.crc32(body), len(text)) + body


def _planes(streams: int) -> int:
    return (streams - 1).bit_length()


def _ranks(plan: Plan) -> bool:
    return plan.gain == GAIN_RANK


def _follows(plan: Plan) -> bool:
    """Whether credits follow from counts; a sketch counts other keys too, after credits were read from it."""
    return plan.code == PROB and not plan.sketch_width


def _from_time(plan: Plan) -> bool:
    return plan.code == AGE and not plan.hinted


def _pack_credits(state: State, plan: Plan, rows: Records, credit: Reals) -> list[tuple[list[int], bytes]]:
    """Return the credits, or those that are not what counts say: of keys taken for another that came meanwhile."""
    if not _follows(plan):
        return [pack_reals(credit - rows["time"] if _from_time(plan) else credit)]
    other = np.flatnonzero(credit != worth_now(state, rows["key"].copy(), rows["stream"].astype(np.int8)))
    return [pack_rising(other), pack_reals(credit[other])]


def worth_now(state: State, keys: Words, streams: Bytes) -> Reals:
    """Return what PROB or RECENT would give rows for credit."""
    span, only_long = int(state.settings["span"][0]), int(state.settings["only_long"][0])
    unit = int(state.totals["unit"][0])
    return worth_of_rows(state.count_key, state.counts, state.sketch, span, only_long, unit, keys, streams)


def slots_by_age(state: State) -> Ints:
    """Return the slots of the stored rows, oldest first."""
    parts = [state.heap[p, : pool["rows"]]["slot"] for p, pool in enumerate(state.pools)]
    slots = np.concatenate(parts)
    return slots[np.argsort(state.rows["seq"][slots])]


def read_header(data: bytes) -> tuple[dict[str, Any], int]:
    """Return the header and where the sections start, or say what is wrong."""
    if len(data) < _PREFIX.size or data[:4] != _MAGIC:
        raise BraidedError("buffer: these bytes are not a saved buffer")
    _, crc, length = _PREFIX.unpack_from(data)
    if zlib.crc32(data[_PREFIX.size :]) != crc:
        raise BraidedError("buffer: the saved bytes are damaged (their checksum differs)")
    try:
        header = json.loads(data[_PREFIX.size : _PREFIX.size + length])
        version = header["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise BraidedError("buffer: the saved header is damaged") from error
    if version != _VERSION:
        raise BraidedError(f"buffer: saved as version {version!r}; this version of Braided reads {_VERSION}")
    return header, _PREFIX.size + length


def load(state: State, plan: Plan, header: dict[str, Any], data: bytes, at: int, known: Known | None = None) -> None:
    """Fill an empty state from a header and the sections that start at `at`.

    known : (keys, times, ids) of the rows, oldest first, where they were saved elsewhere.
    """
    try:
        if header["plan"] != json.loads(json.dumps(asdict(plan))):
            raise BraidedError(f"policy: the buffer was saved with another one, {header['plan']}")
        _load(state, plan, header, data, at, known)
    except BraidedError:
        raise
    except (KeyError, TypeError, IndexError, OverflowError, ValueError, StopIteration) as error:
        raise BraidedError("buffer: the saved header is damaged") from error


class _Reader:
    """Reads sections one after the other."""

    def __init__(self, sections: list[list[int]], data: bytes, at: int) -> None:
        self._sections, self._data, self.at = iter(sections), data, at

    def ints(self, kind: Any) -> Any:
        values, self.at = unpack(next(self._sections), self._data, self.at, kind)
        return values

    def rising(self, kind: Any) -> Any:
        values, self.at = unpack_rising(next(self._sections), self._data, self.at, kind)
        return values

    def sparse(self) -> Ints:
        values, self.at = unpack_sparse(next(self._sections), self._data, self.at)
        return values

    def reals(self) -> Reals:
        values, self.at = unpack_reals(next(self._sections), self._data, self.at)
        return values

    def streams(self, n: int, streams: int) -> Bytes:
        planes = [np.unpackbits(self.ints(np.uint8), count=n) << bit for bit in range(_planes(streams))]
        out: Bytes = np.sum(planes, axis=0).astype(np.int8)
        return out


def read_streams(header: dict[str, Any], data: bytes, at: int) -> Bytes:
    """Return the stream of each row, oldest first, of a buffer whose rows were saved elsewhere."""
    return _Reader(header["sections"], data, at).streams(header["rows"], len(header["streams"]))


def _load(state: State, plan: Plan, header: dict[str, Any], data: bytes, at: int, known: Known | None) -> None:
    n_streams, n = len(state.streams), int(header["rows"])
    read = _Reader(header["sections"], data, at)
    if known is None:
        _require(not header["rows_elsewhere"], "its rows were saved elsewhere")
        key, time, row = read.ints(np.uint64), read.rising(np.int64), read.ints(np.int64)
    else:
        key, time, row = known
    stream = read.streams(n, n_streams)
    other = read.rising(np.int64) if _follows(plan) else np.zeros(0, np.int64)
    others = read.reals()
    credit = np.zeros(n) if _follows(plan) else others + (time if _from_time(plan) else 0)
    count_key = read.rising(np.uint64)
    counts = [read.sparse() for _ in range(state.counts.shape[1])]
    sketch, matches, exits = read.ints(np.int64), read.reals(), read.reals()
    snapshots = [read.reals() for _ in (state.pools if _ranks(plan) else ())]
    _require(read.at == len(data), "bytes follow its end")
    _require(n <= len(state.rows) and {len(a) for a in (key, time, stream, row, credit)} == {n}, "its rows")
    _require(n == 0 or bool(stream.min() >= 0 and stream.max() < n_streams), "a row of no stream")
    _require(bool((time[1:] >= time[:-1]).all() and np.isfinite(credit).all()), "rows out of order")
    _require({len(a) for a in counts} == {len(count_key)} and 2 * len(count_key) <= len(state.count_key), "its counts")
    _require(sketch.size == state.sketch.size and matches.size == exits.size == state.age_matches.size, "its counts")
    _require(len(header["pools"]) == len(state.pools) and len(header["streams"]) == n_streams, "its streams")
    for name in _KEPT_TOTALS:
        state.totals[name] = int(header["totals"][name])
    _require(0 <= state.totals["phase"][0] <= 3 and NONE <= state.totals["at_stream"][0] < n_streams, "its place")
    for p, values in enumerate(header["pools"]):
        for name, value in zip(_KEPT_POOL, values, strict=True):
            state.pools[name][p] = float(value)
    for s, values in enumerate(header["streams"]):
        for name, value in zip(_KEPT_STREAM, values, strict=True):
            state.streams[name][s] = int(value)
    state.settings["percentile"] = float(header["percentile"])
    state.settings["room"] = int(header["room"])
    _require(1 <= state.settings["room"][0] <= len(state.rows), "its room")
    state.pools["snapshot"] = header["snapshots"]
    for p, values in enumerate(snapshots):
        _require(len(values) == state.pools["snapshot"][p] <= state.snapshot.shape[1], "its snapshot")
        state.snapshot[p, : len(values)] = values
    state.sketch[:] = sketch.reshape(state.sketch.shape)
    state.age_matches[:] = matches.reshape(state.age_matches.shape)
    state.age_exits[:] = exits.reshape(state.age_exits.shape)
    _restore_counts(state.count_key, state.counts, count_key, np.stack(counts, axis=1))
    state.totals["counted_keys"] = len(count_key)
    if _follows(plan):
        credit = worth_now(state, key, stream)
        credit[other] = others
    fill(state, plan, key, time, stream, row, credit)
    cursor = int(header["cursor"])
    _require(NONE <= cursor < n, "its place")
    # Slots were handed out in order, so the n-th row is in slot n.
    state.totals["at_slot"] = cursor


def fill(state: State, plan: Plan, key: Words, time: Ints, stream: Bytes, row: Ints, credit: Reals) -> None:
    """Put rows, oldest first, with their credits into an empty state."""
    in_chain = plan.code == PROB
    _fill(*state[1:10], state.sizes, key, time, stream, row, credit, in_chain)


def _require(true: bool, what: str) -> None:
    if not true:
        raise BraidedError(f"buffer: the saved bytes are damaged: {what}")


@compiled
def _restore_counts(count_key: Words, counts: Ints, keys: Words, values: Ints) -> None:
    for i in range(len(keys)):
        at = place_of(count_key, counts, keys[i])
        count_key[at] = keys[i]
        for s in range(counts.shape[1]):
            counts[at, s] = values[i, s]


@compiled
def _fill(
    totals: Records,
    pools: Records,
    streams: Records,
    rows: Records,
    heap: Records,
    heap_at: Links,
    table: Links,
    entries: Records,
    chains: Records,
    sizes: Ints,
    keys: Words,
    times: Ints,
    row_streams: Bytes,
    ids: Ints,
    credits: Reals,
    in_chain: bool,
) -> None:
    for i in range(len(keys)):
        s = int(row_streams[i])
        key, time, id_, credit = keys[i], times[i], ids[i], credits[i]
        slot = insert_row(
            totals, pools, streams, rows, heap, heap_at, table, entries, chains, sizes, key, time, s, id_, credit
        )
        if in_chain:
            rows[slot].credit = 0.0
            chains[rows[slot].entry, s].gained = credits[i]
