"""A join of windows with an aggregate of the same windows needs no join: a group's rows are kept with its result.

```
 SELECT ... FROM (X) b JOIN (SELECT w, max(n) AS most FROM (X) GROUP BY w) m ON b.w = m.w AND b.n >= m.most
   ->  SELECT ... FROM (SELECT w, most, explode(rows) AS row
                        FROM (SELECT w, max(n) AS most, collect_list(struct(...)) AS rows FROM (X) GROUP BY w)) f
       WHERE f.row.n >= f.most
```

Every row of X meets exactly one row of the aggregate: that of its own group. X is computed once instead of twice, and
two of four stateful operators are left. X must be an aggregate itself, so that a group has few rows, and the query must
be deterministic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlglot import exp

from braided.expressions.conjuncts import conjuncts
from braided.sqltext.conditions import equality
from braided.sqltext.cut import own_columns

# Clauses with which the aggregate would have other rows than X, or not exactly one row per group.
_OTHER_CLAUSES = ("joins", "where", "having", "order", "limit", "offset", "distinct", "qualify", "laterals", "hint")
_FOLDED, _ROWS, _ROW = "braided_folded", "braided_rows", "braided_row"


@dataclass
class _Pair:
    """The rows and the aggregate of one join."""

    rows: exp.Expression
    total: exp.Subquery
    inner: exp.Expression
    columns: list[str]
    keys: dict[str, str]
    """For each group column of the rows, its name in the aggregate."""
    windows: set[str]
    """The columns of the rows that are windows."""


def fold(tree: exp.Expression, streams: Collection[str]) -> list[str]:
    """Fold every such join over `streams` in a qualified query; return notes about it."""
    ctes = {cte.alias: cte.this for cte in tree.find_all(exp.CTE)}
    reasons = []
    for select in list(tree.find_all(exp.Select)):
        fitting = _find(select, ctes)
        if fitting is not None and reads(fitting[0].rows, streams, ctes):
            pair, rest = fitting
            reasons.append(
                f"{pair.rows.alias_or_name} and {pair.total.alias_or_name} are computed together, without a join: "
                f"{pair.total.alias_or_name} is an aggregate of the rows of {pair.rows.alias_or_name}"
            )
            _rewrite(select, pair, rest)
    return reasons


def reads(node: exp.Expression, streams: Collection[str], ctes: Mapping[str, exp.Expression]) -> bool:
    """Whether a part of a query reads a stream. (With tables, a group may have any number of rows.)"""
    names = {table.name for table in node.find_all(exp.Table)}
    return any(name in streams or (name in ctes and reads(ctes[name], streams, ctes)) for name in names)


def _find(select: exp.Select, ctes: Mapping[str, exp.Expression]) -> tuple[_Pair, list[exp.Expression]] | None:
    """Return the rows, their aggregate, and the conditions other than the equality of groups."""
    start, joins = select.args.get("from_") or select.args.get("from"), select.args.get("joins") or []
    if start is None or len(joins) != 1 or select.args.get("hint") or select.args.get("laterals"):
        return None
    [join] = joins
    if join.side or (join.kind or "").upper() not in ("", "INNER") or join.args.get("using") or join.method:
        return None
    own = [*select.expressions, join.args.get("on"), *(select.args.get(name) for name in ("where", "having"))]
    if any(part is not None and part.find(exp.Query) for part in own):
        return None
    for rows, total in ((start.this, join.this), (join.this, start.this)):
        pair = _pair(rows, total, ctes)
        if pair is None:
            continue
        met, rest = set(), []
        for part in conjuncts(join.args.get("on")):
            key = _met(part, pair)
            if key is None:
                rest.append(part)
            else:
                met.add(key)
        if met == set(pair.keys):
            return pair, rest
    return None


def _pair(rows: exp.Expression, total: exp.Expression, ctes: Mapping[str, exp.Expression]) -> _Pair | None:
    """Return the pair if the second is an aggregate of the first, by some of its columns."""
    body = _body(rows, ctes)
    if body is None or body.args.get("group") is None or not isinstance(total, exp.Subquery):
        return None
    aggregate = total.this
    if not isinstance(aggregate, exp.Select) or any(aggregate.args.get(clause) for clause in _OTHER_CLAUSES):
        return None
    start, group = aggregate.args.get("from_") or aggregate.args.get("from"), aggregate.args.get("group")
    if start is None or group is None or not _is_same(rows, start.this):
        return None
    if any(value for name, value in group.args.items() if name != "expressions"):  # cubes and the like
        return None
    columns = [projection.alias_or_name for projection in body.expressions]
    if len(set(columns)) < len(columns) or any(node.alias_column_names for node in (rows, total, start.this)):
        return None
    aliases = {part.this.sql(): part.alias for part in aggregate.expressions if isinstance(part, exp.Alias)}
    keys = {}
    for key in group.expressions:
        if not isinstance(key, exp.Column) or key.name not in columns or key.sql() not in aliases:
            return None
        keys[key.name] = aliases[key.sql()]
    windows = {part.alias for part in body.expressions if isinstance(part, exp.Alias) and _is_window(part.this)}
    return _Pair(rows, total, start.this, columns, keys, windows) if keys else None


def _body(node: exp.Expression, ctes: Mapping[str, exp.Expression]) -> exp.Select | None:
    body = ctes.get(node.name) if isinstance(node, exp.Table) and not node.db else node.this
    return body if isinstance(body, exp.Select) else None


def _is_same(one: exp.Expression, other: exp.Expression) -> bool:
    if isinstance(one, exp.Table):
        return isinstance(other, exp.Table) and (one.name, one.db) == (other.name, other.db)
    return isinstance(other, exp.Subquery) and one.this.sql() == other.this.sql()


def _is_window(value: exp.Expression) -> bool:
    called = isinstance(value, exp.Anonymous) or (isinstance(value, exp.Column) and not value.table)
    return called and str(value.name).lower() == "window"


def _met(part: exp.Expression, pair: _Pair) -> str | None:
    """Return the group column that a condition compares with that of the aggregate; None for other conditions."""
    both = equality(part)
    if both is None:
        return None
    for one, other in (both, both[::-1]):
        is_pair = (one.table, other.table) == (pair.rows.alias_or_name, pair.total.alias_or_name)
        if is_pair and pair.keys.get(one.name) == other.name:
            return str(one.name)
    return None


def _rewrite(select: exp.Select, pair: _Pair, rest: list[exp.Expression]) -> None:
    rows, total = pair.rows.alias_or_name, pair.total.alias_or_name
    source = pair.inner.alias_or_name
    packed = exp.func(
        "named_struct",
        *(part for name in pair.columns for part in (exp.Literal.string(name), _column(name, source))),
    )
    aggregate = pair.total.this.copy()
    names = [projection.alias_or_name for projection in aggregate.expressions]
    aggregate = aggregate.select(exp.alias_(exp.func("collect_list", packed), _ROWS, quoted=True), copy=False)
    row = exp.alias_(exp.func("explode", _column(_ROWS, _FOLDED)), _ROW, quoted=True)
    each = exp.select(*(exp.alias_(_column(name, _FOLDED), name, quoted=True) for name in names), row)
    each = each.from_(aggregate.subquery(_FOLDED, copy=False), copy=False)
    # Rows without a key have a group too, but a join by the key does not match them.
    conditions = [exp.Not(this=exp.Is(this=_column(name, total), expression=exp.Null())) for name in pair.keys.values()]
    where = select.args.get("where")
    conditions += [*rest, *(conjuncts(where.this) if where is not None else [])]
    select.set("from_" if "from_" in select.args else "from", exp.From(this=each.subquery(total, copy=False)))
    select.set("joins", None)
    select.set("where", exp.Where(this=exp.and_(*conditions, copy=False)))
    for column in own_columns(select):
        if column.table == rows:
            column.replace(_of_row(column.name, pair, total))


def _of_row(name: str, pair: _Pair, total: str) -> exp.Expression:
    # Spark knows the watermark of a window column, but not that of a window inside a packed struct.
    if name in pair.windows and name in pair.keys:
        return _column(pair.keys[name], total)
    return exp.Dot(this=_column(_ROW, total), expression=exp.to_identifier(name, quoted=True))


def _column(name: str, table: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), exp.to_identifier(table, quoted=True))
