"""Find the pairs of a theta join: rows that a time window and a predicate join, with no key in common.

``ThetaPredicate`` runs one predicate in the cheapest of three ways, all with the answers of
``Predicate.mask``, which is also their reference implementation:

* *band*: some conjunct bounds a value of one side by the other's, as ``l.x BETWEEN r.y - 5 AND r.y + 5``,
  ``abs(l.x - r.x) <= 10``, ``l.price >= r.price`` or ``l.a = r.b``. The stored rows are sorted and most of them
  never read. Conjuncts that bound no value are tested on the pairs found.
* *compiled*: every pair in the window is tested, by a loop that is generated from the predicate.
* *mask*: ``Predicate.mask`` over the pairs: 15 to 50 million/s, a hundredth of the loop. It is left for
  decimals of more than 18 digits made of both sides' integers, and for batches in which integer arithmetic
  may overflow, where it decides whether that raises.

Precondition: both batches have the columns of the schemas that the predicate was compiled for.

>>> from braided.expressions.compile import compile_where
>>> left = pa.record_batch({"x": pa.array([1, 5, None, 9]), "s": ["a", "b", "c", "d"]})
>>> right = pa.record_batch({"x": pa.array([2, 8, 6]), "s": ["a", "e", "x"]})
>>> theta = ThetaPredicate.of(compile_where("abs(l.x - r.x) <= 1 AND l.s <> r.s", left.schema, right.schema))
>>> theta.kind
'band'
>>> first, past = np.zeros(4, np.int64), np.full(4, 3)
>>> [(i.tolist(), j.tolist()) for i, j in theta.pairs(0, left, right, first, past)]
[([1, 3], [2, 1])]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.expressions.compile import Predicate
from braided.expressions.evaluate import Block, Mask, Vector
from braided.expressions.order_keys import ordered, ranks
from braided.expressions.tree import Every
from braided.operators.join.theta.band import PIECE, STRIP, bounds_of, nested, piece_size, sampled_share, zoned
from braided.operators.join.theta.codegen import Lowered, Unlowered, lower
from braided.operators.join.theta.loop import loop_of

Index = npt.NDArray[np.int64]
Pairs = Iterator[tuple[Index, Index]]

# Below this number of pairs the nested loop is faster than sorting.
_SORTED_FROM = 1 << 20
# Above this share of pairs within all dimensions, testing the rest pair by pair costs more than the loop.
_LOOSE = 0.01


class _Rows(NamedTuple):
    """The rows of one side: a vector or a mask for every slot, and which rows may pair at all."""

    values: dict[str, Any]
    keep: Mask | None
    nullable: bool


@dataclass
class ThetaPredicate:
    """How the pairs of a theta join are found; ``kind`` is the fastest way that its predicate allows."""

    predicate: Predicate
    kind: str
    _lowered: dict[bool, Lowered] = field(default_factory=dict, repr=False, compare=False)
    _seen: tuple[Any, ...] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, predicate: Predicate, left: pa.Schema | None = None, right: pa.Schema | None = None) -> ThetaPredicate:
        """Choose the way; the schemas are those that the predicate was compiled for."""
        try:
            lowered = lower(predicate.root, False)
        except Unlowered:
            return cls(predicate, "mask")
        return cls(predicate, "band" if lowered.dimensions else "compiled")

    def __getstate__(self) -> dict[str, Any]:
        return {"predicate": self.predicate, "kind": self.kind, "_lowered": {}, "_seen": None}

    def pairs(self, side: int, probe: pa.RecordBatch, stored: pa.RecordBatch, first: Index, past: Index) -> Pairs:
        """Yield (probe rows, stored rows) of the pairs that satisfy the predicate, at most 65,536 at a time.

        ``side`` is 0 when the probe rows are the left side, 1 when they are the right. Probe row i may pair
        with the stored rows ``first[i] <= j < past[i]``. Pairs come in no particular order. Raises
        ``BraidedError``, perhaps after some pairs, where an integer overflow decides a pair.
        """
        some = past > first
        if not some.any():
            return
        start, stop = int(first[some].min()), int(past[some].max())
        stored, first, past = stored.slice(start, stop - start), first - start, past - start
        pairs = None if self.kind == "mask" else self._fast(side, probe, stored, first, past)
        if pairs is None:
            pairs = self._masked(side, probe, stored, first, past)
        for probes, rows in pairs:
            yield probes, rows + start

    def _masked(self, side: int, probe: pa.RecordBatch, stored: pa.RecordBatch, first: Index, past: Index) -> Pairs:
        counts = np.maximum(past - first, 0)
        ends = np.cumsum(counts)
        names = (self.predicate.left, self.predicate.right)
        batches = [probe.select(list(names[side])), stored.select(list(names[1 - side]))]
        for begin in range(0, int(ends[-1]), PIECE):
            ranks = np.arange(begin, min(begin + PIECE, int(ends[-1])))
            i = np.searchsorted(ends, ranks, side="right")
            j = ranks - (ends - counts)[i] + first[i]
            taken = [
                {name: batch.column(name).take(pa.array(index)) for name in batch.schema.names}
                for batch, index in zip(batches, (i, j), strict=True)
            ]
            mask = self.predicate.mask(taken[side], taken[1 - side])
            if mask.any():
                yield i[mask], j[mask]

    def _fast(
        self, side: int, probe: pa.RecordBatch, stored: pa.RecordBatch, first: Index, past: Index
    ) -> Pairs | None:
        """Return the pairs by one of the other two ways; None if arithmetic may overflow."""
        for nullable in (False, True):
            if nullable not in self._lowered:
                self._lowered[nullable] = lower(self.predicate.root, nullable)
            lowered = self._lowered[nullable]
            if lowered.never:
                return iter(())
            rows = self._probe_rows(lowered, "lr"[side], probe), _rows(lowered, "rl"[side], stored)
            if rows[0] is None or rows[1] is None:
                return None
            if nullable or not (rows[0].nullable or rows[1].nullable):
                return _paired(lowered, side, rows[0], rows[1], first, past)
        raise AssertionError(lowered)

    def _probe_rows(self, lowered: Lowered, side: str, probe: pa.RecordBatch) -> _Rows | None:
        """Read the probe rows once, however many stored runs they are probed against."""
        seen = self._seen
        if seen is None or seen[0] is not probe or seen[1] is not lowered or seen[2] != side:
            self._seen = seen = (probe, lowered, side, _rows(lowered, side, probe))
        rows: _Rows | None = seen[3]
        return rows


def _rows(lowered: Lowered, side: str, batch: pa.RecordBatch) -> _Rows | None:
    """Compute the parts that read one side only; None if one overflows."""
    columns = {name: batch.column(name) for name in lowered.columns[side]}
    block = Block({side: columns}, batch.num_rows)
    values: dict[str, Any] = {}
    keep: Mask | None = None
    with np.errstate(all="ignore"):
        if lowered.filters[side]:
            keep = block.true(Every(lowered.filters[side]))
        for owner, value in lowered.strict:
            valid = block.value(value).valid if owner == side else None
            if valid is not None:
                keep = valid if keep is None else keep & valid
        for name, slot in lowered.slots.items():
            if slot.side == side:
                truth = slot.form == "truth"
                values[name] = block.true(slot.source, slot.want) if truth else block.value(slot.source)
        nullable = any(owner == side and block.value(value).valid is not None for owner, value in lowered.lax)
    if block.overflowed:
        return None
    return _Rows(values, None if keep is None or keep.all() else keep, nullable)


def _paired(lowered: Lowered, side: int, probe: _Rows, stored: _Rows, first: Index, past: Index) -> Pairs | None:
    """Drop the rows that pair with nothing, turn the rest into numbers, and choose how to pair them."""
    own = None if probe.keep is None else np.flatnonzero(probe.keep)
    if own is not None:
        first, past = first[own], past[own]
    other = None if stored.keep is None else np.flatnonzero(stored.keep)
    if other is not None:
        before = np.searchsorted(other, np.arange(int(past.max(initial=0)) + 1))
        some = past > first
        first, past = before[np.where(some, first, 0)], before[np.where(some, past, 0)]
    values = {name: _take_rows(value, own) for name, value in probe.values.items()}
    values |= {name: _take_rows(value, other) for name, value in stored.values.items()}
    slots = _numbers(lowered, values)
    if lowered.checks and not lowered.fits(
        lambda name: (int(slots[name].min(initial=0)), int(slots[name].max(initial=0)))
    ):
        return None
    return _positions(_search(lowered, side, slots, first, past), own, other)


def _positions(pairs: Pairs, own: Index | None, other: Index | None) -> Pairs:
    for probes, rows in pairs:
        yield (probes if own is None else own[probes]), (rows if other is None else other[rows])


def _search(lowered: Lowered, side: int, slots: dict[str, Any], first: Index, past: Index) -> Pairs:
    if not len(first) or not (past > first).any():
        return
    if not lowered.dimensions:
        yield from _looped(lowered.text, side, slots, first, past)
        return
    bounds = [bounds_of(dimension, side, slots) for dimension in lowered.dimensions]
    keys = np.stack([slots[dimension.keys[1 - side]] for dimension in lowered.dimensions])
    low, high = (np.stack(ends) for ends in zip(*bounds, strict=True))
    tested = int(np.maximum(past - first, 0).sum())
    if tested < _SORTED_FROM:
        pairs = nested(keys, low, high, first, past)
    elif lowered.rest and sampled_share(keys, low, high) > _LOOSE:
        yield from _looped(lowered.text, side, slots, first, past)
        return
    else:
        if first.max() > 0 or past.min() < keys.shape[1]:
            keys = np.concatenate((keys, np.arange(keys.shape[1])[None]))
            low, high = np.concatenate((low, first[None])), np.concatenate((high, past[None] - 1))
        pairs = zoned(keys, low, high)
    if not lowered.rest:
        yield from pairs
        return
    rest = _expression(lowered.rest)
    for probes, matches in pairs:
        index = {"lr"[side]: probes, "rl"[side]: matches}
        taken = {name: slots[name][index[name[0]]] for name in rest.co_names if name in slots}
        with np.errstate(all="ignore"):
            mask = eval(rest, {"np": np}, taken)
        if mask.any():
            yield probes[mask], matches[mask]


def _looped(text: str, side: int, slots: dict[str, Any], first: Index, past: Index) -> Pairs:
    used = [name for name in slots if name in _expression(text).co_names]
    own = tuple(name for name in used if name[0] == "lr"[side])
    other = tuple(name for name in used if name[0] != "lr"[side])
    loop = loop_of(text, own, other, STRIP)
    room = piece_size(first, past)
    probes, stored = np.empty(room + 1, np.int64), np.empty(room + 1, np.int64)
    i, j = 0, -1
    inputs, tested = [slots[name] for name in own], [slots[name] for name in other]
    while i < len(first):
        i, j, count = loop(*inputs, first, past, i, j, room, probes, stored, *tested)
        if count:
            yield probes[:count].copy(), stored[:count].copy()


@lru_cache(maxsize=64)
def _expression(text: str) -> CodeType:
    return compile(text or "True", "<theta predicate>", "eval")


def _take_rows(value: Any, index: Index | None) -> Any:
    if index is None:
        return value
    if not isinstance(value, Vector):
        return value[index]
    rows = value.values
    taken = rows.take(pa.array(index)) if isinstance(rows, pa.Array) else rows[index]
    return Vector(taken, None if value.valid is None else value.valid[index])


def _numbers(lowered: Lowered, values: dict[str, Any]) -> dict[str, Any]:
    """Return the array of every slot: contiguous and writable, so that each loop is compiled for one type only."""
    arrays: dict[str, Any] = {}
    partners = {(slot.source, slot.partner): name for name, slot in lowered.slots.items() if slot.form == "rank"}
    for name, slot in lowered.slots.items():
        value = values[name]
        if slot.form == "rank":
            if name not in arrays:
                other = partners[slot.partner, slot.source]
                arrays[name], arrays[other] = ranks(value.values, values[other].values)
            continue
        if slot.form == "truth":
            array = value
        elif slot.form == "valid":
            array = np.ones(len(value.values), np.bool_) if value.valid is None else value.valid
        else:
            array = value.values if value.valid is None else np.where(value.valid, value.values, 0)
            if array.dtype.kind != "f":
                array = array.astype(np.int64)
            elif slot.form == "order":
                array = ordered(array)
        arrays[name] = np.require(array, requirements=["C", "W"])
    return arrays
