"""The conditions of a pattern, prepared for the search: those on a single row as columns, the others as programs.

A part of a condition that reads only one row of the match is computed once per row, as a column: it is a *slot*. The
search only compares and combines slots at different rows, counts and sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.errors import BraidedError
from braided.expressions import tree
from braided.expressions.evaluate import DTYPES, NARROW, Block, Vector, is_whole
from braided.expressions.order_keys import ordered, ranks
from braided.expressions.parse import Uncompilable
from braided.operators.match import condition_machine as m
from braided.operators.match.expressions import CLASS, NUMBERS, ROW, Register, columns_of, place_of
from braided.operators.match.navigation import Neighbours

Columns = Mapping[str, pa.Array]
"""Columns of rows by name."""

_FLOATS = ("float", "double")
_COMPARISONS = {"=": m.EQUAL, "<": m.LESS, "<=": m.LESS_EQUAL, "<=>": m.SAME}
_ARITHMETIC = {"+": m.ADD, "-": m.SUBTRACT, "*": m.MULTIPLY}
_NARROWER = {"tinyint": 56, "smallint": 48, "int": 32}
_KINDS = {"first": m.FIRST, "last": m.LAST, "min": m.MIN, "max": m.MAX, "count": m.COUNT}


@dataclass(frozen=True)
class Slot:
    """A column that the search reads: a truth, a number, whether there is a value, or the rank of a value.

    Strings and large decimals are ranked among their own values and those of a partner. `offset`: the slot is that of
    the row this many rows after; if negative, before.
    """

    form: str
    source: tree.Value | tree.Truth
    partner: tree.Value | None = None
    offset: int = 0


@dataclass
class Conditions:
    """The condition of each symbol, and the registers that these conditions read."""

    plain: dict[int, tree.Truth]
    """Conditions on a row, and rows before it, by symbol; a symbol without one matches every row."""
    registers: tuple[Register, ...] = ()
    slots: list[Slot] = field(default_factory=list)
    code: list[tuple[int, int, int]] = field(default_factory=list)
    code_starts: list[int] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    real: list[float] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    """The name of each symbol's condition in errors."""

    @property
    def columns(self) -> set[str]:
        return {column.name for slot in self.slots for column in columns_of((slot.source, slot.partner))}

    def machine(self) -> m.Machine:
        """Return registers and programs in the form that the kernels take."""
        kinds, sources = [], []
        for register in self.registers:
            if register.steps:
                sources.append(self.registers.index(replace(register, steps=register.steps - 1)))
                kinds.append(m.FIRST_ON if register.kind == "first" else m.LAST_BACK)
                continue
            if register.source is None:
                sources.append(-1)
            else:
                sources.append(self.slots.index(_source_slot(register)))
            if register.kind == "sum":
                assert register.source is not None
                kinds.append(m.SUM_REAL if register.source.type.name == "double" else m.SUM_WHOLE)
            else:
                kinds.append(_KINDS[register.kind])
        return m.Machine(
            np.array(kinds, np.int32),
            np.array([register.symbols for register in self.registers], np.int64),
            np.array(sources, np.int32),
            np.array(self.code, np.int32).reshape(-1, 3),
            np.array(self.code_starts or [0], np.int32),
            np.array(self.whole, np.int64),
            np.array(self.real, np.float64),
        )

    def registers_read(self) -> list[int] | None:
        """Return for each symbol the registers that its program reads, and those they come from, as bits.

        None if there are too many, or if a program reads the symbols of rows.
        """
        if len(self.registers) > 63:
            return None
        sources = self.machine().sources
        reads = []
        for first, stop in pairwise(self.code_starts):
            read: set[int] = set()
            for op, a, b in self.code[first:stop]:
                if op == m.SYMBOL:
                    return None
                if op <= m.REAL:
                    read |= {b} - {-1}
                elif op == m.COUNTED:
                    read.add(a)
                elif op in (m.SUMMED_WHOLE, m.SUMMED_REAL, m.MEAN):
                    read |= {a, b}
            pending = list(read)
            while pending:
                at = pending.pop()
                if self.registers[at].steps and int(sources[at]) not in read:
                    read.add(int(sources[at]))
                    pending.append(int(sources[at]))
            reads.append(sum(1 << at for at in read))
        return reads

    def bits(self, columns: Columns, neighbours: Neighbours, symbols: int) -> npt.NDArray[np.uint64]:
        """Return a bit for each symbol whose plain condition holds for a row."""
        count = len(neighbours.times)
        bits = np.zeros(count, np.uint64)
        always = 0
        sides = self._sides(columns, neighbours)
        block = Block(sides, count)
        for symbol in range(symbols):
            root = self.plain.get(symbol)
            if root is None:
                always |= 1 << symbol
                continue
            with np.errstate(all="ignore"):
                holds = block.true(root)
                if block.overflowed and (block.true(root, possibly=True) & ~holds).any():
                    raise overflow(self.texts[symbol])
            bits |= holds.astype(np.uint64) << np.uint64(symbol)
        return bits | np.uint64(always)

    def _sides(self, columns: Columns, neighbours: Neighbours) -> dict[str, dict[str, pa.Array[Any]]]:
        """Return the columns of rows, and of the rows before and after them: null where the key has no such row."""
        wanted: dict[str, set[str]] = {}
        for column in columns_of(tuple(self.plain.values())):
            wanted.setdefault(column.side, set()).add(column.name)
        sides = {}
        for side, names in wanted.items():
            offset = place_of(side)[1]
            if not offset:
                sides[side] = {name: columns[name] for name in names}
                continue
            places, missing = neighbours.places(offset)
            index = pa.array(places, mask=missing)
            sides[side] = {name: columns[name].take(index) for name in names}
        return sides

    def compute(self, columns: Columns, neighbours: Neighbours) -> m.Slots:
        """Return the slots of rows, with one entry more for no row."""
        count = len(neighbours.times) + 1
        longer = {name: pa.concat_arrays([columns[name], pa.nulls(1, columns[name].type)]) for name in self.columns}
        block = Block({ROW: longer}, count)
        size = len(self.slots)
        whole = np.zeros((size, count), np.int64)
        real = np.zeros((size, count if any(slot.form == "real" for slot in self.slots) else 0), np.float64)
        state = np.zeros((size, count), np.uint8)
        with np.errstate(all="ignore"):
            for at, slot in enumerate(self.slots):
                if slot.form == "truth":
                    state[at] = _truth_states(block, slot.source)
                    continue
                vector = block.value(slot.source)  # type: ignore[arg-type]
                state[at] = _states(vector, count)
                if slot.form == "real":
                    real[at] = vector.values
                elif slot.form != "valid":
                    whole[at] = self._keys(block, slot, vector)
        for at, slot in enumerate(self.slots):
            if slot.offset:
                places, missing = neighbours.places(slot.offset)
                # A missing row has the values of the entry for no row.
                index = np.append(np.where(missing, count - 1, places), count - 1)
                whole[at], state[at] = whole[at, index], state[at, index]
                if real.shape[1]:
                    real[at] = real[at, index]
        stack = np.zeros(m.DEEPEST, np.int64)
        return m.Slots(whole, real, state, stack, np.zeros(m.DEEPEST), np.zeros(m.DEEPEST, np.int64))

    def _keys(self, block: Block, slot: Slot, vector: Vector) -> Any:
        if slot.form == "rank":
            partner = vector if slot.partner is None else block.value(slot.partner)
            # Both orders of partners must give the same ranks, whichever comes first.
            return ranks(vector.values, partner.values)[0]
        values = np.broadcast_to(vector.values, (block.rows,))
        if slot.form == "order" and values.dtype.kind == "f":
            return ordered(values)
        return values


