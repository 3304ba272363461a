"""The joins of streams in a text: the inputs of a SELECT, one step for each join, and all of them as a cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from braided.errors import OptionError
from braided.sqltext.caps import Caps, capped
from braided.sqltext.conditions import Bound, bound, equality, position, tables_of, ties, two_sided
from braided.typing import Direction, How

_WINDOW = "struct<start:timestamp"


class LeftToSparkError(Exception):
    """Spark runs the joins of a SELECT itself."""


@dataclass
class Source:
    """An input of a SELECT: its alias, its columns with Spark's names of their types, and whether it is a stream."""

    alias: str
    node: exp.Expression
    types: Mapping[str, str]
    streaming: bool
    marked: frozenset[str] = frozenset()
    """The columns with a watermark."""
    computed: frozenset[str] = frozenset()
    """The columns that were added for keys; none of them is an event time."""

    def is_time(self, name: str) -> bool:
        """Whether a column is a timestamp of the stream itself."""
        return name not in self.computed and self.types.get(name) in ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class Match:
    """Which row an as-of join takes: the last one before or the first one after; and whether the same time counts."""

    direction: Direction
    exact: bool


@dataclass
class Step:
    """One join of two streams, or of the streams joined so far with one more."""

    left: tuple[str, ...]
    right: str
    keys: list[tuple[exp.Column, exp.Column]]
    """Pairs (column of a left stream, column of the right stream)."""
    bounds: list[Bound]
    times: tuple[exp.Column, exp.Column]
    rest: list[exp.Expression]
    """Conditions on both sides, which the join evaluates for each pair."""
    how: How = "inner"
    match: Match | None = None
    """Set for an as-of join."""

    @property
    def columns(self) -> list[exp.Column]:
        """The columns that the join reads itself."""
        keys = [column for pair in self.keys for column in pair]
        return [*keys, *self.times, *(column for part in self.rest for column in part.find_all(exp.Column))]


@dataclass
class Cut:
    """The joins of streams of one SELECT, in order, with the filters and the columns of each stream."""

    first: str
    steps: list[Step]
    filters: dict[str, list[exp.Expression]]
    columns: dict[str, list[str]]
    hints: dict[str, list[str]] = field(default_factory=dict)
    capped: list[str] = field(default_factory=list)
    """Notes about bounds that come from a hint."""
    read: list[tuple[str, str]] = field(default_factory=list)
    """The columns, by alias and name, that are read after all joins."""


def find_step(
    joined: Sequence[str],
    alias: str,
    parts: Sequence[exp.Expression],
    sources: Mapping[str, Source],
    caps: Caps,
    how: How = "inner",
) -> Step | None:
    """Return the join of a stream with the streams before it; None if the conditions do not bound its times."""

    def is_time(column: exp.Column) -> bool:
        return sources[column.table].is_time(column.name)

    def is_marked(column: exp.Column) -> bool:
        return column.name in sources[column.table].marked

    bounds = [(part, each) for part in parts if (each := bound(part, is_time)) is not None and alias in tables_of(part)]
    bounds += capped(bounds, alias, caps, is_marked)
    times = two_sided(bounds, alias, is_marked)
    if times is None:
        return None
    chosen = [(part, each) for part, each in bounds if ties(each) == {times[0].sql(), times[1].sql()}]
    taken = {id(part) for part, each in chosen if not each.assumed}
    keys, rest = split_keys([part for part in parts if id(part) not in taken], alias)
    return Step(tuple(joined), alias, keys, [each for _, each in chosen], times, rest, how)


def split_keys(
    parts: Sequence[exp.Expression], alias: str
) -> tuple[list[tuple[exp.Column, exp.Column]], list[exp.Expression]]:
    """Return the equalities of a stream's column with a column of the streams before it, and the other conditions."""
    keys, rest = [], []
    for part in parts:
        pair = equality(part)
        if pair is not None and alias in (pair[0].table, pair[1].table):
            keys.append(pair if pair[1].table == alias else (pair[1], pair[0]))
        else:
            rest.append(part)
    return keys, rest


def no_bounds(
    joined: Sequence[str], alias: str, parts: Sequence[exp.Expression], sources: Mapping[str, Source]
) -> Exception:
    """Return the error about missing bounds on the times of a stream; or, for joined windows, that Spark joins them."""
    if any(_is_by_window(part, alias, sources) for part in parts):
        return LeftToSparkError(f"{alias} is joined by whole windows, and Spark runs this join")
    return OptionError(
        f"sql: {position(sources[alias].node)}: the time of {alias} has no bounds on both sides with that of "
        f"{' or '.join(joined)}; write for example {alias}.ts BETWEEN {joined[0]}.ts - INTERVAL 10 "
        f"SECONDS AND {joined[0]}.ts + INTERVAL 10 SECONDS, or write their largest distance in a hint: "
        f"/*+ BRAIDED('{alias}', 'cap=1 hour') */, or for all joins in cap='1 hour'"
    )


def _is_by_window(part: exp.Expression, alias: str, sources: Mapping[str, Source]) -> bool:
    """Whether a condition compares the window of a stream with that of another one."""
    both = equality(part)
    if both is None or alias not in (both[0].table, both[1].table):
        return False
    return all(sources[column.table].types.get(column.name, "").startswith(_WINDOW) for column in both)
