"""What detectors remember of their keys: one row a key, in blocks by hash, of which a batch reads those it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from braided.detection.events import Grouped, Int64s, Keys, group
from braided.matching.open_rows import Kept, OpenRows
from braided.operator.blocks import Blocks
from braided.operator.contract import Json
from braided.time.clocks import MAX_TIME, MIN_TIME

_NUMBER = "__braided_number"

Call = Callable[[Grouped, pa.RecordBatch, Int64s], tuple[list[pa.RecordBatch], pa.RecordBatch]]
"""What is done with the events of some keys, the states known of them, and which key each state is of.

It returns what is published, and a new state for each key that has one: the key's number in the first column.
"""


class KeyedState:
    """The states of a detector's keys between load and save of one batch.

    fields : the columns of a state, beside the key.
    """

    def __init__(self, blocks: Blocks, keys: Keys, key: pa.Schema, fields: pa.Schema, state: list[Json] | None) -> None:
        self._keys, self._fields = keys, fields
        self._schema = pa.schema([*key, *fields])
        self._kept = OpenRows(blocks, self._schema, state)

    def to_json(self) -> list[Json]:
        """Return the bookkeeping."""
        return self._kept.to_json()

    def levels(self) -> dict[str, int]:
        """Return how much there is."""
        levels = self._kept.levels()
        levels.pop("open_matches")
        return levels

    def update(self, events: Grouped, call: Call) -> Iterator[pa.RecordBatch]:
        """Yield what a call publishes for keys with events, as many keys at a time as fit in memory."""
        if not events.size:
            return
        for leaves, own in self._kept.touched(events.hashes, MIN_TIME):
            part = events if own is None else events.slice(int(own[0]), int(own[-1]) + 1)
            stored = [kept.rows for leaf in leaves for kept in self._kept.read(leaf)]
            rows = pa.concat_batches(stored) if stored else pa.RecordBatch.from_pylist([], schema=self._schema)
            of = self._numbers(rows, part)
            known = np.flatnonzero(of >= 0)
            states = rows.select(self._fields.names).take(pa.array(known))
            published, made = call(part, states, of[known])
            yield from published
            self._replace(leaves, rows.take(pa.array(np.flatnonzero(of < 0))), part, made)

    def _numbers(self, rows: pa.RecordBatch, part: Grouped) -> Int64s:
        """Return, for each stored state, the number of its key among those with events, or -1."""
        names = list(self._keys.key)
        stored = rows.num_rows
        if not names:
            return np.zeros(stored, np.int64)
        first = part.rows.select(names).take(pa.array(part.bounds[:-1]))
        number = pa.array(np.arange(stored + part.size))
        both = pa.concat_batches([rows.select(names), first])
        found = group(both.append_column(_NUMBER, number), self._keys)
        at = found.rows.column(_NUMBER).to_numpy()
        # The state of a key, if there is one, comes before its number, since a group keeps its order.
        number_of_group = at[found.bounds[1:] - 1] - stored
        numbers = np.empty(len(at), np.int64)
        numbers[at] = np.repeat(number_of_group, np.diff(found.bounds))
        return np.maximum(numbers[:stored], -1)

    def _replace(self, leaves: Any, untouched: pa.RecordBatch, part: Grouped, made: pa.RecordBatch) -> None:
        """Write the states of keys without events, and the new ones of the others."""
        names = list(self._keys.key)
        of = made.column(0).to_numpy()
        keys = part.rows.select(names).take(pa.array(part.bounds[:-1][of]))
        new = pa.RecordBatch.from_arrays([*keys.columns, *made.columns[1:]], schema=self._schema)
        rows = pa.concat_batches([untouched, new])
        hashes = np.concatenate([self._keys.hashes(untouched), part.hashes[of]])
        order = np.argsort(hashes, kind="stable")
        kept = Kept(rows.take(pa.array(order)), hashes[order], np.zeros(len(order), np.uint8))
        # A state has no time of its own to run out.
        self._kept.replace(leaves, kept, np.ones(len(order), np.bool_), np.full(len(order), MAX_TIME, np.int64))
