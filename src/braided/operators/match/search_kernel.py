"""The search for matches, key by key and start by start: depth-first over an automaton, the best alternative first.

```
 rows of a key   a  a  b  a  c         start 0: a a b .. dead;  start 1: a b a c accepted, or:
 start 1            A  B  A  C                  needs a row that is not there: undecided, unless the horizon has passed
```

Because alternatives are tried in order of preference, the first outcome decides: a match is found, or a row is missing
that a better alternative waits for. If conditions read only a row (and the rows before it in its key), a place of the
automaton that failed at a row fails there again, so each place is tried once per start. Otherwise steps are counted,
and a search with many steps remembers failed places together with the registers that later conditions read: the same
place with the same registers fails again.

Preconditions: rows are sorted by key and time; rows of a key before the first that is not `done` are not needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled, in_place
from braided.operators.match.automaton import NEXT_ROW, PAST_LAST, TO_FIRST
from braided.operators.match.condition_machine import COUNT, FAULT, TRUE, Machine, Slots, advance, holds

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

# The outcomes of a search; all but the first three stop the whole scan.
_FAILED, _FOUND, _WAITS, _NO_ROOM, STEPS, OVERFLOW = 0, 1, 2, 3, 4, 5
FINE = 0
# The position of the search: key and start, the first row of the key to keep, and the number of matches found.
(
    _GROUP,
    _START,
    _KEEP,
    _MATCHES,
    _FILLED,
    _STAMP,
    _LENGTH,
    _LOOKS,
    _LOW,
    _SPENT,
    _HELD,
    _CRAMPED,
    _PATIENCE,
    _A_ROW,
    _PLACES,
    _ROUND,
    _HOLDS,
    _NUMBERS,
) = range(18)
# The marks of a row as a start: it is decided, and it is in an earlier match.
DECIDED, COVERED = 1, 2
# The length that stands for no match: a row without one.
UNMATCHED = -1
# Anchors before a state: it can be reached only at the first row of a key, or after the last.
AT_BEGIN, AT_END = 1, 2
# Whether places that failed for one start fail for the next.
_IF_CLOSED, _ALWAYS = 1, 2
# The most bytes that one search may use to remember failed places.
_REMEMBERED_BYTES = 64 << 20
# The most numbers that the look-ahead of a key may have.
_MOST_AHEAD = 1 << 24
_FOREVER = np.int64(np.iinfo(np.int64).max)


class Rows(NamedTuple):
    """Rows by key and time: where keys begin, times, which starts are decided, which rows are new, plain conditions."""

    bounds: Int64s
    times: Int64s
    done: Bytes
    fresh: Bytes
    bits: npt.NDArray[np.uint64]
    unknown: npt.NDArray[np.uint64]
    """Symbols whose conditions read rows that have not arrived yet; the last bit is for measures. Empty if none do."""


class Keeping(NamedTuple):
    """Which rows are kept beside open matches, and how matches are decided.

    context : the number of rows kept before the first open start of a key, or at its end. forgotten : keys without a
    row from this time on keep none. longest : how long a start may stay undecided. ordered : starts are decided in
    their order. unmatched : rows without a match are reported, too.
    """

    context: int
    forgotten: int
    longest: int
    ordered: bool
    unmatched: bool


class Automaton(NamedTuple):
    """The successors of all states, where those of each state begin, the symbols of states; what follows a match.

    guards : the anchors before each successor; empty if there are none. sees : for each state, the registers that
    conditions after it may read, as bits; empty if they see more than registers.
    """

    after: Int32s
    guards: Bytes
    sees: Int64s
    starts: Int32s
    symbol: Int32s
    negated: int
    skip: int
    target: int


class _Space(NamedTuple):
    """The memory of one search by depth: alternatives left, states, failed places, registers; and counters."""

    pointer: Int32s
    path: Int32s
    seen: Int64s
    whole: Int64s
    real: npt.NDArray[np.float64]
    numbers: Int64s
    ahead: Int64s
    """For each row and state of a key with many rows, how soon a match through there may end."""
    places: Int64s
    """Failed places by a hash: the number of the round, the place, registers."""
    sums: npt.NDArray[np.float64]


class MatchArrays(NamedTuple):
    """First rows and lengths of matches, states of all their rows, the rows to keep, and the starts of open matches."""

    first: Int64s
    length: Int64s
    states: Int32s
    stays: npt.NDArray[np.bool_]
    opens: npt.NDArray[np.bool_]


@in_place
def deadline_of(time: np.int64, within: np.int64) -> np.int64:
    """Return the last time that a row of a match may have."""
    if within < 0 or time > _FOREVER - within:
        return _FOREVER
    return time + within


@compiled
def next_of(bounds: Int64s, bits: npt.NDArray[np.uint64], symbol: np.int64) -> Int64s:
    """Return for each row the next one of its key, itself or later, for which a symbol's plain condition holds."""
    next_row = np.empty(len(bits), np.int64)
    mask = np.uint64(1) << np.uint64(symbol)
    for group in range(len(bounds) - 1):
        at = bounds[group + 1]
        for row in range(bounds[group + 1] - 1, bounds[group] - 1, -1):
            if bits[row] & mask:
                at = row
            next_row[row] = at
    return next_row