def _states(vector: Vector, count: int) -> npt.NDArray[np.uint8]:
    state = np.ones(count, np.uint8) if vector.valid is None else vector.valid.astype(np.uint8)
    if vector.bad is not None:
        state[vector.bad] = m.BAD
    return state


def _truth_states(block: Block, root: Any) -> npt.NDArray[np.uint8]:
    true, false = block.true(root), block.true(root, want=False)
    state = np.full(len(true), m.UNKNOWN, np.uint8)
    state[true], state[false] = m.TRUE, m.FALSE
    if block.overflowed:
        maybe = block.true(root, possibly=True) & ~true | block.true(root, want=False, possibly=True) & ~false
        state[maybe] = m.FAULT
    return state


def overflow(text: str) -> BraidedError:
    """Return the error for a condition or measure whose integers overflow."""
    return BraidedError(f"{text}: overflows; cast an operand to a wider type")


def _source_slot(register: Register) -> Slot:
    assert register.source is not None
    if register.kind == "count":
        return Slot("valid", register.source)
    if register.kind == "sum":
        return Slot("real" if register.source.type.name == "double" else "whole", register.source)
    return Slot("rank" if _in_arrow(register.source.type) else "order", register.source)


def _in_arrow(kind: tree.Type) -> bool:
    return kind.name in ("string", "binary") or (kind.name == "decimal" and kind.precision > NARROW)


