"""Cut joins of streams out of a query's text: what each joins, by what, and what is left to Spark.

```
 SELECT ... FROM a JOIN b ON <keys, times, rest> JOIN s ON ...      a, b streams; s a table
   ->  j = a JOIN b      ours: keys, bounds on times, the rest as a predicate, columns that are read
       SELECT ... FROM j JOIN s ON ...                              as text, to Spark
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.conjuncts import conjuncts
from braided.sqltext.caps import Caps, capped, check_caps, take_caps
from braided.sqltext.conditions import Bound, bound, equality, position, tables_of, ties, two_sided

_INNER = {"", "INNER", "CROSS"}
_WINDOW = "struct<start:timestamp"


class LeftToSparkError(Exception):
    """The joins of a SELECT are ones that Spark does by itself."""


@dataclass
class Source:
    """An input of a SELECT: its alias, its columns with their types in Spark's words, whether it is a stream."""

    alias: str
    node: exp.Expression
    types: Mapping[str, str]
    streaming: bool
    marked: frozenset[str] = frozenset()
    """The columns with a watermark."""

    def is_time(self, name: str) -> bool:
        """Whether a column is a timestamp."""
        return self.types.get(name) in ("timestamp", "timestamp_ntz")


@dataclass
class Step:
    """One join of two streams, or of the streams joined so far with one more."""

    left: tuple[str, ...]
    right: str
    keys: list[tuple[exp.Column, exp.Column]]
    """(of the streams on the left, of the one on the right)"""
    bounds: list[Bound]
    times: tuple[exp.Column, exp.Column]
    rest: list[exp.Expression]
    """Conditions on both, which the join evaluates for each pair."""


@dataclass
class Cut:
    """The joins of streams of one SELECT, in order, with what each stream is filtered by and which columns are read."""

    first: str
    steps: list[Step]
    filters: dict[str, list[exp.Expression]]
    columns: dict[str, list[str]]
    hints: dict[str, list[str]] = field(default_factory=dict)
    capped: list[str] = field(default_factory=list)
    """What is to be said of bounds that only a hint gives."""


def cut_select(select: exp.Select, sources: Mapping[str, Source]) -> Cut | None:
    """Take the joins of streams out of a SELECT, whose columns are all qualified; None if it has none.

    Raises `LeftToSparkError`, and leaves the SELECT as it is but for its hints, where windows are joined as a whole.
    The SELECT keeps its other joins and conditions; its columns of streams still have their old qualifiers, and its
    first table is what it was.
    """
    joins: list[exp.Join] = list(select.args.get("joins") or [])
    start = select.args.get("from_") or select.args.get("from")
    if start is None or not joins:
        return None
    streams = [alias for alias in _order(start, joins) if sources[alias].streaming]
    if len(streams) < 2:
        return None
    for join in joins:
        _check_inner(join, sources)
    where = select.args.get("where")
    parts = [part for join in joins if _is_stream(join, sources) for part in conjuncts(join.args.get("on"))]
    first = start.this.alias_or_name
    parts += conjuncts(where.this if where is not None else None)
    filters: dict[str, list[exp.Expression]] = {alias: [] for alias in streams}
    kept: list[exp.Expression] = []
    between: list[exp.Expression] = []
    for part in parts:
        used = tables_of(part)
        if part.find(exp.Query) or not used or not used <= set(streams):
            kept.append(part)
        elif len(used) == 1:
            filters[used.pop()].append(part)
        else:
            between.append(part)
    hints = _hints(select)
    for alias in hints:
        if alias not in streams:
            raise OptionError(
                f"sql: the hint BRAIDED({alias!r}, ...): no stream has that alias; it is one of "
                f"{', '.join(sorted(streams))}"
            )
    caps = take_caps(hints, lambda alias, name: sources[alias].is_time(name))
    try:
        steps = _steps(streams, between, sources, caps)
    except LeftToSparkError as why:
        if hints:
            raise LeftToSparkError(f"{why}, and the hint BRAIDED changes nothing there") from why
        raise
    said = check_caps(caps, [(step.right, step.bounds) for step in steps])
    tables = [join for join in joins if not _is_stream(join, sources)]
    if not sources[first].streaming:
        # The query starts with a table: it is joined after the streams.
        tables = [exp.Join(this=start.this.copy(), kind="CROSS"), *tables]
    select.set("joins", tables)
    select.set("where", exp.Where(this=exp.and_(*kept)) if kept else None)
    return Cut(streams[0], steps, filters, _columns(select, streams, steps), hints, said)


def _order(start: exp.Expression, joins: Sequence[exp.Join]) -> list[str]:
    return [start.this.alias_or_name, *(join.alias_or_name for join in joins)]


def _is_stream(join: exp.Join, sources: Mapping[str, Source]) -> bool:
    return sources[join.alias_or_name].streaming


def _check_inner(join: exp.Join, sources: Mapping[str, Source]) -> None:
    kind = (join.side or join.kind or "").upper()
    if _is_stream(join, sources) and kind not in _INNER:
        raise OptionError(
            f"sql: {position(join)}: a {kind} JOIN of streams is not supported yet; write it with "
            "braided.join(how=...), or leave this query to spark.sql"
        )
    if not _is_stream(join, sources) and (join.side or "").upper() in ("RIGHT", "FULL"):
        raise OptionError(f"sql: {position(join)}: a {kind} JOIN with a table beside joins of streams is not supported")


