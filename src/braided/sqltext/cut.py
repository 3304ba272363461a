"""Cut the joins of streams out of a query's text: their streams, keys and bounds, and the rest for Spark.

```
 SELECT ... FROM a JOIN b ON <keys, times, rest> JOIN s ON ...      a, b streams; s a table
   ->  j = a JOIN b      in Braided: keys, bounds on times, the rest as a predicate, columns that are read
       SELECT ... FROM j JOIN s ON ...                              in Spark, as text
```
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.conjuncts import conjuncts
from braided.sqltext.asof import take_tolerances
from braided.sqltext.caps import Caps, check_caps, take_caps
from braided.sqltext.conditions import position, tables_of
from braided.sqltext.joins import Cut, LeftToSparkError, Source, Step, find_step, no_bounds
from braided.sqltext.kinds import OrderedJoins, called, is_plain, kind_of


def cut_select(
    select: exp.Select,
    sources: Mapping[str, Source],
    matches: Mapping[int, exp.Expression] | None = None,
    cap: int | None = None,
) -> Cut | None:
    """Remove the joins of streams from a SELECT, whose columns are all qualified, and return them; None without any.

    If windows are joined as a whole, it raises `LeftToSparkError`, and changes only the hints of the SELECT. The SELECT
    keeps its other joins and conditions. Its columns of streams keep their old qualifiers, and its first table stays
    the same. `matches` has the match conditions of as-of joins, by the id of the join. `cap` is the largest distance of
    two times with a bound on one side only.
    """
    joins: list[exp.Join] = list(select.args.get("joins") or [])
    start = select.args.get("from_") or select.args.get("from")
    if start is None or not joins:
        return None
    if sum(source.streaming for source in sources.values()) < 2:
        return None
    _refuse_nested(start, joins, sources)
    streams = [alias for alias in _order(start, joins) if sources[alias].streaming]
    _check_tables(joins, sources)
    where = select.args.get("where")
    conditions = conjuncts(where.this if where is not None else None)
    first = start.this.alias_or_name
    hints = _hints(select)
    for alias in hints:
        if alias not in streams:
            raise OptionError(
                f"sql: the hint BRAIDED({alias!r}, ...): no stream has this alias; use one of "
                f"{', '.join(sorted(streams))}"
            )
    caps = take_caps(hints, lambda alias, name: sources[alias].is_time(name), cap)
    own = [join for join in joins if _is_stream(join, sources)]
    filters: dict[str, list[exp.Expression]] = {alias: [] for alias in streams}
    remaining: list[exp.Expression] = []
    if all(is_plain(join, matches or {}) for join in own):
        between: list[exp.Expression] = []
        for part in [*(part for join in own for part in conjuncts(join.args.get("on"))), *conditions]:
            used = tables_of(part)
            if part.find(exp.Query) or not used or not used <= set(streams):
                remaining.append(part)
            elif len(used) == 1:
                filters[used.pop()].append(part)
            else:
                between.append(part)
        try:
            steps = _inner_steps(streams, between, sources, caps)
        except LeftToSparkError as why:
            if hints:
                raise LeftToSparkError(f"{why}, so the hint BRAIDED has no effect") from why
            raise
    else:
        if not sources[first].streaming:
            raise OptionError(
                f"sql: {position(start)}: a query with outer, semi or anti joins of streams must start with a stream; "
                f"write the table {first} after the streams"
            )
        ordered = OrderedJoins(first, own, sources, caps, matches or {})
        steps = ordered.steps(conditions, take_tolerances(hints))
        filters, remaining = ordered.filters, ordered.on_result
    caps_error = check_caps(caps, [(step.right, step.bounds) for step in steps if step.match is None])
    tables = [join for join in joins if not _is_stream(join, sources)]
    if not sources[first].streaming:
        # The query starts with a table: it is joined after the streams.
        tables = [exp.Join(this=start.this.copy(), kind="CROSS"), *tables]
    select.set("joins", tables)
    select.set("where", exp.Where(this=exp.and_(*remaining)) if remaining else None)
    read = list(dict.fromkeys((column.table, column.name) for column in own_columns(select)))
    return Cut(streams[0], steps, filters, _columns(read, streams, steps), hints, caps_error, read)


def _order(start: exp.Expression, joins: Sequence[exp.Join]) -> list[str]:
    return [start.this.alias_or_name, *(join.alias_or_name for join in joins)]


def _is_stream(join: exp.Join, sources: Mapping[str, Source]) -> bool:
    return sources[join.alias_or_name].streaming


def _refuse_nested(start: exp.Expression, joins: Sequence[exp.Join], sources: Mapping[str, Source]) -> None:
    """Raise if there are joins inside an input, because these have no alias."""
    for each in (start, *joins):
        if each.this.args.get("joins") or each.alias_or_name not in sources:
            raise OptionError(
                f"sql: {position(each)}: a join inside a join is not supported; write it as a subquery with an "
                "alias: (SELECT ... FROM b JOIN c ON ...) q"
            )


def _check_tables(joins: Sequence[exp.Join], sources: Mapping[str, Source]) -> None:
    """Raise if there are joins with tables that Spark cannot run after the joins of the streams."""
    tables = [join for join in joins if not _is_stream(join, sources)]
    for join in tables:
        if kind_of(join) in ("right", "full"):
            raise OptionError(
                f"sql: {position(join)}: a {called(join)} with a table, together with joins of streams, is not "
                "supported; join the table in another query"
            )
    for at, join in enumerate(joins):
        if (
            _is_stream(join, sources)
            and kind_of(join) in ("right", "full")
            and not all(_is_stream(before, sources) for before in joins[:at])
        ):
            raise OptionError(
                f"sql: {position(join)}: a {called(join)} of streams after a join with a table is not supported; join "
                "the table in a subquery, or after the streams"
            )


def _inner_steps(
    streams: Sequence[str],
    between: Sequence[exp.Expression],
    sources: Mapping[str, Source],
    caps: Caps,
) -> list[Step]:
    """Join the streams one by one, each as soon as it has bounds with the streams before it."""
    joined, waiting, steps = [streams[0]], list(streams[1:]), []
    pending = list(between)
    while waiting:
        for alias in waiting:
            usable = [part for part in pending if tables_of(part) <= {*joined, alias}]
            step = find_step(joined, alias, usable, sources, caps)
            if step is not None:
                break
        else:
            raise no_bounds(joined, waiting[0], pending, sources)
        steps.append(step)
        pending = [part for part in pending if not any(part is used for used in usable)]
        joined.append(alias)
        waiting.remove(alias)
    return steps


def _columns(read: Iterable[tuple[str, str]], streams: Sequence[str], steps: Sequence[Step]) -> dict[str, list[str]]:
    """Return the columns of each stream that its joins or the rest of the query read."""
    used: dict[str, dict[str, None]] = {alias: {} for alias in streams}
    for alias, name in [*read, *((column.table, column.name) for step in steps for column in step.columns)]:
        if alias in used:
            used[alias][name] = None
    return {alias: list(names) for alias, names in used.items()}


def own_columns(select: exp.Select) -> list[exp.Column]:
    """Return the columns that a SELECT reads itself, without those inside its inputs."""

    def is_input(node: exp.Expression) -> bool:
        return isinstance(node, exp.With) or (
            isinstance(node, exp.Subquery) and isinstance(node.parent, exp.From | exp.Join)
        )

    return [node for node in select.walk(prune=is_input) if isinstance(node, exp.Column)]


def own_nodes(select: exp.Select) -> Iterator[exp.Expression]:
    """Yield the parts of a SELECT without those of queries inside it."""

    def is_other(node: exp.Expression) -> bool:
        return isinstance(node, exp.With) or (isinstance(node, exp.Query) and node is not select)

    yield from select.walk(prune=is_other)


def _hints(select: exp.Select) -> dict[str, list[str]]:
    """Return the options of joins in the hint, by the alias of an input, and remove the hint."""
    hints: dict[str, list[str]] = {}
    hint = select.args.get("hint")
    for each in hint.expressions if hint is not None else ():
        if str(each.name).upper() != "BRAIDED":
            continue
        texts = [value.this if isinstance(value, exp.Literal) else value.sql() for value in each.expressions]
        if not texts:
            raise OptionError("sql: the hint BRAIDED needs the alias of an input: BRAIDED('a', 'lateness=30 seconds')")
        hints.setdefault(texts[0].lower(), []).extend(texts[1:])
    if hints and hint is not None:
        others = [each for each in hint.expressions if str(each.name).upper() != "BRAIDED"]
        select.set("hint", exp.Hint(expressions=others) if others else None)
    return hints
