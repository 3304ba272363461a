"""Fields of structs that are written like columns of a schema: `l.st.a` is the field `a` of the column `st` of `l`."""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp


def fields_as_dots(tree: exp.Expression, aliases: Collection[str] = ()) -> exp.Expression:
    """Return a tree in which such fields are read from their columns.

    `aliases` are the inputs of a condition; in a query, the inputs of each SELECT are found. sqlglot does the same when
    it qualifies a query, except in the condition of a SEMI or ANTI JOIN.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("SELECT 1 FROM l LEFT SEMI JOIN r ON l.k = r.st.a AND s.t.k = 1", dialect="spark")
    >>> [type(part).__name__ for part in fields_as_dots(tree).find(exp.And).left.iter_expressions()]
    ['Column', 'Dot']
    """

    def as_dot(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column) or not node.db:
            return node
        table, column, *fields = node.parts
        if table.name.lower() not in (aliases or _inputs(node)):
            return node
        dot: exp.Expression = exp.column(column.copy(), table.copy())
        for field in fields:
            dot = exp.Dot(this=dot, expression=field.copy())
        return dot

    return tree.transform(as_dot)


def _inputs(column: exp.Column) -> set[str]:
    select = column.find_ancestor(exp.Select)
    if select is None:
        return set()
    start = select.args.get("from_") or select.args.get("from")
    sources = [*([start.this] if start is not None else []), *(select.args.get("joins") or ())]
    return {source.alias_or_name.lower() for source in sources}