@in_place
def _failed_before(space, live, place, depth):  # type: ignore[no-untyped-def]
    """Whether a search was at this place with the same registers as now at a depth; if not, remember it."""
    stamp = space.numbers[_ROUND]
    places, sums, whole, real = space.places, space.sums, space.whole, space.real
    registers, size = whole.shape[1], len(places)
    mixed = np.uint64(place) * np.uint64(0x9E3779B97F4A7C15)
    for register in range(registers):
        if (live >> register) & 1:
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed += np.uint64(whole[depth, register]) + np.uint64(np.int64(real[depth, register] * 1024.0))
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x94D049BB133111EB)
    at = np.int64((mixed ^ (mixed >> np.uint64(31))) % np.uint64(size))
    while places[at, 0] == stamp:
        same = places[at, 1] == place
        for register in range(registers):
            if same and (live >> register) & 1:
                same = places[at, 2 + register] == whole[depth, register]
                same = same and sums[at, register] == real[depth, register]
        if same:
            return True
        at = np.int64(at + 1 if at + 1 < size else 0)
    if 2 * space.numbers[_HELD] < size:
        space.numbers[_HELD] += 1
        places[at, 0], places[at, 1] = stamp, place
        for register in range(registers):
            places[at, 2 + register], sums[at, register] = whole[depth, register], real[depth, register]
    return False


@in_place
def _look_ahead(rows, automaton, ahead, low, high, horizon):  # type: ignore[no-untyped-def]
    """Find how soon a match with a row in a state may end; a row that has not arrived counts as at the horizon."""
    states = len(automaton.symbol)
    for row in range(high - 1, low - 1, -1):
        for state in range(states):
            soonest = _FOREVER
            if (rows.bits[row] >> np.uint64(automaton.symbol[state])) & np.uint64(1):
                for at in range(automaton.starts[state], automaton.starts[state + 1]):
                    then = automaton.after[at]
                    if then < 0:
                        soonest = min(soonest, rows.times[row])
                    elif row + 1 == high:
                        soonest = min(soonest, horizon)
                    else:
                        soonest = min(soonest, ahead[(row + 1 - low) * states + then])
            ahead[(row - low) * states + state] = soonest


@in_place
def _followed(rows, automaton, machine, slots, following, space, start, row, high, deadline, most):  # type: ignore[no-untyped-def]
    """Search for a row that the pattern forbids after a match."""
    negated = automaton.negated
    if machine.code_starts[negated] == machine.code_starts[negated + 1]:
        forbidden = row < high and following[row] < high and rows.times[following[row]] <= deadline
        return _FOUND if forbidden else _FAILED
    depth = space.numbers[_LENGTH]
    while row < high and rows.times[row] <= deadline:
        space.numbers[_SPENT] += 1
        if space.numbers[_SPENT] > most:
            return STEPS
        if not advance(machine, slots, space.whole, space.real, depth, negated, row):
            return OVERFLOW
        truth = holds(
            machine, slots, space.whole, space.real, depth + 1, negated, row, start, space.path, automaton.symbol
        )
        if truth == FAULT:
            return OVERFLOW
        if truth == TRUE:
            return _FOUND
        row += 1
    return _FAILED


