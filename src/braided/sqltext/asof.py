"""ASOF JOIN in a query's text: removed before the text is parsed, because sqlglot and older Sparks do not support it.

```
 FROM trades t LEFT ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.symbol = q.symbol
   ->  FROM trades t LEFT      JOIN quotes q                              ON t.symbol = q.symbol
       and for that join: t.ts >= q.ts
```

The removed text becomes spaces, so that the rest keeps its lines and columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.expressions.conjuncts import conjuncts
from braided.expressions.dialect import Braided
from braided.sqltext.conditions import Bound, bound, position, ties
from braided.sqltext.joins import Match, Source, Step, split_keys
from braided.sqltext.words import Words, only
from braided.typing import How

_MATCHES = {
    exp.GTE: Match("backward", True),
    exp.GT: Match("backward", False),
    exp.LTE: Match("forward", True),
    exp.LT: Match("forward", False),
}
_FLIPPED = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT}
_KINDS = ("INNER", "LEFT", "OUTER", "RIGHT", "FULL", "SEMI", "ANTI", "CROSS")
_EXAMPLE = "ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.symbol = q.symbol"


@dataclass(frozen=True)
class AsofClause:
    """The match condition of an as-of join, and the range of characters of its right input."""

    start: int
    stop: int
    condition: exp.Expression
    place: str


def take_asof(text: str) -> tuple[str, list[AsofClause]]:
    """Return a text whose as-of joins are plain joins, and their match conditions."""
    if "ASOF" not in text.upper():
        return text, []
    words = Words(text)
    clauses, blanks = [], []
    for at in range(len(words)):
        if not words.says(at, "ASOF"):
            continue
        join = at + 1
        while words.says(join, words.tokens[join].text.upper()) and words.tokens[join].text.upper() in _KINDS:
            join += 1
        if not words.says(join, "JOIN"):
            continue  # the name of a column or an alias
        for kind in (*range(at + 1, join), at - 1):
            if kind >= 0 and words.tokens[kind].text.upper() in ("RIGHT", "FULL", "SEMI", "ANTI", "CROSS"):
                raise OptionError(
                    f"sql: {words.place(at)}: a {words.tokens[kind].text.upper()} ASOF JOIN is not supported; write "
                    "ASOF JOIN, or LEFT ASOF JOIN to keep rows without a match"
                )
        match = _match_word(words, join)
        close = words.close(match + 1)
        blanks += [(words.start(at), words.stop(at)), (words.start(match), words.stop(close))]
        inside = only(text, [(words.start(match + 2), words.start(close))])
        try:
            condition = sqlglot.parse_one(inside, dialect=Braided, into=exp.Condition)
        except SqlglotError as error:
            raise OptionError(
                f"sql: {words.place(match)}: MATCH_CONDITION cannot be parsed: {str(error).splitlines()[0]}"
            ) from error
        clauses.append(AsofClause(words.start(join), words.start(match), condition, words.place(match)))
    for start, stop in blanks:
        text = text[:start] + only(text[start:stop], []) + text[stop:]
    return text, clauses


def _match_word(words: Words, join: int) -> int:
    """Return the position of a join's MATCH_CONDITION."""
    depth_end, at = words.end_around(join), join + 1
    while at < depth_end:
        if words.says(at, "MATCH_CONDITION", "("):
            return at
        if words.says(at, "ON") or words.says(at, "JOIN"):
            break
        at = words.close(at) + 1 if words.says(at, "(") else at + 1
    raise OptionError(
        f"sql: {words.place(join)}: an ASOF JOIN needs a MATCH_CONDITION (...) after its input: {_EXAMPLE}"
    )


def place_matches(tree: exp.Expression, clauses: Sequence[AsofClause]) -> dict[int, exp.Expression]:
    """Return the match conditions of joins, by the id of the join."""
    placed = {}
    for clause in clauses:
        inside = [
            (first, join)
            for join in tree.find_all(exp.Join)
            if (first := _first(join.this)) is not None and clause.start < first < clause.stop
        ]
        # Joins inside the input begin later.
        placed[id(min(inside, key=lambda each: each[0])[1])] = clause.condition
    return placed


