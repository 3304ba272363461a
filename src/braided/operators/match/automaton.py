"""The automaton of a pattern: a state for each place of a symbol, and the successors of each state by preference.

```
 A+? B      state 0: A    after it: B, A         first: A
            state 1: B    after it: (accepted)
```

The states are those of Glushkov's construction; an anchor guards the way to a state. Their order is that in which a
backtracking matcher tries alternatives, so the first way to `ACCEPT`, depth first, is the match that SQL prefers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from braided.errors import OptionError
from braided.operators.match.pattern import Anchor, Choice, Exclude, Node, Pattern, Repeat, Sequence, Symbol

ACCEPT = -1
# Where the search for the next match starts.
PAST_LAST, NEXT_ROW, TO_FIRST, TO_LAST = 0, 1, 2, 3
AT_BEGIN, AT_END = 1, 2
_DONE = ACCEPT  # in a list of alternatives: the part ends here
_MOST_STATES = 1000
_MOST_SUCCESSORS = 200_000
MOST_SYMBOLS = 62


@dataclass(frozen=True)
class Automaton:
    """States by number, each with its symbol's number; `after` has a state's successors, the best first, or `ACCEPT`.

    guards : for each of `first`, and then of `after`, the anchors before it: `AT_BEGIN`, `AT_END`, or both.
    """

    symbols: tuple[str, ...]
    first: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    symbol: tuple[int, ...]
    excluded: tuple[bool, ...]
    guards: tuple[tuple[int, ...], ...]

    @property
    def anchors(self) -> int:
        """All anchors that a match may meet."""
        return reduce(or_, (guard for of in self.guards for guard in of), 0)

    @property
    def may_be_empty(self) -> bool:
        """Whether a match may have no rows."""
        return ACCEPT in self.first

    def behind(self, state: int) -> set[int]:
        """Return the states that may follow a state, directly or later."""
        seen: set[int] = set()
        pending = [state]
        while pending:
            new = {after for after in self.after[pending.pop()] if after != ACCEPT} - seen
            seen |= new
            pending += new
        return seen

    def least_before(self) -> list[int]:
        """Return for each symbol how many rows of a match are at least before it; all are before the negated one."""
        least: dict[int, int] = {}
        shortest = None
        begin = set(self.first) - {ACCEPT}
        if self.may_be_empty:
            shortest = 0
        reached, depth, states = begin, 0, begin
        while states:
            for state in states:
                least.setdefault(self.symbol[state], depth)
            following = {after for state in states for after in self.after[state]}
            if ACCEPT in following and shortest is None:
                shortest = depth + 1
            states = following - reached - {ACCEPT}
            reached = reached | states
            depth += 1
        return [least.get(symbol, shortest or 0) for symbol, _ in enumerate(self.symbols)]

    @property
    def single(self) -> bool:
        """Whether no match has two rows."""
        return all(state == ACCEPT or set(self.after[state]) == {ACCEPT} for state in self.first)

    def can_match(self, forbidden: Iterable[int], *, after: Iterable[int] = ()) -> bool:
        """Whether a match may have no row of forbidden symbols, after a first row of the symbols `after` if given."""
        forbidden, wanted = set(forbidden), set(after)
        begin = wanted or {number for number, _ in enumerate(self.symbols)} - forbidden
        if self.may_be_empty and not wanted:
            return True
        pending = [state for state in self.first if state != ACCEPT and self.symbol[state] in begin]
        seen = set(pending)
        while pending:
            for state in self.after[pending.pop()]:
                if state == ACCEPT:
                    return True
                if self.symbol[state] not in forbidden and state not in seen:
                    seen.add(state)
                    pending.append(state)
        return False


def automaton_of(pattern: Pattern) -> Automaton:
    """Return the automaton of a pattern; raise if it is too large."""
    symbols = pattern.symbols
    if len(symbols) > MOST_SYMBOLS:
        raise OptionError(f"pattern={pattern.text!r}: has {len(symbols)} symbols; at most {MOST_SYMBOLS}")
    if not symbols:
        raise OptionError(f"pattern={pattern.text!r}: has no symbol; write one, such as '() | A'")
    builder = _Builder({name: at for at, name in enumerate(symbols)}, pattern.text)
    part = builder.build(pattern.root, excluded=False)
    if pattern.negated is not None and any(state == _DONE for state, _ in part.first):
        raise OptionError(
            f"pattern={pattern.text!r}: may match no rows, so nothing can follow a match; write + for *, or leave out "
            f"the !{pattern.negated}"
        )
    ways = [part.first, *(part.after[state] for state in range(len(builder.symbol)))]
    targets = [tuple(state for state, _ in way) for way in ways]
    guards = tuple(tuple(guard for _, guard in way) for way in ways)
    return Automaton(symbols, targets[0], tuple(targets[1:]), tuple(builder.symbol), tuple(builder.excluded), guards)


_Way = tuple[int, int]
_END: _Way = (_DONE, 0)


@dataclass
class _Part:
    """A part of a pattern: the states that it may begin with, and those after each state; `_DONE` ends the part.

    Each is a state with the anchors before it.
    """

    first: list[_Way]
    after: dict[int, list[_Way]]


class _Builder:
    def __init__(self, numbers: dict[str, int], text: str) -> None:
        self._numbers, self._text = numbers, text
        self.symbol: list[int] = []
        self.excluded: list[bool] = []
        self._size = 0

    def build(self, node: Node, *, excluded: bool) -> _Part:
        match node:
            case Symbol(name):
                state = len(self.symbol)
                if state == _MOST_STATES:
                    self._too_large()
                self.symbol.append(self._numbers[name])
                self.excluded.append(excluded)
                return _Part([(state, 0)], {state: [_END]})
            case Anchor(mark):
                return _Part([(_DONE, AT_BEGIN if mark == "^" else AT_END)], {})
            case Exclude(inner):
                return self.build(inner, excluded=True)
            case Sequence(parts):
                return self._chain([self.build(part, excluded=excluded) for part in parts] or [_Part([_END], {})])
            case Choice(parts):
                built = [self.build(part, excluded=excluded) for part in parts]
                first = list(dict.fromkeys(way for part in built for way in part.first))
                return _Part(first, {state: after for part in built for state, after in part.after.items()})
            case Repeat(inner, low, high, greedy):
                return self._repeat(inner, low, high, greedy, excluded=excluded)
        raise AssertionError(node)

    def _repeat(self, inner: Node, low: int, high: int | None, greedy: bool, *, excluded: bool) -> _Part:
        must = [self.build(inner, excluded=excluded) for _ in range(low)]
        may = [self.build(inner, excluded=excluded) for _ in range(1 if high is None else high - low)]
        # From the last copy to the first: what follows a copy is the next one, or the end.
        rest = _Part([_END], {})
        for part in reversed(may):
            # An iteration without a row does not count.
            begin = [way for way in part.first if way[0] != _DONE]
            first = [*begin, _END] if greedy else [_END, *begin]
            then = first if high is None else rest.first
            after = {state: self._joined(ways, then) for state, ways in part.after.items()}
            rest = _Part(first, {**after, **rest.after})
        return self._chain([*must, rest])

    def _chain(self, parts: list[_Part]) -> _Part:
        chain = parts[-1]
        for part in reversed(parts[:-1]):
            after = {state: self._joined(ways, chain.first) for state, ways in part.after.items()}
            chain = _Part(self._joined(part.first, chain.first), {**after, **chain.after})
        return chain

    def _joined(self, ways: list[_Way], then: list[_Way]) -> list[_Way]:
        """Return alternatives with the end replaced by `then`; of equal alternatives the first counts."""
        if all(state != _DONE for state, _ in ways):
            return ways
        joined = list(
            dict.fromkeys(
                (after, guard | further)
                for state, guard in ways
                for after, further in (then if state == _DONE else [(state, 0)])
            )
        )
        self._size += len(joined)
        if self._size > _MOST_SUCCESSORS:
            self._too_large()
        return joined

    def _too_large(self) -> None:
        raise OptionError(
            f"pattern={self._text!r}: is too large, with more than {_MOST_STATES:,} places of symbols or too many ways "
            "between them; repeat fewer times"
        )
