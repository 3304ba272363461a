"""Keys that are computed: a value that a join compares with a value of another stream becomes a column of its stream.

```
 a LEFT JOIN b ON lower(a.email) = b.email AND <times>
   ->  (SELECT *, lower(email) AS key FROM a) a LEFT JOIN b ON a.key = b.email AND <times>
```
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import types as T
from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.conjuncts import conjuncts
from braided.routing.key_hashes import common_key_type
from braided.spark.catalyst import compared_types, plan_of
from braided.spark.inputs import arrow_schema
from braided.spark.names import numbered
from braided.spark.nested_keys import flat_key
from braided.spark.sql_conditions import is_stable, over_names
from braided.sqltext.conditions import bound, equality, guarded, tables_of
from braided.sqltext.joins import Source
from braided.sqltext.kinds import is_plain, kind_of
from braided.typing import How

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ComputedKeys:
    """The equalities of a SELECT that were changed. `texts`: what each new column is, as text."""

    def __init__(
        self,
        select: exp.Select,
        inputs: dict[str, DataFrame],
        sources: dict[str, Source],
        matches: Mapping[int, exp.Expression],
    ) -> None:
        """Change the conditions of joins, and the inputs that they read; see `cut_select` for `matches`.

        A value of a stream is not computed before the join where an earlier outer join may have made it null. An inner
        join that has a key keeps its other equalities: a computed column would keep routers from reading files.
        """
        self.texts: dict[str, str] = {}
        self._inputs, self._sources = inputs, sources
        self._changes: list[tuple[exp.EQ, exp.Expression, exp.Expression]] = []
        self._guards: list[exp.Expression] = []
        """The conditions of a join that read one stream. Where one does not hold, the key is null: nothing matches."""
        for join, parts, joined, nullable in _conditions(select, sources):
            alias, plain = join.alias_or_name, is_plain(join, matches)
            equal = [part for part in parts if equality(part) is not None and bound(part, self._is_time) is None]
            pairs = [tables_of(part) for part in equal]
            if not plain or not any(alias in pair and pair <= joined for pair in pairs):
                # Conditions of an inner join are filters before it.
                self._guards = (
                    [] if plain else [each for each in parts if len(tables_of(each)) == 1 and not each.find(exp.Query)]
                )
                for part in parts:
                    self._change(part, join, nullable)

    def undo(self) -> None:
        """Put the values back into the conditions."""
        for part, left, right in self._changes:
            part.set("this", left)
            part.set("expression", right)

    def _change(self, part: exp.Expression, join: exp.Join, nullable: set[str]) -> None:
        if not isinstance(part, exp.EQ) or part.find(exp.Query) or bound(part, self._is_time) is not None:
            return
        sides, alias = [part.left.unnest(), part.right.unnest()], join.alias_or_name
        used = [tables_of(side) for side in sides]
        if any(len(names) != 1 for names in used) or alias not in used[0] | used[1] or used[0] == used[1]:
            return
        if not used[0] | used[1] <= {name for name, source in self._sources.items() if source.streaming} - nullable:
            return
        texts = None if equality(part) is not None else self._texts(sides, kind_of(join))
        if texts is None:
            return
        self._changes.append((part, part.left, part.right))
        for name, side, text in zip(("this", "expression"), sides, texts, strict=True):
            part.set(name, side if text is None else self._column(side, text))

    def _is_time(self, column: exp.Column) -> bool:
        return column.table in self._sources and self._sources[column.table].is_time(column.name)

    def _texts(self, sides: Sequence[exp.Expression], how: How) -> list[str | None] | None:
        """Return both values as texts over their inputs, with None for a column that is a key as it is.

        None for values that cannot be keys that are computed before the join.
        """
        values, kinds = [], []
        for side in sides:
            text = self._over_input(side)
            try:
                frame = self._input(side).selectExpr(text)
            except PySparkException:
                return None
            if not plan_of(frame).is_deterministic or _is_collated(frame.schema[0].dataType):
                return None
            values.append(text)
            kinds.append(frame.schema[0].dataType.simpleString())
        wanted = kinds
        if kinds[0] != kinds[1]:
            wanted = list(compared_types(self._input(sides[0]).sparkSession, *kinds))
        texts: list[str | None] = []
        for side, value, kind, other in zip(sides, values, kinds, wanted, strict=True):
            text = value if kind == other else f"CAST({value} AS {other})"
            flat = flat_key(text, self._input(side).selectExpr(text).schema[0].dataType)
            if not self._is_key(side, flat or text):
                return None
            # Columns of different types are cast later, if they have to be. RIGHT and FULL JOIN need equal types.
            stays = isinstance(side, exp.Column) and flat is None and (kind == other or how not in ("right", "full"))
            texts.append(None if stays else guarded(flat or text, self._guards_of(side)))
        return texts

    def _input(self, side: exp.Expression) -> DataFrame:
        return self._inputs[next(iter(tables_of(side)))]

    def _over_input(self, part: exp.Expression) -> str:
        """Return an expression over one stream as text."""
        [alias] = tables_of(part)
        return over_names(part, {(alias, name.lower()): name for name in self._inputs[alias].columns})

    def _guards_of(self, side: exp.Expression) -> list[str]:
        guards = [self._over_input(guard) for guard in self._guards if tables_of(guard) == tables_of(side)]
        return [guard for guard in guards if is_stable(self._input(side), guard)]

    def _is_key(self, side: exp.Expression, text: str) -> bool:
        """Whether values of this type can be keys."""
        try:
            kind = arrow_schema(self._input(side).selectExpr(text), "key").field(0).type
            common_key_type(kind, kind, ("key", "key"))
        except OptionError:
            return False
        return True

    def _column(self, side: exp.Expression, text: str) -> exp.Column:
        """Add a column to an input, and return it."""
        alias = tables_of(side).pop()
        name = numbered("key", [column for frame in self._inputs.values() for column in frame.columns])
        frame = self._inputs[alias] = self._inputs[alias].selectExpr("*", f"{text} AS {name}")
        kind = frame.schema[name].dataType.simpleString()
        source = self._sources[alias]
        types, computed = {**source.types, name: kind}, source.computed | {name}
        self._sources[alias] = replace(source, types=types, computed=computed)
        self.texts[name] = _shown(side)
        return exp.column(exp.to_identifier(name), alias)


def _is_collated(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType) and kind != T.StringType()


def _shown(value: exp.Expression) -> str:
    """Return a value of one stream as text for people."""
    shown = value.copy()
    for column in list(shown.find_all(exp.Column)):
        column.set("table", None)
    for identifier in shown.find_all(exp.Identifier):
        identifier.set("quoted", not exp.SAFE_IDENTIFIER_RE.match(identifier.name))
    return str(shown.sql())


def _conditions(
    select: exp.Select, sources: Mapping[str, Source]
) -> Iterator[tuple[exp.Join, list[exp.Expression], set[str], set[str]]]:
    """Yield the join of each stream, with its conditions.

    Also the streams joined so far, with its own, and those of them that earlier joins may have made null.
    """
    start = select.args.get("from_") or select.args.get("from")
    if start is None:
        return
    every = [join for join in select.args.get("joins") or () if join.alias_or_name in sources]
    joins = [join for join in every if sources[join.alias_or_name].streaming]
    # Other joins may be evaluated before or after WHERE.
    where = select.args.get("where") if all(kind_of(join) == "inner" for join in joins) else None
    filters = conjuncts(where.this) if where is not None else []
    joined, nullable = {start.this.alias_or_name}, set[str]()
    for join in joins:
        alias, how = join.alias_or_name, kind_of(join)
        yield join, [*conjuncts(join.args.get("on")), *filters], joined | {alias}, nullable
        nullable |= joined if how in ("right", "full") else set()
        joined.add(alias)
        nullable |= {alias} if how in ("left", "full") else set()
