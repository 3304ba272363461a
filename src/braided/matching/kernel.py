"""The search for matches, key by key and start by start: depth first over an automaton, the best alternative first.

```
 rows of a key   a  a  b  a  c         start 0: a a b .. dead;  start 1: a b a c accepted, or:
 start 1            A  B  A  C                  needs a row that is not there: undecided, unless the horizon has passed
```

Because alternatives are tried in order of preference, the first thing that happens decides: a match is found, or a row
is missing that a better alternative waits for. Where conditions read a row (and those before it) alone, a place of the
automaton that failed at a row fails there again, so each is tried once a start; else steps are counted.

Preconditions: rows are sorted by key and time; rows of a key before the first that is not `done` are not needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled, in_place
from braided.matching.automaton import NEXT_ROW, PAST_LAST, TO_FIRST
from braided.matching.machine import advance, holds

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

FINE, STEPS, OVERFLOW = 0, 1, 2
_FAILED, _FOUND, _WAITS = 0, 1, 2
_FOREVER = np.int64(np.iinfo(np.int64).max)


class Rows(NamedTuple):
    """Rows by key and time: where keys begin, times, which starts are decided, which rows are new, plain conditions."""

    bounds: Int64s
    times: Int64s
    done: Bytes
    fresh: Bytes
    bits: npt.NDArray[np.uint64]


class Automaton(NamedTuple):
    """Successors of all states, where those of each begin, symbols of states; what to do after a match."""

    after: Int32s
    starts: Int32s
    symbol: Int32s
    negated: int
    skip: int
    target: int


@in_place
def deadline_of(time: np.int64, within: np.int64) -> np.int64:
    """Return the last time that a row of a match may have."""
    if within < 0 or time > _FOREVER - within:
        return _FOREVER
    return time + within


@compiled
def next_of(bounds: Int64s, bits: npt.NDArray[np.uint64], symbol: np.int64) -> Int64s:
    """Return for each row the next one of its key, itself or later, for which a symbol's plain condition holds."""
    found = np.empty(len(bits), np.int64)
    mask = np.uint64(1) << np.uint64(symbol)
    for group in range(len(bounds) - 1):
        at = bounds[group + 1]
        for row in range(bounds[group + 1] - 1, bounds[group] - 1, -1):
            if bits[row] & mask:
                at = row
            found[row] = at
    return found


