"""Conditions that read rows of earlier symbols, in the search itself: registers and a small stack machine.

A condition is a program in postfix order. Its instructions read *slots*, arrays with one value per row that are
computed as columns beforehand (`condition_programs`), at the row that is tested or at a row in a register. A slot has
one entry more than there are rows: a row whose columns are all null, for registers that have no row yet.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from braided.compiled import in_place

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]

# Registers: rows first, since kinds below COUNT start without a row.
FIRST, LAST, MIN, MAX, FIRST_ON, LAST_BACK, COUNT, SUM_WHOLE, SUM_REAL = range(9)
# The states of a slot beside its value, and the answers of a condition.
NULL, VALID, BAD = 0, 1, 2
FALSE, TRUE, UNKNOWN, FAULT = 0, 1, 2, 3
# Instructions: (op, a, b).
(TRUTH, WHOLE, REAL, CONSTANT_WHOLE, CONSTANT_REAL, COUNTED, SUMMED_WHOLE, SUMMED_REAL, MEAN) = range(9)
(ADD, SUBTRACT, MULTIPLY, NEGATE, ABSOLUTE, TO_REAL, COMPARE, AND, OR, NOT, ALWAYS, IS_NULL, SYMBOL) = range(9, 22)
EQUAL, LESS, LESS_EQUAL, SAME = 0, 1, 2, 3
DEEPEST = 128

_MAX = np.int64(np.iinfo(np.int64).max)
_MIN = np.int64(np.iinfo(np.int64).min)


class Machine(NamedTuple):
    """Registers (kind, bits of symbols, slot of what is counted or -1) and the programs of the symbols.

    The source of FIRST_ON and LAST_BACK is a register: that of the symbols' previous row, or of the next one.
    """

    kinds: Int32s
    symbols: Int64s
    sources: Int32s
    code: Int32s
    code_starts: Int32s
    whole: Int64s
    real: npt.NDArray[np.float64]


class Slots(NamedTuple):
    """Whole numbers, floats and the states of both, one line for each slot."""

    whole: Int64s
    real: npt.NDArray[np.float64]
    state: npt.NDArray[np.uint8]
    stack: Int64s
    stack_real: npt.NDArray[np.float64]
    stack_state: npt.NDArray[np.int64]


@in_place
def advance(machine, slots, whole, real, depth, symbol, row):  # type: ignore[no-untyped-def]
    """Fill the registers of the next depth from those of this one and a row; False where a sum overflows."""
    for register in range(len(machine.kinds)):
        before, after = whole[depth, register], real[depth, register]
        if (machine.symbols[register] >> symbol) & 1:
            kind, source = machine.kinds[register], machine.sources[register]
            if FIRST_ON <= kind <= LAST_BACK:
                other = whole[depth, source]
                if kind == LAST_BACK:
                    before = other
                elif before < 0 and other >= 0:
                    before = row
                whole[depth + 1, register] = before
                continue
            known = source < 0 or slots.state[source, row] == VALID
            if source >= 0 and slots.state[source, row] == BAD:
                return False
            if kind == FIRST:
                before = row if before < 0 else before
            elif kind == LAST:
                before = row
            elif not known:
                pass
            elif kind == COUNT:
                before += 1
            elif kind == SUM_WHOLE:
                by = slots.whole[source, row]
                if (by > 0 and before > _MAX - by) or (by < 0 and before < _MIN - by):
                    return False
                before += by
            elif kind == SUM_REAL:
                after += slots.real[source, row]
            elif before < 0:
                before = row
            elif kind == MIN:
                if slots.whole[source, row] < slots.whole[source, before]:
                    before = row
            elif slots.whole[source, row] > slots.whole[source, before]:
                before = row
        whole[depth + 1, register] = before
        real[depth + 1, register] = after
    return True


@in_place
def holds(machine, slots, whole, real, depth, symbol, row, start, path, symbols):  # type: ignore[no-untyped-def]  # noqa: PLR0915
    """Return the answer of a symbol's condition for a row, with the registers at a depth; the row is part of them.

    The match so far begins at `start`; `path` has the states of its rows, and `symbols` those of states.
    """
    code, missing = machine.code, slots.state.shape[1] - 1
    stack, reals, known = slots.stack, slots.stack_real, slots.stack_state
    top = -1
    for at in range(machine.code_starts[symbol], machine.code_starts[symbol + 1]):
        op, a, b = code[at, 0], code[at, 1], code[at, 2]
        if op <= REAL:
            place = row if b < 0 else whole[depth, b]
            place = missing if place < 0 else place
            state = slots.state[a, place]
            top += 1
            known[top] = state
            if op == TRUTH:
                stack[top] = state
                if state == FAULT:
                    return FAULT
                continue
            if state == BAD:
                return FAULT
            if op == WHOLE:
                stack[top] = slots.whole[a, place]
            else:
                reals[top] = slots.real[a, place]
        elif op == CONSTANT_WHOLE:
            top += 1
            stack[top], known[top] = machine.whole[a], VALID
        elif op == CONSTANT_REAL:
            top += 1
            reals[top], known[top] = machine.real[a], VALID
        elif op == COUNTED:
            top += 1
            stack[top], known[top] = whole[depth, a], VALID
        elif op == SUMMED_WHOLE:
            top += 1
            stack[top], known[top] = whole[depth, a], VALID if whole[depth, b] else NULL
        elif op == SUMMED_REAL:
            top += 1
            reals[top], known[top] = real[depth, a], VALID if whole[depth, b] else NULL
        elif op == MEAN:
            top += 1
            known[top] = VALID if whole[depth, b] else NULL
            if whole[depth, b]:
                reals[top] = real[depth, a] / whole[depth, b]
        elif op <= MULTIPLY:
            top -= 1
            known[top] = known[top] & known[top + 1]
            if b:
                x, y = reals[top], reals[top + 1]
                reals[top] = x + y if op == ADD else x - y if op == SUBTRACT else x * y
            elif known[top]:
                one, two = stack[top], stack[top + 1]
                value = one + two if op == ADD else one - two if op == SUBTRACT else one * two
                if op == ADD:
                    wrong = ((one ^ value) & (two ^ value)) < 0
                elif op == SUBTRACT:
                    wrong = ((one ^ two) & (one ^ value)) < 0
                else:
                    wrong = one != 0 and ((one == -1 and two == _MIN) or (one != -1 and value // one != two))
                if wrong or value > _MAX >> a or value < _MIN >> a:
                    return FAULT
                stack[top] = value
        elif op <= ABSOLUTE:
            if b:
                reals[top] = -reals[top] if op == NEGATE else abs(reals[top])
            elif known[top]:
                if stack[top] == _MIN >> a:
                    return FAULT
                stack[top] = -stack[top] if op == NEGATE else abs(stack[top])
        elif op == TO_REAL:
            reals[top] = np.float64(stack[top])
        elif op == COMPARE:
            top -= 1
            one_null, two_null = known[top] == NULL, known[top + 1] == NULL
            if one_null or two_null:
                stack[top] = UNKNOWN if a != SAME else TRUE if one_null and two_null else FALSE
                continue
            if b:
                x, y = reals[top], reals[top + 1]
                # NaN equals NaN and exceeds all other numbers.
                same = x == y or (x != x and y != y)  # noqa: PLR0124
                less = x < y or (x == x and y != y)  # noqa: PLR0124
            else:
                same, less = stack[top] == stack[top + 1], stack[top] < stack[top + 1]
            hit = less if a == LESS else (less or same) if a == LESS_EQUAL else same
            stack[top] = TRUE if hit else FALSE
        elif op == AND:
            top -= 1
            one, two = stack[top], stack[top + 1]
            stack[top] = min(one, two) if min(one, two) == FALSE else max(one, two)
        elif op == OR:
            top -= 1
            one, two = stack[top], stack[top + 1]
            stack[top] = TRUE if (one == TRUE) | (two == TRUE) else max(one, two)
        elif op == NOT:
            stack[top] = stack[top] if stack[top] == UNKNOWN else 1 - stack[top]
        elif op == ALWAYS:
            top += 1
            stack[top] = a
        elif op == SYMBOL:
            place = row if a < 0 else whole[depth, a]
            at_step = place + b - start
            top += 1
            known[top] = VALID
            if place < 0:
                known[top] = NULL
            elif place + b == row:
                stack[top] = symbol
            elif 0 <= at_step < depth - 1:
                stack[top] = symbols[path[at_step]]
            else:
                known[top] = NULL
        else:
            stack[top] = TRUE if known[top] == NULL else FALSE
    return stack[0]
