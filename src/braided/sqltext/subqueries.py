"""Subqueries over streams in WHERE: EXISTS and IN become semi joins, NOT EXISTS becomes an anti join.

```
 FROM a WHERE a.n > 3 AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR)
   ->  FROM a LEFT ANTI JOIN b ON b.k = a.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 HOUR WHERE a.n > 3
```

NOT IN is different: it is true for no row if the subquery returns a single null, and for a null on its left only if the
subquery returns no rows. A join by keys cannot decide this, so it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.conjuncts import conjuncts
from braided.sqltext.conditions import position
from braided.sqltext.fold import reads

# Clauses with which a subquery would return other rows than those of its FROM and WHERE. DISTINCT has no effect.
_OTHER_CLAUSES = ("joins", "group", "having", "limit", "offset", "qualify", "laterals", "windows")


def join_subqueries(tree: exp.Expression, streams: Collection[str]) -> None:
    """Replace every subquery over `streams` in the WHERE of a qualified query by a join, or raise if that fails."""
    ctes = {cte.alias: cte.this for cte in tree.find_all(exp.CTE)}
    for select in list(tree.find_all(exp.Select)):
        where = select.args.get("where")
        start = select.args.get("from_") or select.args.get("from")
        if where is None or start is None or not _reads_stream(select, streams, ctes):
            continue
        remaining = []
        for part in conjuncts(where.this):
            join = _join(part, select, streams, ctes)
            if join is None:
                remaining.append(part)
            else:
                select.append("joins", join)
        select.set("where", exp.Where(this=exp.and_(*remaining, copy=False)) if remaining else None)
    for node in tree.find_all(exp.Exists, exp.In):
        query = _query(node)
        if query is not None and reads(query, streams, ctes):
            raise OptionError(
                f"sql: {position(query)}: {_called(node)} over a stream is supported only as a condition of WHERE, "
                "alone or with AND; write a LEFT JOIN and a condition on its result"
            )


def has_subquery(tree: exp.Expression) -> bool:
    """Whether a query has a subquery in EXISTS or IN."""
    return any(_query(node) is not None for node in tree.find_all(exp.Exists, exp.In))


def _reads_stream(select: exp.Select, streams: Collection[str], ctes: Mapping[str, exp.Expression]) -> bool:
    start = select.args.get("from_") or select.args.get("from")
    return any(reads(each.this, streams, ctes) for each in (start, *(select.args.get("joins") or ())))


def _query(node: exp.Expression) -> exp.Expression | None:
    """Return the subquery of EXISTS or IN; None for `exists` of an array and IN of a list."""
    query = node.this if isinstance(node, exp.Exists) else node.args.get("query")
    query = query.this if isinstance(query, exp.Subquery) else query
    return query if isinstance(query, exp.Query) else None


def _called(node: exp.Expression) -> str:
    name = "EXISTS" if isinstance(node, exp.Exists) else "IN"
    return f"NOT {name}" if isinstance(node.parent, exp.Not) else name


def _join(
    part: exp.Expression, select: exp.Select, streams: Collection[str], ctes: Mapping[str, exp.Expression]
) -> exp.Join | None:
    """Return the join for a condition of WHERE; None if it is not a subquery over a stream."""
    node, is_not = part, False
    while isinstance(node, exp.Not | exp.Paren):
        is_not ^= isinstance(node, exp.Not)
        node = node.this
    if not isinstance(node, exp.Exists | exp.In):
        return None
    query = _query(node)
    if query is None or not reads(query, streams, ctes):
        return None
    called = _called(node)
    if is_not and isinstance(node, exp.In):
        raise OptionError(
            f"sql: {position(query)}: NOT IN over a stream is not supported, because a single null in it would exclude "
            "every row; write NOT EXISTS (SELECT 1 FROM ... WHERE ... = ... AND ...)"
        )
    start = query.args.get("from_") or query.args.get("from")
    plain = isinstance(query, exp.Select) and start is not None and not start.this.args.get("joins")
    if not plain or any(query.args.get(clause) for clause in _OTHER_CLAUSES) or _aggregates(query):
        raise OptionError(
            f"sql: {position(query)}: {called} over a stream needs a plain subquery, SELECT ... FROM one stream WHERE "
            "...; write anything else as a subquery in its FROM"
        )
    assert start is not None
    conditions = conjuncts(query.args["where"].this) if query.args.get("where") else []
    if isinstance(node, exp.In):
        left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        right = [each.unalias() for each in query.expressions]
        if len(left) != len(right):
            raise OptionError(
                f"sql: {position(query)}: IN compares {len(left)} columns with {len(right)}; write as many on each side"
            )
        conditions = [exp.EQ(this=a, expression=b) for a, b in zip(left, right, strict=True)] + conditions
    source = start.this
    taken = {each.this.alias_or_name for each in (_start(select), *(select.args.get("joins") or ()))}
    alias = old = source.alias_or_name
    number = 1
    while alias in taken:
        alias, number = f"{old}_{number}", number + 1
    if alias != old:
        source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        # The left side of IN is outside the subquery: there the name means another input.
        outside = set(map(id, node.this.find_all(exp.Column))) if isinstance(node, exp.In) else set()
        for condition in conditions:
            for column in condition.find_all(exp.Column):
                if column.table == old and id(column) not in outside:
                    column.set("table", exp.to_identifier(alias, quoted=True))
    kind = "ANTI" if is_not else "SEMI"
    on = exp.and_(*conditions, copy=False) if conditions else None
    return exp.Join(this=source, side="LEFT", kind=kind, on=on)


def _start(select: exp.Select) -> exp.Expression:
    source: exp.Expression = select.args.get("from_") or select.args["from"]
    return source


def _aggregates(query: exp.Expression) -> bool:
    return any(each.find(exp.AggFunc, exp.Window) for each in query.expressions)