def _steps(
    streams: Sequence[str],
    between: Sequence[exp.Expression],
    sources: Mapping[str, Source],
    caps: Caps,
) -> list[Step]:
    """Join the streams one by one, each as soon as a bound ties it to those before it."""

    def is_time(column: exp.Column) -> bool:
        return sources[column.table].is_time(column.name)

    joined, waiting, steps = [streams[0]], list(streams[1:]), []
    pending = list(between)
    while waiting:
        for alias in waiting:
            known = {*joined, alias}
            usable = [part for part in pending if tables_of(part) <= known]
            bounds = [
                (part, found)
                for part in usable
                if (found := bound(part, is_time)) is not None and alias in tables_of(part)
            ]
            bounds += capped(bounds, alias, caps, lambda column: column.name in sources[column.table].marked)
            times = two_sided(bounds, alias)
            if times is not None:
                break
        else:
            node = sources[waiting[0]].node
            if any(_is_by_window(part, waiting[0], sources) for part in pending):
                raise LeftToSparkError(f"{waiting[0]} is joined by whole windows: that join is Spark's own")
            raise OptionError(
                f"sql: {position(node)}: no bounds on both sides tie the time of {waiting[0]} to that of "
                f"{' or '.join(joined)}; write for example {waiting[0]}.ts BETWEEN {joined[0]}.ts - INTERVAL 10 "
                f"SECONDS AND {joined[0]}.ts + INTERVAL 10 SECONDS, or how far apart they are at most in a hint: "
                f"/*+ BRAIDED('{waiting[0]}', 'cap=1 hour') */"
            )
        chosen = [(part, found) for part, found in bounds if ties(found) == {times[0].sql(), times[1].sql()}]
        taken = {id(part) for part, found in chosen if not found.assumed}
        keys, rest = [], []
        for part in usable:
            pair = equality(part)
            if id(part) in taken:
                continue
            if pair is not None and alias in (pair[0].table, pair[1].table):
                keys.append(pair if pair[1].table == alias else (pair[1], pair[0]))
            else:
                rest.append(part)
        steps.append(Step(tuple(joined), alias, keys, [found for _, found in chosen], times, rest))
        pending = [part for part in pending if not any(part is used for used in usable)]
        joined.append(alias)
        waiting.remove(alias)
    return steps


def _is_by_window(part: exp.Expression, alias: str, sources: Mapping[str, Source]) -> bool:
    """Whether a condition asks the window of a stream to be that of another."""
    both = equality(part)
    if both is None or alias not in (both[0].table, both[1].table):
        return False
    return all(sources[column.table].types.get(column.name, "").startswith(_WINDOW) for column in both)


def _columns(select: exp.Select, streams: Sequence[str], steps: Sequence[Step]) -> dict[str, list[str]]:
    """Return the columns of each stream that its joins read, or anything that is left after them."""
    used: dict[str, dict[str, None]] = {alias: {} for alias in streams}
    joined = [part for step in steps for pair in step.keys for part in pair]
    joined += [time for step in steps for time in step.times]
    joined += [column for step in steps for part in step.rest for column in part.find_all(exp.Column)]
    for column in [*own_columns(select), *joined]:
        if column.table in used:
            used[column.table][column.name] = None
    return {alias: list(names) for alias, names in used.items()}


def own_columns(select: exp.Select) -> list[exp.Column]:
    """Return the columns that a SELECT reads itself, not those inside its inputs."""

    def is_input(node: exp.Expression) -> bool:
        return isinstance(node, exp.With) or (
            isinstance(node, exp.Subquery) and isinstance(node.parent, exp.From | exp.Join)
        )

    return [node for node in select.walk(prune=is_input) if isinstance(node, exp.Column)]


def own_nodes(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield the parts of a SELECT without those of any query inside it."""

    def is_other(node: exp.Expression) -> bool:
        return isinstance(node, exp.With) or (isinstance(node, exp.Query) and node is not select)

    yield from select.walk(prune=is_other)


def keep_left(tree: exp.Expression) -> None:
    """Let a column that USING or NATURAL joins by be the left one, as Spark has it in inner and left joins.

    sqlglot writes ``COALESCE(a.k, b.k)`` for it. Whether Spark agrees is checked afterwards, as for every rewriting.
    """
    for node in list(tree.find_all(exp.Coalesce)):
        parts = [node.this, *node.expressions]
        same = all(isinstance(part, exp.Column) and part.name == parts[0].name and part.table for part in parts)
        if same and len({part.table for part in parts}) == len(parts):
            node.replace(parts[0].copy())


def _hints(select: exp.Select) -> dict[str, list[str]]:
    """Return the options that a hint gives to joins, by the alias of an input; and take it out."""
    found: dict[str, list[str]] = {}
    hint = select.args.get("hint")
    for each in hint.expressions if hint is not None else ():
        if str(each.name).upper() != "BRAIDED":
            continue
        given = [value.this if isinstance(value, exp.Literal) else value.sql() for value in each.expressions]
        if not given:
            raise OptionError("sql: the hint BRAIDED needs the alias of an input: BRAIDED('a', 'lateness=30 seconds')")
        found.setdefault(given[0].lower(), []).extend(given[1:])
    if found and hint is not None:
        others = [each for each in hint.expressions if str(each.name).upper() != "BRAIDED"]
        select.set("hint", exp.Hint(expressions=others) if others else None)
    return found