@in_place
def _search(rows, automaton, machine, slots, following, space, start, high, deadline, closed, ended, limit):  # type: ignore[no-untyped-def]  # noqa: PLR0915
    """Search for the preferred match from one row; its states are in the path, and its length in the counters.

    closed : no row within the time can come any more. ended : no row of the key can come any more.
    """
    times, bits, unknown = rows.times, rows.bits, rows.unknown
    waits = len(unknown) > 0
    after, starts, symbol, negated = automaton.after, automaton.starts, automaton.symbol, automaton.negated
    pointer, path, seen, whole, real = space.pointer, space.path, space.seen, space.whole, space.real
    states, coded = len(symbol), machine.code_starts
    plain = coded[len(coded) - 1] == 0
    space.numbers[_STAMP] += 1
    stamp, looks, low = space.numbers[_STAMP], space.numbers[_LOOKS], space.numbers[_LOW]
    depth, most, begun = 0, space.numbers[_SPENT] + limit, space.numbers[_SPENT]
    guards, sees = automaton.guards, automaton.sees
    anchored = len(guards) > 0
    # Places that failed for the previous start fail again, unless its time was too short, or this is not certain yet.
    if not (space.numbers[_HOLDS] == _ALWAYS or (space.numbers[_HOLDS] == _IF_CLOSED and closed)):
        space.numbers[_HELD] = 0
        space.numbers[_ROUND] += 1
    remembers_from = begun if space.numbers[_HELD] else begun + space.numbers[_PATIENCE]
    if len(sees) == 0:
        remembers_from = _FOREVER
    pointer[0], stop = starts[states], starts[states + 1]
    while True:
        if pointer[depth] == stop:
            depth -= 1
            if depth < 0:
                return _FAILED
            stop = starts[states + 1] if depth == 0 else starts[path[depth - 1] + 1]
            continue
        edge = pointer[depth]
        state = after[edge]
        pointer[depth] += 1
        row = start + depth
        if anchored and guards[edge]:
            if guards[edge] & AT_BEGIN and row != low:
                continue
            if guards[edge] & AT_END:
                if row != high:
                    continue
                if not ended:
                    return _WAITS
        if not plain:
            space.numbers[_SPENT] += 1
            if space.numbers[_SPENT] > most:
                return STEPS
        if state < 0:
            space.numbers[_LENGTH] = depth
            if waits and (unknown[max(row - 1, start)] >> np.uint64(63)) & np.uint64(1):
                return _WAITS
            if negated < 0:
                return _FOUND
            answer = _followed(rows, automaton, machine, slots, following, space, start, row, high, deadline, most)
            if answer == _FAILED:
                return _FOUND if closed else _WAITS
            if answer != _FOUND:
                return answer
            continue
        if row == high:
            if closed:
                continue
            return _WAITS
        if times[row] > deadline:
            continue
        name = symbol[state]
        if waits and (unknown[row] >> np.uint64(name)) & np.uint64(1):
            return _WAITS
        if coded[name] == coded[name + 1] and not (bits[row] >> np.uint64(name)) & np.uint64(1):
            continue
        if plain:
            if looks and space.ahead[(row - low) * states + state] > deadline:
                continue
            if seen[depth * states + state] == stamp:
                continue
            seen[depth * states + state] = stamp
        else:
            if not advance(machine, slots, whole, real, depth, name, row):
                return OVERFLOW
            if coded[name] < coded[name + 1]:
                truth = holds(machine, slots, whole, real, depth + 1, name, row, start, path, symbol)
                if truth == FAULT:
                    return OVERFLOW
                if truth != TRUE:
                    continue
            if space.numbers[_SPENT] > remembers_from:
                if 2 * space.numbers[_HELD] >= len(space.places) and len(space.places) < space.numbers[_PLACES]:
                    space.numbers[_CRAMPED] = 1
                    return _NO_ROOM
                if _failed_before(space, sees[state], row * states + state, depth + 1):
                    continue
        path[depth] = state
        depth += 1
        if depth + 1 == len(path):
            return _NO_ROOM
        pointer[depth], stop = starts[state], starts[state + 1]


