"""Give windows of time in a SELECT the same name as Spark does, so that an outer query can use it."""

from __future__ import annotations

from sqlglot import exp

_CALLS = ("window", "session_window")


def name_windows(tree: exp.Expression) -> None:
    """Give windows without an alias the alias that they have in Spark.

    >>> import sqlglot
    >>> from braided.expressions.dialect import Braided
    >>> tree = sqlglot.parse_one("SELECT window.end FROM (SELECT window(ts, '1 hour') FROM calls)", dialect=Braided)
    >>> name_windows(tree)
    >>> tree.sql(dialect=Braided)
    "SELECT window.end FROM (SELECT WINDOW(ts, '1 hour') AS window FROM calls)"
    """
    for select in tree.find_all(exp.Select):
        for column in select.expressions:
            name = str(column.name or column.sql_name()).lower() if isinstance(column, exp.Func) else ""
            if name in _CALLS:
                column.replace(exp.alias_(column.copy(), name))
