"""What a column is that USING or NATURAL joins by: the left one, the right one, or whichever there is."""

from __future__ import annotations

from sqlglot import exp

from braided.sqltext.kinds import kind_of


def keep_shared(tree: exp.Expression) -> None:
    """Let a column that USING or NATURAL joins by be what Spark has for it, in every SELECT of a qualified query.

    sqlglot writes ``COALESCE(a.k, b.k)`` for it. Spark has the left column, after a right join the right one, and that
    only after a full join. Whether Spark agrees is checked afterwards, as for every rewriting.
    """
    for node in list(tree.find_all(exp.Coalesce)):
        parts = [node.this, *node.expressions]
        select = node.find_ancestor(exp.Select)
        same = all(isinstance(part, exp.Column) and part.name == parts[0].name and part.table for part in parts)
        if select is None or not same or len({part.table for part in parts}) < len(parts):
            continue
        kinds = {join.alias_or_name: kind_of(join) for join in select.args.get("joins") or ()}
        column: exp.Expression = parts[0].copy()
        for part in parts[1:]:
            kind = kinds.get(part.table, "inner")
            if kind == "right":
                column = part.copy()
            elif kind == "full":
                column = exp.Coalesce(this=column, expressions=[part.copy()])
        node.replace(column)