@in_place
def _scan(rows, automaton, machine, slots, following, space, matches, keeping, horizon, within, limit, many):  # type: ignore[no-untyped-def]  # noqa: PLR0915
    """Continue from the saved position until all keys are done, an array is full or an error occurs; return which."""
    bounds, times, done, fresh, bits = rows.bounds, rows.times, rows.done, rows.fresh, rows.bits
    symbol, skip, target = automaton.symbol, automaton.skip, automaton.target
    numbers, path = space.numbers, space.path
    first, length, flat, stays, opens = matches
    # The symbols that the first row of a match may have, if this is known without a search.
    begin, at_once = np.uint64(0), True
    for at in range(automaton.starts[len(symbol)], automaton.starts[len(symbol) + 1]):
        if automaton.after[at] < 0:
            at_once = False
            continue
        name = symbol[automaton.after[at]]
        at_once = at_once and machine.code_starts[name] == machine.code_starts[name + 1]
        begin |= np.uint64(1) << np.uint64(name)
    for group in range(numbers[_GROUP], len(bounds) - 1):
        high = bounds[group + 1]
        start, keep = numbers[_START], numbers[_KEEP]
        ended = horizon == _FOREVER or times[high - 1] < keeping.forgotten
        if start < 0:
            start, keep = bounds[group], high
            while start < high and done[start] & DECIDED:
                start += 1
            runs_out = ended or (start < high and deadline_of(times[start], keeping.longest) < horizon)
            if not fresh[high - 1] and start < high and not runs_out:
                # The key has no new row and no start that has expired.
                for row in range(max(bounds[group], start - keeping.context), high):
                    stays[row] = True
                for row in range(start, high):
                    opens[row] = row == start or (skip == NEXT_ROW and not keeping.ordered and not done[row] & DECIDED)
                continue
            numbers[_LOOKS], numbers[_LOW], numbers[_SPENT], numbers[_HOLDS] = 0, bounds[group], 0, 0
            if high - start >= many and (high - bounds[group]) * len(symbol) <= len(space.ahead):
                _look_ahead(rows, automaton, space.ahead, bounds[group], high, horizon)
                numbers[_LOOKS] = 1
        while start < high:
            if done[start] & DECIDED:
                start += 1
                continue
            result, depth = _FAILED, 0
            if not at_once or bits[start] & begin:
                deadline = deadline_of(times[start], within)
                result = _search(
                    rows, automaton, machine, slots, following, space, start, high, deadline, deadline < horizon, ended,
                    limit,
                )  # fmt: skip
                depth = numbers[_LENGTH]
                numbers[_HOLDS] = 0
                if result == _FAILED and deadline >= times[high - 1]:
                    numbers[_HOLDS] = _IF_CLOSED if deadline < horizon else _ALWAYS
                if numbers[_SPENT] > limit + numbers[_A_ROW] * (high - numbers[_LOW]):
                    result = STEPS
            reported = result == _FAILED and keeping.unmatched and not done[start] & COVERED
            if (result == _FOUND or reported) and (
                numbers[_MATCHES] == len(first) or numbers[_FILLED] + depth > len(flat)
            ):
                result = _NO_ROOM
            if result > _WAITS:
                numbers[_GROUP], numbers[_START], numbers[_KEEP] = group, start, keep
                return result
            if result == _WAITS:
                keep = min(keep, start)
                opens[start] = True
                if skip != NEXT_ROW or keeping.ordered:
                    break
                start += 1
                continue
            done[start] |= DECIDED
            if result == _FAILED:
                if reported:
                    first[numbers[_MATCHES]], length[numbers[_MATCHES]] = start, UNMATCHED
                    numbers[_MATCHES] += 1
                start += 1
                continue
            first[numbers[_MATCHES]], length[numbers[_MATCHES]] = start, depth
            to = 0
            for at in range(depth):
                flat[numbers[_FILLED] + at] = path[at]
                if (target >> symbol[path[at]]) & 1 and (skip != TO_FIRST or to == 0):
                    to = at
                if keeping.unmatched:
                    done[start + at] |= COVERED
            numbers[_MATCHES] += 1
            numbers[_FILLED] += depth
            # Starts that a match skips are decided, too; their rows may stay as context of later ones.
            behind = start + max(depth if skip == PAST_LAST else to, 1)
            while start < behind:
                done[start] |= DECIDED
                start += 1
        numbers[_START] = -1
        if keeping.context and (keep < high or times[high - 1] >= keeping.forgotten):
            keep = max(bounds[group], keep - keeping.context)
        for row in range(keep, high):
            stays[row] = True
    return FINE