def _first(node: exp.Expression) -> int | None:
    starts = [each.meta["start"] for each in node.find_all(exp.Identifier) if "start" in each.meta]
    return min(starts, default=None)


def asof_step(
    joined: Sequence[str],
    join: exp.Join,
    condition: exp.Expression,
    parts: Sequence[exp.Expression],
    sources: Mapping[str, Source],
    tolerance: str | None,
    how: How,
) -> Step:
    """Return the as-of join of a stream with the streams before it."""
    alias = join.alias_or_name

    def is_time(column: exp.Column) -> bool:
        return sources[column.table].is_time(column.name)

    conditions = [_qualified(part, [*joined, alias], sources) for part in conjuncts(condition)]
    bounds = [(part, bound(part, is_time)) for part in conditions]
    first = bounds[0][1]
    if first is None or first.constants or first.subtracts or first.op not in _MATCHES:
        _refuse(condition, alias, joined)
    is_left = first.plus.table != alias
    op = first.op if is_left else _FLIPPED[first.op]
    times = (first.plus, first.minus) if is_left else (first.minus, first.plus)
    if {times[0].table, times[1].table} == {alias} or times[1].table != alias:
        _refuse(condition, alias, joined)
    if any(each is None for _, each in bounds):
        _refuse(condition, alias, joined)
    limits: list[Bound] = [each for _, each in bounds[1:] if each is not None]
    others = []
    for part in parts:
        each = bound(part, is_time)
        if each is not None and alias in (each.plus.table, each.minus.table):
            limits.append(each)
        else:
            others.append(part)
    if any(ties(each) != ties(first) for each in limits):
        _refuse(condition, alias, joined)
    keys, rest = split_keys(others, alias)
    if rest:
        raise OptionError(
            f"sql: {position(rest[0])}: the condition of an ASOF JOIN can only have equalities of columns and a bound "
            f"on the two times; write {rest[0].sql()} in a subquery or in WHERE"
        )
    match = _MATCHES[op]
    if tolerance is not None:
        micros = parse_duration(tolerance, "tolerance")
        amount = exp.Interval(this=exp.Literal.string(str(micros)), unit=exp.var("MICROSECONDS"))
        # right - left is at least -tolerance, or at most tolerance
        sign, far = (-1, exp.GTE) if match.direction == "backward" else (1, exp.LTE)
        limits.append(Bound(times[1], times[0], far, ((sign, amount),), False, condition, assumed=True))
    return Step(tuple(joined), alias, keys, limits, times, [], "left" if how == "left" else "inner", match)


def _qualified(part: exp.Expression, aliases: Sequence[str], sources: Mapping[str, Source]) -> exp.Expression:
    """Return a condition whose columns have the aliases of their inputs, like all other columns of the query."""
    copy = part.copy()
    for column in copy.find_all(exp.Column):
        name, table = column.name.lower(), column.table.lower()
        owners = [alias for alias in aliases if name in sources[alias].types and table in ("", alias)]
        if len(owners) != 1:
            why = (
                "is a column of several inputs; write its table before it"
                if owners
                else "is not a column of its inputs"
            )
            raise OptionError(f"sql: {position(column)}: MATCH_CONDITION: {column.sql()} {why}")
        column.set("this", exp.to_identifier(name, quoted=True))
        column.set("table", exp.to_identifier(owners[0], quoted=True))
    return copy


def _refuse(condition: exp.Expression, alias: str, joined: Sequence[str]) -> NoReturn:
    raise OptionError(
        f"sql: {position(condition)}: MATCH_CONDITION ({condition.sql()}) must compare the time of {alias} with that "
        f"of {' or '.join(joined)} by >=, >, <= or <; write their largest distance as a bound in ON, or in a hint: "
        f"/*+ BRAIDED('{alias}', 'tolerance=5 seconds') */"
    )


def take_tolerances(hints: dict[str, list[str]]) -> dict[str, str]:
    """Return the tolerances in hints, by alias, and remove them from the hints."""
    tolerances = {}
    for alias, options in hints.items():
        for text in list(options):
            name, _, value = (part.strip() for part in text.partition("="))
            if name.lower() == "tolerance":
                options.remove(text)
                tolerances[alias] = value
    return tolerances
