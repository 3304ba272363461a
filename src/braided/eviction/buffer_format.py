"""A buffer as bytes: a JSON header, the state of the policy, and the stored rows, oldest first.

Only data that cannot be computed again are saved. Heap, index and chains are built again. Rows of equal credit are
ordered by age alone, so a restored buffer continues exactly as before (`braided.eviction.sections`).

A row takes 12 to 22 bytes: key 8, time 1 to 3, id 2 to 4, credit 0 to 8, stream 1 bit. If the rows themselves are saved
elsewhere (`rows_elsewhere`), key, time and id are left out, and a row takes only its credit and a bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from braided.errors import StateError
from braided.eviction.policies.policy import Policy, Stored
from braided.eviction.records import NONE, Bytes, Ints, State, UInt64s
from braided.eviction.sections import Facts, Reader, Writer, require, seal, unseal
from braided.eviction.stored_rows import fill_rows, row_keys, slots_by_age

_MAGIC = b"BRDB"
_VERSION = 4
_KEPT_TOTALS = ("events", "phase", "pairs", "results", "expired", "evicted", "refused", "too_large", "at_stream")
Known = tuple[UInt64s, Ints, Ints]


def save(state: State, policy: Policy, learned: Any, options: Facts, *, rows_elsewhere: bool = False) -> bytes:
    """Return the state as bytes; `options` are the options of the buffer, as JSON."""
    slots = slots_by_age(state)
    rows = state.rows[slots]
    cursor = NONE
    if state.totals["at_stream"][0] != NONE:  # stopped among the matches of an event
        cursor = int(np.flatnonzero(slots == state.totals["at_slot"][0])[0])
    write = Writer()
    write.streams(rows["stream"], len(state.streams))
    stored = Stored(row_keys(state, slots), rows["time"].copy(), rows["stream"].astype(np.int8))
    if not rows_elsewhere:
        write.ints(stored.keys)
        write.rising(stored.times)
        write.ints(rows["row"])
    facts = policy.save(learned, write)
    credit = rows["credit"] + state.chains["gained"][rows["entry"], rows["stream"]]
    policy.save_credits(learned, stored, credit, write)
    header = {
        "version": _VERSION,
        "options": options,
        "policy": policy.options,
        "learned": facts,
        "room": int(state.settings["room"][0]),
        "totals": {name: int(state.totals[name][0]) for name in _KEPT_TOTALS},
        "cursor": cursor,
        "arrived": state.streams["arrived"].tolist(),
        "rows": len(rows),
        "rows_elsewhere": rows_elsewhere,
        "sections": write.facts,
    }
    return seal(_MAGIC, header, write.parts)


def read_header(data: bytes) -> tuple[Facts, int]:
    """Return the header and the start of the sections; raise if the bytes are damaged."""
    header, at = unseal(_MAGIC, data, "buffer")
    version = header.get("version")
    if version != _VERSION:
        raise StateError(f"buffer: saved in version {version!r}, but this version of Braided reads {_VERSION}")
    return header, at


def read_streams(header: Facts, data: bytes, at: int) -> Bytes:
    """Return the stream of each row, oldest first."""
    return Reader(header["sections"], data, at).streams(header["rows"], len(header["arrived"]))


def load(
    state: State, policy: Policy, learned: Any, header: Facts, data: bytes, at: int, known: Known | None = None
) -> Any:
    """Fill an empty state from a header and the sections that start at `at`; return the state of the policy.

    known : (keys, times, ids) of the rows, oldest first, if they were saved elsewhere.
    """
    try:
        if header["policy"] != policy.options:
            raise StateError(f"policy: the buffer was saved with {header['policy']}; use the same policy")
        return _load(state, policy, learned, header, Reader(header["sections"], data, at), known)
    except StateError:
        raise
    except (KeyError, TypeError, IndexError, OverflowError, ValueError, StopIteration) as error:
        raise StateError("buffer: the saved header is damaged") from error


def _load(state: State, policy: Policy, learned: Any, header: Facts, read: Reader, known: Known | None) -> Any:
    n_streams, n = len(state.streams), int(header["rows"])
    streams = read.streams(n, n_streams)
    if known is None:
        require(not header["rows_elsewhere"], "its rows were saved elsewhere")
        known = read.ints(np.uint64), read.rising(np.int64), read.ints(np.int64)
    keys, times, ids = known
    require(n <= len(state.rows) and {len(a) for a in (keys, times, streams, ids)} == {n}, "its rows")
    require(n == 0 or bool(streams.min() >= 0 and streams.max() < n_streams), "a row of no stream")
    learned = policy.load(learned, header["learned"], read)
    credits = policy.load_credits(learned, Stored(keys, times, streams), read)
    read.end()
    require(len(credits) == n, "its rows")
    require(bool((times[1:] >= times[:-1]).all() and np.isfinite(credits).all()), "rows out of order")
    require(len(header["arrived"]) == n_streams, "its streams")
    for name in _KEPT_TOTALS:
        state.totals[name] = int(header["totals"][name])
    require(0 <= state.totals["phase"][0] <= 3 and NONE <= state.totals["at_stream"][0] < n_streams, "its place")
    state.streams["arrived"] = header["arrived"]
    state.settings["room"] = int(header["room"])
    require(1 <= state.settings["room"][0] <= len(state.rows), "its room")
    fill_rows(state, keys, times, streams, ids, credits)
    cursor = int(header["cursor"])
    require(NONE <= cursor < n, "its place")
    # Slots were filled in order, so the n-th row is in slot n.
    state.totals["at_slot"] = cursor
    return learned
