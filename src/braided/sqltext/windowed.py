"""A windowed aggregate as options: what is grouped by, how long windows are, and a value by name for each group."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.sqltext.dialect import Braided
from braided.sqltext.merge import KINDS, Total
from braided.typing import Duration, Keys

WINDOW = "window"


@dataclass(frozen=True)
class Value:
    """One value of each group: an expression as it was written and, where it is a plain aggregate, of what."""

    name: str
    text: str
    kind: Total | None
    of: str | exp.Expression | None
    """The column, or an expression of columns, that it is of; None for the rows themselves."""
    problem: str | None = None
    """Why it is no plain aggregate, where it only looks like one."""


@dataclass(frozen=True)
class Windowed:
    """A windowed aggregate, checked as far as it can be without the columns.

    >>> Windowed.of(by="cell", window="1 minute", every="25 seconds", values={"n": "count(*)"}).pane
    5000000
    """

    by: tuple[str, ...]
    time: str | None
    size: int
    slide: int
    values: tuple[Value, ...]

    @classmethod
    def of(
        cls,
        *,
        by: Keys,
        window: Duration | None,
        every: Duration | int | None = None,
        time: str | None = None,
        values: Mapping[str, str],
    ) -> Windowed:
        """Check options and return the aggregate."""
        if window is None:
            raise OptionError("aggregate: give window=, a duration, or rows=, a number of rows")
        keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
        size = parse_duration(window, "window")
        slide = size if every is None else parse_duration(every, "every")
        if size <= 0:
            raise OptionError(f"window={window!r}: write a duration of more than nothing")
        if not 0 < slide <= size:
            raise OptionError(f"every={every!r}: write a duration of more than nothing, and window={window!r} at most")
        if not values:
            raise OptionError("aggregate: give at least one value, such as n='count(*)'")
        for at, key in enumerate(keys):
            if str(key).lower() in [str(other).lower() for other in keys[:at]]:
                raise OptionError(f"by={key!r}: names a column twice; name it once")
        taken = {WINDOW, *(key.lower() for key in keys)}
        for name in values:
            if name.lower() in taken:
                raise OptionError(f"{name}=: the result has a column of that name already; choose another")
        return cls(keys, time, size, slide, tuple(_value(name, text) for name, text in values.items()))

    @property
    def pane(self) -> int:
        """The longest stretch of time that no window cuts."""
        return math.gcd(self.size, self.slide)


def _value(name: str, text: object) -> Value:
    if not isinstance(text, str):
        raise OptionError(f"{name}={text!r}: write an aggregate as text, such as 'count(*)' or 'avg(duration)'")
    try:
        tree = sqlglot.parse_one(text, dialect=Braided)
    except SqlglotError as error:
        raise OptionError(
            f"{name}={text!r}: does not parse; write an aggregate such as 'count(*)' or 'avg(duration)'"
        ) from error
    if tree.find(exp.Query):
        raise OptionError(f"{name}={text!r}: a subquery is no aggregate; join with its result before")
    called = tree.find(exp.Anonymous, exp.AnonymousAggFunc, exp.Any)
    if tree.find(exp.AggFunc) is None and called is None:
        raise OptionError(f"{name}={text!r}: is no aggregate; write for example 'max({text})', or add it to by=")
    kind = KINDS.get(type(tree))
    plain = kind is not None and not tree.expressions
    if plain and kind == "count" and isinstance(tree.this, exp.Star | exp.Literal):
        return Value(name, text, kind, None)
    if plain and isinstance(tree.this, exp.Column) and not tree.this.table:
        return Value(name, text, kind, tree.this.name)
    if plain and _is_computed(tree.this):
        return Value(name, text, kind, tree.this)
    return Value(name, text, None, None, _problem(tree, kind))


def _is_computed(argument: exp.Expression | None) -> bool:
    """Whether it is an expression of columns of one row."""
    if argument is None or argument.find(exp.AggFunc, exp.Distinct, exp.Star, exp.Anonymous, exp.Window):
        return False
    columns = list(argument.find_all(exp.Column))
    return bool(columns) and not any(column.table for column in columns)


def _problem(tree: exp.Expression, kind: Total | None) -> str | None:
    """Return what keeps an expression from being a plain aggregate; None where it is one that is not known here."""
    known = sorted(set(KINDS.values()))
    if isinstance(tree, exp.Alias):
        return "the option is its name; leave the name in the text out"
    if isinstance(tree, exp.Any):
        return "no such aggregate; did you mean bool_or?"
    if isinstance(tree, exp.Anonymous):
        close = difflib.get_close_matches(str(tree.this).lower(), known, n=1, cutoff=0.7)
        return "no such aggregate; " + (f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}")
    if isinstance(tree, exp.IgnoreNulls | exp.RespectNulls):
        return "first and last see nulls too; leave them out before the join"
    if kind is None:
        return None if isinstance(tree, exp.AggFunc) else "more than an aggregate; compute with its value afterwards"
    argument = tree.this
    if argument is None or isinstance(argument, exp.Star):
        return f"of no column; write {kind} and a column in brackets"
    if tree.expressions or isinstance(argument, exp.Distinct):
        return f"of more than one column, or of distinct values; write {kind} and one column in brackets"
    if argument.find(exp.AggFunc):
        return "an aggregate inside another; aggregate twice"
    return "of more than columns; compute it in the streams, before the join"


def check_kind(window: object, rows: object, forget: object) -> None:
    """Refuse options of windows of time beside those of windows of a number of rows."""
    if isinstance(rows, str):
        raise OptionError(f"rows={rows!r}: is how many rows a window has; give the value another name")
    if rows is not None and window is not None:
        raise OptionError(f"window={window!r}: a window has this duration, or a number of rows=; give one of them")
    if rows is None and forget is not None:
        raise OptionError(f"forget={forget!r}: is for windows of a number of rows=; leave it out")


def as_rows(every: Duration | int | None) -> int | None:
    """Return how many rows later the next window begins."""
    if every is None or isinstance(every, int):
        return every
    raise OptionError(f"every={every!r}: windows have a number of rows=; write how many rows later the next one begins")


def find_column(name: object, columns: Sequence[str], option: str) -> str:
    """Return a column as it is written in the stream, without regard to case; else say which was meant perhaps."""
    if name in columns:
        return str(name)
    folded = [column for column in columns if column.lower() == str(name).lower()]
    if len(folded) == 1:
        return folded[0]
    close = difflib.get_close_matches(str(name), columns, n=1)
    meant = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(columns)}"
    raise OptionError(f"{option}={name!r}: no such column; {meant}")


def check_options(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse options that there are not, and say which was meant perhaps."""
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]}=?" if close else f"there are {', '.join(names)}"
            raise OptionError(f"{name}=: no option of {what}; {meant}")
