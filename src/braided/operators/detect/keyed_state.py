"""The state of detectors by key: one row per key, in blocks by hash. A batch reads only the blocks that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from braided.operators.detect.event_batches import Grouped, Int64s, Keys, group, later, split, times_of
from braided.operators.match.open_rows import OpenRows, StoredRows
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json
from braided.time.clocks import MAX_TIME, MIN_TIME, clamp

_NUMBER, _LAST = "__braided_number", "__braided_last"

Call = Callable[[Grouped, pa.RecordBatch, Int64s], tuple[list[pa.RecordBatch], pa.RecordBatch]]
"""A call with the events of some keys, their stored states, and the key of each state.

It returns what is published, and a new state for each key that has one: the key's number in the first column.
"""


class KeyedState:
    """The states of a detector's keys between load and save of one batch.

    key, fields : the columns of a key, and of a state. forget : after this long without an event a state is removed.

    ```
     events of a key   * * *    *  |------ more than `forget` ------|  *  *
                       one call, with the stored state                 a call of its own, with none
    ```

    This holds wherever batches are cut: the events of a key within a batch are cut there too.
    """

    def __init__(
        self,
        blocks: Blocks,
        keys: Keys,
        key: pa.Schema,
        fields: pa.Schema,
        forget: int | None,
        state: list[Json] | None,
    ) -> None:
        self._keys, self._fields, self._forget = keys, fields, forget
        self._schema = pa.schema([*key, pa.field(_LAST, pa.int64()), *fields])
        self._kept = OpenRows(blocks, self._schema, state)

    def to_json(self) -> list[Json]:
        return self._kept.to_json()

    def levels(self) -> dict[str, int]:
        levels = self._kept.levels()
        levels.pop("open_matches")
        return levels

    def update(self, events: Grouped, until: int, call: Call) -> Iterator[pa.RecordBatch]:
        """Yield what a call publishes for keys with events, as many keys at a time as fit in memory.

        All events before `until` have arrived, in this batch or earlier.
        """
        expired = MIN_TIME if self._forget is None else clamp(until - self._forget)
        for leaves, own in self._kept.touched(events.hashes, expired):
            part = events
            if own is not None:
                part = events.slice(int(own[0]), int(own[-1]) + 1) if len(own) else events.slice(0, 0)
            stored = [leaf_rows.rows for leaf in leaves for leaf_rows in self._kept.read(leaf)]
            rows = pa.concat_batches(stored) if stored else pa.RecordBatch.from_pylist([], schema=self._schema)
            of, last = self._numbers(rows, part), rows.column(_LAST).to_numpy()
            stays = rows.take(pa.array(np.flatnonzero((of < 0) & (last >= expired))))
            if not part.size:
                self._replace(leaves, stays, part, self._none())
                continue
            parts, first = split(part, self._keys.time, self._forget)
            known = np.flatnonzero(of >= 0)
            if self._forget is not None:
                begins = times_of(part.rows, self._keys.time)[part.bounds[:-1]]
                known = known[later(begins[of[known]], last[known]) <= self._forget]
            states = rows.select(self._fields.names).take(pa.array(known))
            published, new_states = call(parts, states, first[of[known]])
            yield from published
            newest = np.isin(new_states.column(0).to_numpy(), first[1:] - 1)
            self._replace(leaves, stays, parts, new_states.filter(pa.array(newest)))

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=pa.schema([pa.field(_NUMBER, pa.int32()), *self._fields]))

    def _numbers(self, rows: pa.RecordBatch, part: Grouped) -> Int64s:
        """Return, for each stored state, the number of its key among those with events, or -1."""
        names = list(self._keys.key)
        stored = rows.num_rows
        if not part.size:
            return np.full(stored, -1, np.int64)
        if not names:
            return np.zeros(stored, np.int64)
        first = part.rows.select(names).take(pa.array(part.bounds[:-1]))
        number = pa.array(np.arange(stored + part.size))
        both = pa.concat_batches([rows.select(names), first])
        groups = group(both.append_column(_NUMBER, number), self._keys)
        at = groups.rows.column(_NUMBER).to_numpy()
        # The state of a key, if there is one, comes before its number, since a group keeps its order.
        number_of_group = at[groups.bounds[1:] - 1] - stored
        numbers = np.empty(len(at), np.int64)
        numbers[at] = np.repeat(number_of_group, np.diff(groups.bounds))
        return np.maximum(numbers[:stored], -1)

    def _replace(self, leaves: Any, stays: pa.RecordBatch, part: Grouped, new_states: pa.RecordBatch) -> None:
        """Write the states of keys without events, and the new ones of the others."""
        of = new_states.column(0).to_numpy()
        ends = part.bounds[1:][of] - 1
        keys = [part.rows.column(name).take(pa.array(ends)) for name in self._keys.key]
        last = times_of(part.rows, self._keys.time)[ends]
        new = pa.RecordBatch.from_arrays([*keys, pa.array(last), *new_states.columns[1:]], schema=self._schema)
        rows = pa.concat_batches([stays, new])
        hashes = np.concatenate([self._keys.hashes(stays), part.hashes[of]])
        order = np.argsort(hashes, kind="stable")
        rows, hashes = rows.take(pa.array(order)), hashes[order]
        times = rows.column(_LAST).to_numpy() if self._forget is not None else np.full(len(order), MAX_TIME, np.int64)
        stored = StoredRows(rows, hashes, np.zeros(len(order), np.uint8))
        self._kept.replace(leaves, stored, np.ones(len(order), np.bool_), times)
