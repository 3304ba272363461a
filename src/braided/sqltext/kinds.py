"""Joins of streams if at least one is not inner: in the order of the text, each with its own condition.

```
 a JOIN b ON p LEFT JOIN c ON q JOIN d ON r WHERE w

   ON of an outer, semi or anti join     decides what matches, and is evaluated for each pair. For a semi join, a part
                                         that reads only the right stream filters this stream before the join.
   ON of an inner join, and WHERE        are filters. They move down below joins that keep the rows on their left
                                         (inner, left, semi, anti), to the stream itself if no join makes it null.
                                         If WHERE cannot move down, Spark evaluates it on the result.
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from braided.errors import OptionError
from braided.expressions.conjuncts import conjuncts
from braided.sqltext.asof import asof_step
from braided.sqltext.caps import Caps
from braided.sqltext.conditions import position, tables_of
from braided.sqltext.joins import Source, Step, find_step, no_bounds
from braided.typing import How

_SIDES: dict[str, How] = {"LEFT": "left", "RIGHT": "right", "FULL": "full"}
_HALVES: dict[str, How] = {"SEMI": "left_semi", "ANTI": "left_anti"}
_KEEP_LEFT = ("inner", "left", "left_semi", "left_anti")
"""Joins that keep the values of rows on their left, so that a filter on them can be before or after the join."""


def kind_of(join: exp.Join) -> How:
    """Return the kind of a join."""
    half = _HALVES.get((join.kind or "").upper())
    return half or _SIDES.get((join.side or "").upper(), "inner")


def called(join: exp.Join) -> str:
    """Return SQL's name of the kind of a join.

    >>> import sqlglot
    >>> called(sqlglot.parse_one("SELECT * FROM a LEFT ANTI JOIN b ON a.k = b.k", dialect="spark").find(exp.Join))
    'LEFT ANTI JOIN'
    """
    return " ".join(word for word in (str(join.side or ""), str(join.kind or ""), "JOIN") if word).upper()


def is_plain(join: exp.Join, matches: Mapping[int, exp.Expression]) -> bool:
    """Whether a join is inner, and not an as-of join."""
    return kind_of(join) == "inner" and id(join) not in matches


@dataclass
class OrderedJoins:
    """The joins of the streams of a SELECT in order, and the place of each condition."""

    first: str
    joins: Sequence[exp.Join]
    """The joins of streams, in the order of the text."""
    sources: Mapping[str, Source]
    caps: Caps
    matches: Mapping[int, exp.Expression]
    """The match conditions of as-of joins, by the id of the join."""
    filters: dict[str, list[exp.Expression]] = field(default_factory=dict)
    on_result: list[exp.Expression] = field(default_factory=list)
    """Conditions that Spark evaluates on the result."""

    def __post_init__(self) -> None:
        self._streams = [self.first, *(join.alias_or_name for join in self.joins)]
        self._kinds: list[How] = ["inner", *(kind_of(join) for join in self.joins)]
        self._parts: list[list[exp.Expression]] = [[] for _ in self._streams]
        self._level = {alias: level for level, alias in enumerate(self._streams)}
        self.filters = {alias: [] for alias in self._streams}

    def steps(self, where: Sequence[exp.Expression], tolerances: Mapping[str, str]) -> list[Step]:
        """Return a step for each join. `tolerances` has the tolerances in hints, by alias."""
        for alias in tolerances:
            if not self._is_asof(self._level[alias]):
                raise OptionError(
                    f"sql: the hint BRAIDED({alias!r}, 'tolerance=...'): {alias} is not joined by an ASOF JOIN; omit "
                    "the hint"
                )
        for level, join in enumerate(self.joins, start=1):
            for part in conjuncts(join.args.get("on")):
                if is_plain(join, self.matches):
                    self._place_filter(part, level, join)
                else:
                    self._place_condition(part, level, join)
        for part in where:
            self._place_filter(part, len(self.joins), None)
        steps = []
        for level, join in enumerate(self.joins, start=1):
            joined, alias, parts = self._streams[:level], self._streams[level], self._parts[level]
            if id(join) in self.matches:
                step: Step | None = asof_step(
                    joined, join, self.matches[id(join)], parts, self.sources, tolerances.get(alias), self._kinds[level]
                )
            else:
                step = find_step(joined, alias, parts, self.sources, self.caps, self._kinds[level])
            if step is None:
                raise no_bounds(joined, alias, parts, self.sources)
            if not step.keys and self._kinds[level] != "inner" and step.match is None:
                raise OptionError(
                    f"sql: {position(join)}: a {called(join)} of streams needs a key: an equality of columns such as "
                    f"{joined[0]}.k = {alias}.k in its condition; only an inner join does not need one"
                )
            steps.append(step)
        return steps

    def _place_filter(self, part: exp.Expression, level: int, join: exp.Join | None) -> None:
        """Place a condition that drops rows after a join: from WHERE, or from the ON of an inner join."""
        used = tables_of(part)
        if part.find(exp.Query) or not used or not used <= set(self._streams):
            if any(kind not in _KEEP_LEFT for kind in self._kinds[level + 1 :]):
                assert join is not None
                raise OptionError(
                    f"sql: {position(part)}: {part.sql()} does not only read streams, and a RIGHT or FULL JOIN "
                    "follows; write this join as a subquery"
                )
            self.on_result.append(part)
            return
        home = max(self._level[alias] for alias in used)
        lowest = level
        while lowest > home and self._kinds[lowest] in _KEEP_LEFT:
            lowest -= 1
        is_whole = home == 0 or self._kinds[home] in ("inner", "right")
        if lowest == home and len(used) == 1 and is_whole and not self._is_asof(home):
            self.filters[used.pop()].append(part)
            return
        for at in range(max(lowest, 1), level + 1):
            if self._kinds[at] == "inner" and not self._is_asof(at):
                self._parts[at].append(part)
                return
        self.on_result.append(part)

    def _is_asof(self, level: int) -> bool:
        return level > 0 and id(self.joins[level - 1]) in self.matches

    def _place_condition(self, part: exp.Expression, level: int, join: exp.Join) -> None:
        """Place a condition that decides what matches: from the ON of a join that is not inner, or of an as-of join."""
        used, how = tables_of(part), self._kinds[level]
        if part.find(exp.Query) or not used or not used <= set(self._streams):
            raise OptionError(
                f"sql: {position(part)}: {part.sql()} in the condition of a {called(join)} does not only read its "
                "streams; filter or join them in a subquery before"
            )
        alias = self._streams[level]
        # Only rows that pass its filters move a stream's clock. So rows that wait for the clock would wait for a row
        # that passes, and be late for Spark's watermark, which all rows move.
        is_timed = any(column.name in self.sources[column.table].marked for column in part.find_all(exp.Column))
        is_right = used == {alias} and how in ("inner", "left", "left_semi")
        is_left = level == 1 and used == {self.first} and how == "inner"
        waits = how not in ("inner", "left_semi") or is_timed
        if (is_right or is_left) and (not waits or self._is_asof(level)):
            self.filters[used.pop()].append(part)
        else:
            self._parts[level].append(part)
