"""PROB: the row whose key was seen least in the other streams gives way (section 3.1, after Das et al., 2003)."""

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
    """Counts of keys in a sketch (stream, row, column); in a group, each join has two streams, its sides."""

    sketch: Ints


@in_place
def _arrived(state: State, learned: KeyCounts, key: np.uint64, time: int, stream: int, entry: int) -> None:
    read_again(state, learned, key, entry, count_in_table(learned.head, learned.keys, learned.counts, key, stream))


@in_place
def _others(sketch: Ints, key: np.uint64, stream: int) -> float:
    """Return how often the key was seen in the other streams."""
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
    """Count a row in each join, and raise the credits of the rows that it makes more likely to match."""
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
    """Keep the rows of frequent keys: a row is worth the occurrences of its key in the other streams so far.

    A newcomer worth less than every stored row is refused; among equals the oldest gives way. In a group of joins a row
    is worth the occurrences of its keys in the other stream of each join, always counted by a sketch.

    counts : ``"exact"`` counts every key while no more than `count_keys` different ones were seen; after that
        rare and old occurrences are forgotten by halving (see `braided.eviction.policies.counts`). ``"sketch"`` is a
        count-min sketch of four rows, which never forgets and may count too high.
    count_keys : different keys counted exactly; default: four times the capacity, at least 1,024.
    width : columns of the sketch; default 4,096: an excess above 0.07% of the rows is rarer than 2%.

    Cost: 16 bytes and 16 per stream for each of `count_keys`, or 32 bytes per stream and column. Saved, a counted key
    has 8 to 9 bytes, and a row no credit.

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
            raise OptionError(f"width={self.width!r}: write a number of columns from 1 to 2**24")

    @property
    def hooks(self) -> Hooks:
        """Count what arrives, and give rows the worth of their keys."""
        if self.counts == "sketch":
            return Hooks(arrived=_sketch_arrived, newcomer=_sketch_newcomer, stored=_sketch_stored)
        return Hooks(arrived=_arrived, newcomer=newcomer, stored=stored)

    @property
    def group_hooks(self) -> GroupHooks:
        """In a group of joins, count for each of them."""
        return GroupHooks(arrived=_group_arrived, newcomer=_group_newcomer)

    def learned(self, shape: Shape) -> Any:
        """Return counts of nothing so far, in a table or a sketch."""
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
        """Write credits where they do not follow: a sketch counts other keys too after they were read from it."""
        if isinstance(learned, Sketched):
            write.reals(credits)
        else:
            super().save_credits(learned, rows, credits, write)

    def load_credits(self, learned: Any, rows: Stored, read: Reader) -> Reals:
        """Return the credits as written, or as counts say."""
        if isinstance(learned, Sketched):
            return read.reals()
        return super().load_credits(learned, rows, read)

    def group_bytes(self, capacity: int, joins: int) -> int:
        return 2 * joins * SKETCH_ROWS * 8 * _group_width(capacity)