@compiled
def find_matches(rows, automaton, machine, slots, following, horizon, within, limit):  # type: ignore[no-untyped-def]  # noqa: PLR0915
    """Return the matches that are decided, and from where the rows of each key are kept.

    Matches are first rows, lengths and the states of all their rows. Then comes how it ended, and the row where it did.
    `following` is `next_of` the negated symbol, empty if there is none. Starts that are decided are marked as `done`.
    """
    bounds, times, done, fresh, bits = rows
    after, starts, symbol, negated, skip, target = automaton
    states = len(symbol)
    coded = machine.code_starts
    plain = coded[len(coded) - 1] == 0
    registers = len(machine.kinds)
    groups = len(bounds) - 1
    keep = np.empty(groups, np.int64)
    first = np.empty(1024, np.int64)
    length = np.empty(1024, np.int64)
    flat = np.empty(4096, np.int32)
    matches, filled = 0, 0

    room = 32
    pointer = np.empty(room + 1, np.int32)
    path = np.empty(room + 1, np.int32)
    seen = np.zeros(room * states if plain else 1, np.int64)
    whole = np.empty((room + 1, registers), np.int64)
    real = np.empty((room + 1, registers), np.float64)
    for register in range(registers):
        whole[0, register] = -1 if machine.kinds[register] < 4 else 0
        real[0, register] = 0.0
    stamp = 0

    # What the first row of a match must be, where that can be seen at once.
    begin = np.uint64(0)
    at_once = True
    for at in range(starts[states], starts[states + 1]):
        name = symbol[after[at]]
        if coded[name] < coded[name + 1]:
            at_once = False
        begin |= np.uint64(1) << np.uint64(name)

    for group in range(groups):
        low, high = bounds[group], bounds[group + 1]
        start = low
        while start < high and done[start]:
            start += 1
        if not fresh[high - 1] and start < high and deadline_of(times[start], within) >= horizon:
            keep[group] = start  # nothing new, and nothing has run out
            continue
        keep[group] = high
        while start < high:
            if done[start]:
                start += 1
                continue
            if at_once and not bits[start] & begin:
                done[start] = 1
                start += 1
                continue
            deadline = deadline_of(times[start], within)
            closed = deadline < horizon
            stamp += 1
            steps = 0
            depth = 0
            pointer[0] = starts[states]
            stop = starts[states + 1]
            result = _FAILED
            while True:
                if pointer[depth] == stop:
                    depth -= 1
                    if depth < 0:
                        break
                    stop = starts[states + 1] if depth == 0 else starts[path[depth - 1] + 1]
                    continue
                state = after[pointer[depth]]
                pointer[depth] += 1
                row = start + depth
                if state < 0:
                    if negated >= 0:
                        answer = _FOUND if closed else _WAITS
                        if coded[negated] == coded[negated + 1]:
                            if row < high and following[row] < high and times[following[row]] <= deadline:
                                answer = _FAILED
                        else:
                            other = row
                            while other < high and times[other] <= deadline:
                                steps += 1
                                if steps > limit:
                                    return first, length, flat, keep, STEPS, start
                                if registers and not advance(machine, slots, whole, real, depth, negated, other):
                                    return first, length, flat, keep, OVERFLOW, other
                                truth = holds(machine, slots, whole, real, depth + 1, negated, other)
                                if truth == 3:
                                    return first, length, flat, keep, OVERFLOW, other
                                if truth == 1:
                                    answer = _FAILED
                                    break
                                other += 1
                        if answer == _FAILED:
                            continue
                        result = answer
                    else:
                        result = _FOUND
                    break
                if row == high:
                    if closed:
                        continue
                    result = _WAITS
                    break
                if times[row] > deadline:
                    continue
                name = symbol[state]
                if coded[name] == coded[name + 1]:
                    if not (bits[row] >> np.uint64(name)) & np.uint64(1):
                        continue
                    if plain:
                        if seen[depth * states + state] == stamp:
                            continue
                        seen[depth * states + state] = stamp
                    elif registers and not advance(machine, slots, whole, real, depth, name, row):
                        return first, length, flat, keep, OVERFLOW, row
                else:
                    if registers and not advance(machine, slots, whole, real, depth, name, row):
                        return first, length, flat, keep, OVERFLOW, row
                    truth = holds(machine, slots, whole, real, depth + 1, name, row)
                    if truth == 3:
                        return first, length, flat, keep, OVERFLOW, row
                    if truth != 1:
                        steps += 1
                        if steps > limit:
                            return first, length, flat, keep, STEPS, start
                        continue
                if not plain:
                    steps += 1
                    if steps > limit:
                        return first, length, flat, keep, STEPS, start
                path[depth] = state
                depth += 1
                if depth == room:
                    larger = 2 * room
                    pointer_, path_ = np.empty(larger + 1, np.int32), np.empty(larger + 1, np.int32)
                    pointer_[:depth], path_[:depth] = pointer[:depth], path[:depth]
                    pointer, path = pointer_, path_
                    if plain:
                        seen_ = np.zeros(larger * states, np.int64)
                        seen_[: room * states] = seen
                        seen = seen_
                    whole_, real_ = np.empty((larger + 1, registers), np.int64), np.empty((larger + 1, registers))
                    whole_[: depth + 1], real_[: depth + 1] = whole[: depth + 1], real[: depth + 1]
                    whole, real = whole_, real_
                    room = larger
                pointer[depth] = starts[state]
                stop = starts[state + 1]

            if result == _WAITS:
                keep[group] = min(keep[group], start)
                if skip != NEXT_ROW:
                    break
                start += 1
                continue
            done[start] = 1
            if result == _FAILED:
                start += 1
                continue
            if matches == len(first):
                first_, length_ = np.empty(2 * matches, np.int64), np.empty(2 * matches, np.int64)
                first_[:matches], length_[:matches] = first, length
                first, length = first_, length_
            if filled + depth > len(flat):
                flat_ = np.empty(2 * (filled + depth), np.int32)
                flat_[:filled] = flat[:filled]
                flat = flat_
            first[matches], length[matches] = start, depth
            flat[filled : filled + depth] = path[:depth]
            matches += 1
            filled += depth
            if skip == PAST_LAST:
                start += depth
            elif skip == NEXT_ROW:
                start += 1
            else:
                to = 0
                for at in range(depth):
                    if (target >> symbol[path[at]]) & 1:
                        to = at
                        if skip == TO_FIRST:
                            break
                start += max(to, 1)
    return first[:matches], length[:matches], flat[:filled], keep, FINE, 0


@compiled
def replay(first, length, flat, symbol, machine, slots, every):  # type: ignore[no-untyped-def]
    """Return what registers hold at the end of each match, or at every row of it, and whether no sum overflowed."""
    registers = len(machine.kinds)
    count = len(flat) if every else len(first)
    whole = np.empty((count, registers), np.int64)
    real = np.empty((count, registers), np.float64)
    now = np.empty((2, registers), np.int64)
    now_real = np.empty((2, registers), np.float64)
    at = 0
    for match in range(len(first)):
        for register in range(registers):
            now[0, register] = -1 if machine.kinds[register] < 4 else 0
            now_real[0, register] = 0.0
        for step in range(length[match]):
            if not advance(machine, slots, now, now_real, 0, symbol[flat[at]], first[match] + step):
                return whole, real, False
            now[0], now_real[0] = now[1], now_real[1]
            if every:
                whole[at], real[at] = now[0], now_real[0]
            at += 1
        if not every:
            whole[match], real[match] = now[0], now_real[0]
    return whole, real, True
