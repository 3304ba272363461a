"""Looking at a DataFrame's plan, which no public API shows as a tree."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any


def kind_of(node: Any) -> str:
    """Return what kind of node, or of expression, something is."""
    return str(node.getClass().getSimpleName())


def id_of(attribute: Any) -> int:
    """Return the number by which Spark tells an attribute from others of its name."""
    return int(attribute.exprId().id())


def picked_columns(plan: Any) -> list[tuple[int, str, int]] | None:
    """Return (id, name, id below) of the columns of a projection that only picks and renames; None if it does more."""
    if kind_of(plan) != "Project":
        return None
    listed, picked = plan.projectList(), []
    for at in range(listed.size()):
        column = listed.apply(at)
        inner = source_of(column)
        if kind_of(inner) != "AttributeReference":
            return None
        picked.append((id_of(column), str(column.name()), id_of(inner)))
    return picked


def source_of(column: Any) -> Any:
    """Return what a column of a projection is, without its name."""
    return column.child() if kind_of(column) == "Alias" else column


def numbered(prefix: str, taken: Collection[str]) -> str:
    """Return a name that nobody has: the prefix and the first number that makes it new, without regard to case."""
    folded = {name.lower() for name in taken}
    return next(name for number in itertools.count() if (name := f"{prefix}{number}").lower() not in folded)


def quoted(name: str) -> str:
    """Return a name as SQL takes any: in backticks."""
    return f"`{name.replace('`', '``')}`"