def prepare(
    conditions: Mapping[int, tree.Truth], registers: Sequence[Register], texts: Mapping[int, str], names: Sequence[str]
) -> Conditions:
    """Return conditions for the search: plain ones unchanged, the others as programs."""
    plain = {
        symbol: root
        for symbol, root in conditions.items()
        if all(_is_plain(column.side) for column in columns_of(root))
    }
    result = Conditions(plain, tuple(registers), texts=dict(texts))
    for register in registers:
        if register.source is not None:
            _slot(result, _source_slot(register))
    for symbol in range(len(names)):
        result.code_starts.append(len(result.code))
        if symbol in conditions and symbol not in plain:
            _Lowering(result, texts[symbol], names).truth(conditions[symbol])
    result.code_starts.append(len(result.code))
    return result


def _slot(conditions: Conditions, slot: Slot) -> int:
    if slot not in conditions.slots:
        conditions.slots.append(slot)
    return conditions.slots.index(slot)


class _Lowering:
    """Writes the program of one condition."""

    def __init__(self, conditions: Conditions, text: str, names: Sequence[str]) -> None:
        self._made, self._text, self._names = conditions, text, list(names)

    def truth(self, node: tree.Truth) -> None:
        side = _one_side(node)
        if isinstance(node, tree.Always):
            self._add(m.ALWAYS, m.UNKNOWN if node.value is None else int(node.value))
        elif side is not None:
            self._load(m.TRUTH, Slot("truth", _of_own_row(node)), side)
        else:
            self._across(node)

    def _across(self, node: tree.Truth) -> None:
        match node:
            case tree.Every(parts) | tree.Some(parts):
                self.truth(parts[0])
                for part in parts[1:]:
                    self.truth(part)
                    self._add(m.AND if isinstance(node, tree.Every) else m.OR)
            case tree.Not(operand):
                self.truth(operand)
                self._add(m.NOT)
            case tree.IsNull(operand):
                self._number(operand)
                self._add(m.IS_NULL)
            case tree.IsIn(operand, members, null):
                tests: list[tree.Truth] = [
                    tree.Compare("=", operand, tree.Constant(member, operand.type)) for member in members
                ]
                self.truth(tree.Some((*tests, tree.Always(None)) if null else tuple(tests)))
            case tree.Compare(op, left, right) if _is_class(left) or _is_class(right):
                if op not in ("=", "<=>"):
                    raise Uncompilable(f"{self._text}: CLASSIFIER can only be compared with = and <>")
                self._symbol(left)
                self._symbol(right)
                self._add(m.COMPARE, _COMPARISONS[op], 0)
            case tree.Compare(op, left, right):
                one, other = _one_side(left), _one_side(right)
                if one is not None and other is not None:
                    form = "rank" if _in_arrow(left.type) else "order"
                    partners = (_of_own_row(right), _of_own_row(left)) if form == "rank" else (None, None)
                    self._load(m.WHOLE, Slot(form, _of_own_row(left), partners[0]), one)
                    self._load(m.WHOLE, Slot(form, _of_own_row(right), partners[1]), other)
                    self._add(m.COMPARE, _COMPARISONS[op], 0)
                else:
                    self._number(left)
                    self._number(right)
                    self._add(m.COMPARE, _COMPARISONS[op], int(left.type.name in _FLOATS))
            case _:
                raise Uncompilable(f"{self._text}: a predicate over strings of different rows is not supported yet")

    def _symbol(self, node: tree.Value) -> None:
        """Load the number of a symbol: of a row, or that of a name."""
        if _is_class(node):
            self._number(node)
        elif isinstance(node, tree.Constant):
            self._made.whole.append(self._names.index(node.value) if node.value in self._names else -1)
            self._add(m.CONSTANT_WHOLE, len(self._made.whole) - 1)
        else:
            raise Uncompilable(f"{self._text}: CLASSIFIER can only be compared with symbols in quotes")

    def _number(self, node: tree.Value) -> None:
        real = node.type.name in _FLOATS
        side = _one_side(node)
        if side is not None and not _in_arrow(node.type):
            self._load(m.REAL if real else m.WHOLE, Slot("real" if real else "whole", _of_own_row(node)), side)
            return
        match node:
            case tree.Constant(value):
                if real:
                    self._made.real.append(float(value))
                    self._add(m.CONSTANT_REAL, len(self._made.real) - 1)
                elif node.type.name in DTYPES and node.type.name != "decimal":
                    self._made.whole.append(int(value))
                    self._add(m.CONSTANT_WHOLE, len(self._made.whole) - 1)
                else:
                    raise self._refusal(node)
            case tree.Column(side, _) if _is_class(node):
                self._add(m.SYMBOL, *place_of(side))
            case tree.Column(_, name):
                self._counted(name)
            case tree.Widen(operand, kind) if kind.name == "double" or is_whole(kind):
                self._number(operand)
                if kind.name == "double" and operand.type.name not in _FLOATS:
                    self._add(m.TO_REAL)
            case tree.Arithmetic(op, operands, kind) if kind.name == "double" or is_whole(kind):
                for operand in operands:
                    self._number(operand)
                unary = m.NEGATE if op == "-" else m.ABSOLUTE
                code = _ARITHMETIC[op] if len(operands) == 2 else unary
                self._add(code, _NARROWER.get(kind.name, 0), int(real))
            case _:
                raise self._refusal(node)

    def _refusal(self, node: tree.Value) -> Uncompilable:
        return Uncompilable(
            f"{self._text}: computes {node.type} of different rows, which is not supported yet; cast to double"
        )

    def _counted(self, name: str) -> None:
        """Load a count, a sum or a mean: ``r3``, ``sum r1 r2``, ``avg r1 r2``."""
        what, *parts = name.split()
        numbers = [int(part[1:]) for part in parts]
        if not parts:
            self._add(m.COUNTED, int(what[1:]))
        elif what == "avg":
            self._add(m.MEAN, *numbers)
        else:
            source = self._made.registers[numbers[0]].source
            assert source is not None
            self._add(m.SUMMED_REAL if source.type.name == "double" else m.SUMMED_WHOLE, *numbers)

    def _load(self, op: int, slot: Slot, side: str) -> None:
        register, offset = place_of(side)
        self._add(op, _slot(self._made, replace(slot, offset=offset)), register)

    def _add(self, op: int, a: int = 0, b: int = 0) -> None:
        self._made.code.append((op, a, b))


def _one_side(node: Any) -> str | None:
    """Return the only row that a tree reads; None if it reads several rows, counts or sums, or no row."""
    sides = {column.side for column in columns_of(node)}
    side = next(iter(sides)) if len(sides) == 1 else NUMBERS
    return None if side == NUMBERS or side.startswith(CLASS) else side


def _is_plain(side: str) -> bool:
    """Whether a side is the row itself, or one at a fixed distance before or after it."""
    return side != NUMBERS and not side.startswith(CLASS) and place_of(side)[0] < 0


def _is_class(node: tree.Value) -> bool:
    return isinstance(node, tree.Column) and node.side.startswith(CLASS)


def _of_own_row(node: Any) -> Any:
    """Return a tree with all columns of the row itself."""
    if isinstance(node, tree.Column):
        return replace(node, side=ROW)
    if isinstance(node, tuple):
        return tuple(_of_own_row(part) for part in node)
    if isinstance(node, tree.Type) or not hasattr(node, "__dataclass_fields__"):
        return node
    return replace(node, **{name: _of_own_row(part) for name, part in vars(node).items()})
