"""The common column of USING or NATURAL: the left one, the right one, or the first that is not null."""

from __future__ import annotations

from sqlglot import exp

from braided.sqltext.kinds import kind_of


def keep_shared(tree: exp.Expression) -> None:
    """Replace the common columns of USING or NATURAL by those that Spark uses, in every SELECT of a qualified query.

    sqlglot writes ``COALESCE(a.k, b.k)``. Spark does this only after a full join; otherwise it uses the left column, or
    after a right join the right one. The caller checks afterwards that Spark agrees, as for every rewriting.
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
