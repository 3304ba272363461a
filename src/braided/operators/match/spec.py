"""The options of a search for a pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.operators.match.automaton import AT_END, NEXT_ROW, PAST_LAST, TO_FIRST, TO_LAST, Automaton, automaton_of
from braided.operators.match.pattern import Pattern, parse_pattern, unquoted
from braided.operators.shared_options import LATENESS_TEXT, WithIdle
from braided.operators.spec import option
from braided.typing import Duration, Keys, Latenesses, RowsPerMatch

_AFTER = re.compile(
    r"(?:after +match +)?skip +(?:(past +last +row)|(to +next +row)|to +(first|last) +([A-Za-z_]\w*|`.+`|\".+\"))",
    re.IGNORECASE,
)
_TIE = re.compile(r"(\w+|`.+`)(?: +(ASC|DESC))?", re.IGNORECASE)
# Which rows the result has; the last one also includes rows without a match.
ROWS = ("one", "all", "all omit empty", "all with unmatched")
_SKIP = "write 'skip past last row', 'skip to next row', 'skip to first X' or 'skip to last X'"


@dataclass(frozen=True, kw_only=True)
class MatchSpec(WithIdle):
    """A pattern over the rows of each key, in order of event time.

    >>> MatchSpec(time="ts", pattern="A B", measures={"n": "count(*)"}, within="1 minute").to_json()["pattern"]
    'A B'
    """

    kind: ClassVar[str] = "match"

    time: str = option("The event-time column.")
    key: Keys = option(
        "The column, or columns, of the key: the pattern is searched among the rows of each key; null is a value like "
        "others. None: in the stream as a whole, on one worker.",
        default=None,
    )
    pattern: str = option(
        "Symbols, each standing for one row, and how they follow each other: ``A B`` one after the other, ``A | B``, "
        "``(A B)``, ``A? A* A+ A{n} A{n,} A{n,m}`` and their reluctant forms (``A*?``), ``PERMUTE(A, B)``, ``{- A -}`` "
        "for rows that are left out of the result, ``()`` for no row, ``^`` before the first row of a key, "
        "``$`` after the last row, and as the last part ``!A``: no A follows within the time."
    )
    define: Mapping[str, str] | None = option(
        "The condition of each symbol, a SQL predicate on the row and on earlier rows of the match: ``price > 10``, "
        "``price < prev(price)``, ``ip <> last(FAIL.ip)``, ``count(A.*) < 5``. A symbol without one matches every row.",
        default=None,
    )
    measures: Mapping[str, str] | None = option(
        "The columns of the result, SQL expressions over the rows of a match: ``first(A.ts)``, ``last(B.price)``, "
        "``count(*)``, ``avg(A.price)``. None: only the key, or all columns of the rows.",
        default=None,
    )
    subsets: Mapping[str, Sequence[str]] | None = option(
        "Names for several symbols together: ``{'AB': ['A', 'B']}``.", default=None
    )
    within: Duration | None = option(
        "The longest time from the first to the last row of a match. Needed unless every match has one row: otherwise "
        "rows would be stored for ever.",
        default=None,
    )
    after: str = option(
        "Where the search for the next match starts: ``'skip past last row'``, ``'skip to next row'``, ``'skip to "
        "first X'`` or ``'skip to last X'``.",
        default="skip past last row",
    )
    rows: RowsPerMatch = option(
        "``'one'`` row per match, with the key and the measures; or ``'all'`` rows of a match, with all their columns "
        "and the measures so far (with FINAL: of the whole match). A match without rows has one, the row at its "
        "position. ``'all omit empty'`` leaves these out; ``'all with unmatched'`` also returns the rows without a "
        "match.",
        default="one",
    )
    ties: Sequence[str] = option(
        "Columns that order rows of one time: ``['price DESC', 'id']``, then their content does; null is the least.",
        default=(),
    )
    forget: Duration | None = option(
        "For patterns that read rows before the first row of a match (``prev``, ``^``), the end of a key (``$``) or "
        "match numbers: after this long without a row a key ends and starts again, and its rows are removed. None: the "
        "last rows of every key are stored for ever.",
        default=None,
    )
    lateness: Latenesses = option(LATENESS_TEXT, default=None)
    idle: Duration | None = option(
        "Once the stream has been silent for this long, measured by the batches' timestamps, rows that wait to be in "
        "order are released; rows that come later with older times are late. None: they wait for the next row.",
        default=None,
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return ("input",)

    def time_of(self, stream: int) -> object:
        return self.time

    def check(self) -> None:
        super().check()
        pattern = parse_pattern(self.pattern)
        automaton = automaton_of(pattern)
        if not isinstance(self.time, str):
            raise OptionError(f"time={self.time!r}: write a column name")
        if self.rows not in ROWS:
            raise OptionError(f"rows={self.rows!r}: write {', '.join(map(repr, ROWS[:-1]))} or {ROWS[-1]!r}")
        if self.rows == ROWS[-1] and any(automaton.excluded):
            raise OptionError(
                f"rows={self.rows!r}: a row that {{- -}} leaves out would be neither matched nor unmatched; "
                "write 'all', or the pattern without {- -}"
            )
        self._check_names(pattern)
        self.order_of_ties()
        self.within_us(pattern, automaton)
        self.skip(automaton)

    def _check_names(self, pattern: Pattern) -> None:
        known = {name.upper() for name in pattern.symbols}
        shown = ", ".join(pattern.symbols)
        for option_, names in (("define", self.define), ("measures", self.measures), ("subsets", self.subsets)):
            if not isinstance(names or {}, Mapping) or not all(isinstance(name, str) for name in names or {}):
                raise OptionError(f"{option_}={names!r}: write a dict with names as keys")
            folded = [name.upper() for name in names or {}]
            twice = [name for name in names or {} if folded.count(name.upper()) > 1]
            if twice:
                raise OptionError(
                    f"{option_}: {twice[0]!r} is there twice, and names are case-insensitive; leave one out"
                )
        if not self.measures and self.rows == "one" and not self.key:
            raise OptionError(
                f"measures={self.measures!r}: the result would have no column; write at least one, such as "
                "{'first': 'first(A.ts)'}"
            )
        for name in self.define or {}:
            if name.upper() not in known:
                raise OptionError(f"define[{name!r}]: the pattern has no such symbol; it has {shown}")
        for name, members in (self.subsets or {}).items():
            if name.upper() in known:
                raise OptionError(f"subsets[{name!r}]: the pattern has a symbol of that name; choose another")
            if not isinstance(members, list | tuple) or not members:
                raise OptionError(f"subsets[{name!r}]={members!r}: write a list of symbols")
            for member in members:
                if str(member).upper() not in known:
                    raise OptionError(f"subsets[{name!r}]: the pattern has no symbol {member!r}; it has {shown}")

    def within_us(self, pattern: Pattern, automaton: Automaton) -> int | None:
        """Return the longest time of a match in microseconds."""
        if self.within is None:
            if automaton.single and pattern.negated is None and (self.forget or not automaton.anchors & AT_END):
                return None
            raise OptionError(
                f"within=None: rows of {self.pattern!r} would be stored for ever; write how long a match may take, "
                "such as '5 minutes'"
            )
        micros = parse_duration(self.within, "within")
        if micros < 0:
            raise OptionError(f"within={self.within!r}: negative; write '0 seconds' or more")
        return micros

    def order_of_ties(self) -> tuple[tuple[str, bool], ...]:
        """Return the columns of `ties`, and which are descending."""
        if isinstance(self.ties, str) or not isinstance(self.ties, list | tuple):
            raise OptionError(f"ties={self.ties!r}: write a list of columns, such as ['price DESC', 'id']")
        out: list[tuple[str, bool]] = []
        for column in self.ties:
            match = _TIE.fullmatch(column) if isinstance(column, str) else None
            if not match:
                raise OptionError(f"ties={self.ties!r}: {column!r}: write a column, with ASC or DESC if wanted")
            name = unquoted(match[1])
            if name in [self.time, *(known for known, _ in out)]:
                raise OptionError(f"ties={self.ties!r}: {name} is there twice, or the time; name each once")
            out.append((name, (match[2] or "").upper() == "DESC"))
        return tuple(out)

    def forget_us(self, longest: int, *, needed: bool) -> int | None:
        """Return after how many microseconds without a row a key starts again."""
        if self.forget is None:
            return None
        if not needed:
            raise OptionError(
                f"forget={self.forget!r}: only open matches of a key are stored, since no expression reads rows before "
                "them; leave it out"
            )
        micros = parse_duration(self.forget, "forget")
        if micros < longest:
            raise OptionError(
                f"forget={self.forget!r}: matches may be open for longer; write at least within={self.within!r}, and "
                "twice that with NEXT"
            )
        return micros

    def skip(self, automaton: Automaton) -> tuple[int, int]:
        """Return where to go on after a match, and the bits of the symbols to skip to."""
        match = _AFTER.fullmatch(self.after.strip()) if isinstance(self.after, str) else None
        if not match:
            raise OptionError(f"after={self.after!r}: {_SKIP}")
        if not match[4]:
            return (PAST_LAST if match[1] else NEXT_ROW), 0
        symbol = unquoted(match[4])
        members = next((of for name, of in (self.subsets or {}).items() if name.upper() == symbol.upper()), [symbol])
        names = [name.upper() for name in automaton.symbols]
        numbers = [names.index(name.upper()) for name in members if name.upper() in names]
        if not numbers:
            raise OptionError(
                f"after={self.after!r}: the pattern has no symbol {symbol!r}; it has {', '.join(automaton.symbols)}"
            )
        last = match[3].lower() == "last"
        if automaton.can_match(numbers):
            raise OptionError(
                f"after={self.after!r}: a match may have no {symbol}; skip to a symbol that every match has"
            )
        if automaton.can_match(numbers if last else (), after=numbers):
            raise OptionError(
                f"after={self.after!r}: this may be the first row of the match, from which the same match would be "
                "found again; skip to next row, or to another symbol"
            )
        return (TO_LAST if last else TO_FIRST), sum(1 << number for number in set(numbers))