def find_matches(
    rows: Rows,
    automaton: Automaton,
    machine: Machine,
    slots: Slots,
    following: Int64s,
    horizon: int,
    within: int,
    limit: int,
    a_row: int,
    many: int,
    patience: int,
    keeping: Keeping,
) -> tuple[MatchArrays, int, int]:
    """Return the decided matches with the rows to keep, the outcome of the search, and the row where it ended.

    `following` is `next_of` the negated symbol, empty if there is none. Starts that are decided are marked as `done`.
    If a key has `many` rows, the kernels first compute from which rows a match can end in time, so that hopeless
    searches are short. One search takes at most `limit` steps, and those of a key at most `a_row` more for each row. A
    search with more steps than `patience` remembers where it failed. The kernels do not allocate memory: they stop when
    an array is full, and continue with a larger one.
    """
    count, states = len(rows.times), len(automaton.symbol)
    plain = machine.code_starts[-1] == 0
    numbers = np.zeros(_NUMBERS, np.int64)
    numbers[_START], numbers[_PATIENCE], numbers[_A_ROW] = -1, patience, a_row
    depth, matches, filled = 32, 1024, 4096
    sizes = np.diff(rows.bounds) * states
    remembered = 0
    numbers[_PLACES] = _REMEMBERED_BYTES // (16 * (1 + len(machine.kinds)))
    ahead = np.empty(sizes[(sizes >= many * states) & (sizes <= _MOST_AHEAD) & plain].max(initial=0), np.int64)
    stays, opens = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    first, length, flat = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32)
    while True:
        space = _Space(
            np.empty(depth, np.int32),
            np.empty(depth, np.int32),
            np.zeros(depth * states if plain else 0, np.int64),
            np.zeros((depth + 1, len(machine.kinds)), np.int64),
            np.zeros((depth + 1, len(machine.kinds)), np.float64),
            numbers,
            ahead,
            np.zeros((remembered, 2 + len(machine.kinds)), np.int64),
            np.zeros((remembered, len(machine.kinds)), np.float64),
        )
        space.whole[0, machine.kinds < COUNT] = -1
        first, length, flat = _larger(first, matches), _larger(length, matches), _larger(flat, filled)
        arrays = MatchArrays(first, length, flat, stays, opens)
        status = _scan(
            rows, automaton, machine, slots, following, space, arrays, keeping,
            np.int64(horizon), np.int64(within), np.int64(limit), np.int64(many),
        )  # fmt: skip
        if status != _NO_ROOM:
            count, states = int(numbers[_MATCHES]), int(numbers[_FILLED])
            arrays = MatchArrays(first[:count], length[:count], flat[:states], stays, opens)
            return arrays, int(status), int(numbers[_START])
        numbers[_HELD] = 0
        if numbers[_CRAMPED]:
            numbers[_CRAMPED], remembered = 0, min(max(1 << 12, 8 * remembered), int(numbers[_PLACES]))
            continue
        depth, matches, filled = 2 * depth, 2 * matches, max(2 * filled, 4 * depth)


def _larger(array: Any, size: int) -> Any:
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def replay(first, length, flat, symbol, machine, slots, every):  # type: ignore[no-untyped-def]
    """Return the registers at the end of each match, or at every row of it, and whether no sum overflowed."""
    registers = len(machine.kinds)
    count = len(flat) if every else len(first)
    whole = np.empty((count, registers), np.int64)
    real = np.empty((count, registers), np.float64)
    now = np.empty((2, registers), np.int64)
    now_real = np.empty((2, registers), np.float64)
    at = 0
    for match in range(len(first)):
        for register in range(registers):
            now[0, register] = -1 if machine.kinds[register] < COUNT else 0
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
