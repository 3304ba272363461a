"""PROB: the row whose key has occurred least in the other streams is evicted (section 3.1, after Das et al., 2003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from braided.compiled import in_place
from braided.errors import OptionError
from braided.eviction.key_index import find_entry
from braided.eviction.policies.counting_policy import (
    CountingPolicy,
    KeyCounts,
    new_counts,
    newcomer,
    read_again,
    stored,
)
from braided.eviction.policies.counts import SKETCH_ROWS, count_in_sketch, count_in_table, count_of_sketch
from braided.eviction.policies.hooks import GroupHooks, Hooks
from braided.eviction.policies.policy import Shape, Stored, check_choice, check_count
from braided.eviction.records import Bytes, Ints, Reals, State, UInt64s
from braided.eviction.sections import Facts, Reader, Writer, require


class Sketched(NamedTuple):
    """Counts of keys in a sketch (stream, row, column); in a group, the two sides of each join count as streams."""

    sketch: Ints


@in_place
def _arrived(state: State, learned: KeyCounts, key: np.uint64, time: int, stream: int, entry: int) -> None:
    read_again(state, learned, key, entry, count_in_table(learned.head, learned.keys, learned.counts, key, stream))


@in_place
def _others(sketch: Ints, key: np.uint64, stream: int) -> float:
    """Return how often the key has occurred in the other streams."""
    total = 0
    for s in range(len(sketch)):
        if s != stream:
            total += count_of_sketch(sketch, key, s)
    return float(total)


@in_place
def _sketch_arrived(state: State, learned: Sketched, key: np.uint64, time: int, stream: int, entry: int) -> None:
    count_in_sketch(learned.sketch, key, stream)
    if entry >= 0:
        for q in range(state.chains.shape[1]):
            state.chains[entry, q].gained = _others(learned.sketch, key, q)


@in_place
def _sketch_newcomer(
    state: State, learned: Sketched, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    seen = _others(learned.sketch, key, stream)
    return seen, seen


@in_place
def _sketch_stored(state: State, learned: Sketched, slot: int, key: np.uint64) -> None:
    entry = state.rows[slot].entry
    for q in range(len(state.streams)):
        state.chains[entry, q].gained = _others(learned.sketch, key, q)


@in_place
def _group_arrived(state: Any, learned: Sketched, keys: UInt64s, roles: Bytes) -> None:
    """Count a row in each join, and raise the credits of the rows of its keys on the other sides."""
    for j in range(len(roles)):
        if roles[j] >= 0:
            role = int(roles[j])
            count_in_sketch(learned.sketch, keys[j], 2 * j + role)
            entry = find_entry(state.table[j], state.entries[j], keys[j])
            if entry >= 0:
                slot = int(state.join_chains[j][entry, 1 - role].first)
                while slot >= 0:
                    state.rows[slot].credit += 1.0
                    slot = int(state.link[j][slot].after)


@in_place
def _group_newcomer(
    state: Any, learned: Sketched, keys: UInt64s, roles: Bytes, content: np.uint64
) -> tuple[float, float]:
    seen = 0
    for j in range(len(roles)):
        if roles[j] >= 0:
            seen += count_of_sketch(learned.sketch, keys[j], 2 * j + 1 - int(roles[j]))
    return float(seen), float(seen)


def _group_width(capacity: int) -> int:
    return max(1024, 4 * capacity)


@dataclass(frozen=True, kw_only=True, repr=False)
class PROB(CountingPolicy):
    """Keeps the rows of frequent keys: a row's credit is the number of occurrences of its key in the other streams.

    A newcomer with less credit than every stored row is refused; among equal credits the oldest row is evicted. In a
    group of joins, a row's credit is the sum over its joins, and occurrences are always counted by a sketch.

    counts : ``"exact"`` counts every key, up to `count_keys` different keys; after that, halving removes rare and old
        occurrences (see `braided.eviction.policies.counts`). ``"sketch"`` is a count-min sketch of four rows, which
        never removes occurrences and may count too high.
    count_keys : how many different keys are counted exactly; default: four times the capacity, at least 1,024.
    width : the columns of the sketch; default 4,096: the probability of an error above 0.07% of the rows is below 2%.

    Cost: 16 bytes and 16 per stream for each of `count_keys`, or 32 bytes per stream and column. When saved, 8 to 9
    bytes per counted key, and no credits of rows.

    >>> PROB(counts="sketch")
    PROB(counts='sketch')
    >>> PROB(count_keys=0)
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: count_keys=0: write a number of keys above 0
    """

    counts: Literal["exact", "sketch"] = "exact"
    count_keys: int | None = None
    width: int = 4096

    name = "prob"
    row_bytes = 490
    stream_bytes = 130
    in_groups = "'prob'"

    def __post_init__(self) -> None:
        check_choice("counts", self.counts, {"exact": 0, "sketch": 1})
        check_count("count_keys", self.count_keys, "a number of keys above 0")
        if not 1 <= self.width <= 1 << 24:
            raise OptionError(f"width={self.width!r}: not a number of columns; write 1 to 2**24")

    @property
    def hooks(self) -> Hooks:
        """The hooks, which count arrivals, and set the credits of rows."""
        if self.counts == "sketch":
            return Hooks(arrived=_sketch_arrived, newcomer=_sketch_newcomer, stored=_sketch_stored)
        return Hooks(arrived=_arrived, newcomer=newcomer, stored=stored)

    @property
    def group_hooks(self) -> GroupHooks:
        """The hooks for a group of joins, which count for each join."""
        return GroupHooks(arrived=_group_arrived, newcomer=_group_newcomer)

    def learned(self, shape: Shape) -> Any:
        """Return empty counts, in a table or a sketch."""
        if shape.joins:
            return Sketched(np.zeros((2 * shape.joins, SKETCH_ROWS, _group_width(shape.capacity)), np.int64))
        if self.counts == "sketch":
            return Sketched(np.zeros((shape.streams, SKETCH_ROWS, self.width), np.int64))
        return new_counts(shape.streams, self.count_keys or max(1024, 4 * shape.capacity))

    def save(self, learned: Any, write: Writer) -> Facts:
        if not isinstance(learned, Sketched):
            return super().save(learned, write)
        write.ints(learned.sketch.ravel())
        return {}

    def load(self, learned: Any, facts: Facts, read: Reader) -> Any:
        if not isinstance(learned, Sketched):
            return super().load(learned, facts, read)
        values = read.ints(np.int64)
        require(values.size == learned.sketch.size, "its counts")
        learned.sketch[:] = values.reshape(learned.sketch.shape)
        return learned

    def save_credits(self, learned: Any, rows: Stored, credits: Reals, write: Writer) -> None:
        """Write credits that the counts do not give: a sketch may have counted other keys since they were set."""
        if isinstance(learned, Sketched):
            write.reals(credits)
        else:
            super().save_credits(learned, rows, credits, write)

    def load_credits(self, learned: Any, rows: Stored, read: Reader) -> Reals:
        """Return the written credits, or those from the counts."""
        if isinstance(learned, Sketched):
            return read.reals()
        return super().load_credits(learned, rows, read)

    def group_bytes(self, capacity: int, joins: int) -> int:
        return 2 * joins * SKETCH_ROWS * 8 * _group_width(capacity)
