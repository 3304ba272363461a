"""Columns that are not used after a join are dropped before it, so that no worker stores them.

```
 Project phone, cell                    ->   Project phone, cell
 +- Join on phone, time ts                   +- Join on phone, time ts
    +- Source 0: phone, ts, n, text             +- Project phone, ts
    +- Source 1: phone, ts, cell                |  +- Source 0: phone, ts, n, text
                                                +- Source 1: phone, ts, cell
```

The rule holds for every kind of join: which rows match depends on keys, times and the predicate, whose columns are
kept. (In a join with ``rows=``, all columns decide which of several rows with the same time is the last one of its key,
so it keeps all columns.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.expressions.dialect import Braided
from braided.operators.column_names import find_names
from braided.operators.join.spec import JoinSpec
from braided.operators.multijoin.spec import MultiJoinSpec
from braided.operators.physical import InputColumn
from braided.plan.nodes import Aggregate, Filter, Node, Operator, Project, Watermark
from braided.plan.optimiser import Analysis, NotApplied


class PruneColumns:
    """Project or Aggregate over a join -> the same over a join with fewer columns."""

    name = "columns that nothing reads"

    def apply(self, node: Node, analysis: Analysis) -> Node | None:
        """See `Rule`."""
        if not isinstance(node, Project | Aggregate):
            return None
        above: list[Node] = [node]
        while isinstance(above[-1].inputs[0], Filter | Watermark):
            above.append(above[-1].inputs[0])
        [join] = above[-1].inputs
        if not isinstance(join, Operator) or not isinstance(join.spec, JoinSpec | MultiJoinSpec):
            return None
        if not analysis.is_streaming(join) or getattr(join.spec, "rows", None) is not None:
            return None
        try:
            read = _names_in(text for each in above for text in _texts(each, analysis.columns(join)))
        except SqlglotError as error:
            raise NotApplied("Braided cannot parse an expression") from error
        pruned = join if read is None else _pruned(join, read, analysis)
        if pruned is join:
            return None
        result: Node = pruned
        for each in reversed(above):
            result = each.with_inputs([result])
        return result


def _texts(node: Node, columns: Collection[str]) -> list[str]:
    """Return the SQL that a node evaluates over the columns of its input."""
    if isinstance(node, Project):
        return node.texts
    if isinstance(node, Filter):
        return [node.condition]
    if isinstance(node, Watermark):
        return [_quoted(node.column)]
    assert isinstance(node, Aggregate)
    groups = (_quoted(text) if text in columns else text for _, text in node.by)
    return [_quoted(node.time), *groups, *(text for _, text in node.values)]


def _names_in(texts: Iterable[str]) -> set[str] | None:
    """Return every name in some expressions, in lower case; None if they read all columns."""
    names = set()
    for text in texts:
        tree = sqlglot.parse_one(text, dialect=Braided)
        if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
            return None
        names |= {str(name.this).lower() for name in tree.find_all(exp.Identifier)}
    return names


def _pruned(join: Operator, read: set[str], analysis: Analysis) -> Operator:
    """Return a join whose inputs have only the columns that the join reads, and those of the names in `read`."""
    spec, physical = join.spec, analysis.physical(join)
    assert isinstance(spec, JoinSpec | MultiJoinSpec)
    where = spec.where if isinstance(spec, JoinSpec) else None
    inside = set() if where is None else _names_in([where])
    if inside is None:
        return join
    names = find_names(physical.streams, spec.on, spec.time)
    results = [column for column in physical.columns if isinstance(column, InputColumn)]
    # Names that both inputs have get suffixes. Both columns are kept, so that the names of results do not change.
    inside |= {column.source.lower() for column in results if column.name.lower() in read}
    inputs = list(join.inputs)
    for side, stream in enumerate(physical.streams):
        own = {*names.keys[side], names.times[side]}
        used = [name for name in stream.schema.names if name in own or name.lower() in inside]
        if len(used) < len(stream.schema.names):
            inputs[side] = Project(inputs[side], tuple(map(_quoted, used)))
    if all(new is old for new, old in zip(inputs, join.inputs, strict=True)):
        return join
    return replace(join, streams=tuple(inputs))


def _quoted(name: str) -> str:
    return str(exp.to_identifier(name, quoted=True).sql(dialect=Braided))
