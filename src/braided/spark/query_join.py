"""A join inside a query that is not run yet, so that conditions and an aggregate after it can still move into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import sqlglot
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampNTZType
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.aggregates.measures import VALUE
from braided.aggregates.partial import PANE
from braided.compile.build import build
from braided.compile.plan import Copied, Plan, Setting
from braided.spark.conf import is_ansi
from braided.spark.control import Fixed, find_control
from braided.spark.frontend import run
from braided.spark.inputs import check_frames, stream_of
from braided.spark.names import numbered, quoted
from braided.spark.safety import is_safe
from braided.spark.sql_aggregates import NOT_ANSI, closing
from braided.spark.watermark import WATERMARK
from braided.specs.join import JoinSpec
from braided.sqltext.conditions import conjuncts
from braided.sqltext.dialect import Braided
from braided.sqltext.merge import Unmerged
from braided.sqltext.partials import measure_name, merge_of, own_names, time_of, with_partials
from braided.sqltext.windowed import WINDOW, Windowed, find_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class PendingJoin:
    """Two DataFrames to be joined, and the plan that says which columns the result will have."""

    spec: JoinSpec
    frames: tuple[DataFrame, DataFrame]
    options: Mapping[str, Any]
    """Those that are not the spec's: name, control, redact."""
    plan: Plan

    @classmethod
    def of(cls, spec: JoinSpec, frames: tuple[DataFrame, DataFrame], options: Mapping[str, Any]) -> PendingJoin:
        """Check everything that can be checked before it runs."""
        session = check_frames(dict(zip(spec.labels, frames, strict=True)))
        streams = [stream_of(frame, label) for frame, label in zip(frames, spec.labels, strict=True)]
        place = find_control(session, spec, options.get("control"), frames)
        plan = build(spec, streams, Setting(adaptive=not isinstance(place, Fixed), filters=True, ansi=is_ansi(session)))
        return cls(spec, frames, options, plan)

    @property
    def columns(self) -> dict[str, Copied]:
        """The columns of the result by their names."""
        return {column.name: column for column in self.plan.columns if isinstance(column, Copied)}

    @property
    def time(self) -> str:
        """The left stream's time in the result."""
        return next(c.name for c in self.columns.values() if (c.stream, c.source) == (0, self.plan.times[0]))

    def run(self, said: Sequence[str] = (), *, aggregated: bool = False) -> DataFrame:
        """Return the joined rows."""
        return run(self.spec, self.frames, **self.options, said=said, aggregated=aggregated)

    def empty(self) -> DataFrame:
        """Return no rows with the columns of the result, for Spark to analyse conditions over."""
        fields = [self.frames[c.stream].schema[c.source].dataType for c in self.columns.values()]
        schema = StructType([StructField(name, kind) for name, kind in zip(self.columns, fields, strict=True)])
        return self.frames[0].sparkSession.createDataFrame([], schema)

    def where(self, condition: str) -> PendingJoin | None:
        """Return the join with a condition inside: on one stream before it, on both as its predicate; None if not.

        Spark must read the condition as we wrote it anew, and nothing may differ from row to row by itself.
        """
        try:
            parts = conjuncts(sqlglot.parse_one(condition, dialect=Braided))
        except SqlglotError:
            return None
        if not all(_is_plain(part) for part in parts):
            return None
        again = " AND ".join(f"({part.sql(dialect=Braided)})" for part in parts)
        empty = self.empty()
        if not empty.where(f"({condition})").sameSemantics(empty.where(again)):
            return None
        frames, both = list(self.frames), [] if self.spec.where is None else [f"({self.spec.where})"]
        for part in parts:
            sides = {self._found(column).stream for column in part.find_all(exp.Column)}
            if len(sides) == 1:
                [side] = sides
                frames[side] = frames[side].where(self._over(part, {0: None, 1: None}))
            else:
                both.append(f"({self._over(part, {0: 'l', 1: 'r'})})")
        spec = self.spec if not both else replace(self.spec, where=" AND ".join(both))
        return PendingJoin.of(spec, (frames[0], frames[1]), self.options)

    def _found(self, column: exp.Column) -> Copied:
        return self.columns[find_column(column.name, list(self.columns), "where")]

    def _over(self, part: exp.Expression, sides: Mapping[int, str | None]) -> str:
        """Return a condition over the inputs' own columns."""

        def own(node: exp.Expression) -> exp.Expression:
            if not isinstance(node, exp.Column):
                return node
            found = self._found(node)
            return exp.column(exp.to_identifier(found.source, quoted=True), sides[found.stream])

        return str(part.copy().transform(own).sql(dialect=Braided))

    def aggregate(self, windowed: Windowed) -> DataFrame:
        """Return windows of the joined rows: begun in the join's workers where that can be, else all Spark's."""
        try:
            return self._hoisted(windowed)
        except Unmerged as why:
            rows = self.run([f"the aggregate after it is Spark's: {why}"], aggregated=True)
            return grouped(rows, windowed, time_of(windowed, self.plan))

    def _hoisted(self, windowed: Windowed) -> DataFrame:
        """Let a stream have what the aggregate computes of it alone as a column, where no row can fail by it."""
        frames, values = list(self.frames), list(windowed.values)
        for at, value in enumerate(values):
            if not isinstance(value.of, exp.Expression):
                continue
            for column in value.of.find_all(exp.Column):
                find_column(column.name, list(self.columns), value.name)
            sides = {self._found(column).stream for column in value.of.find_all(exp.Column)}
            if len(sides) > 1:
                continue
            [side] = sides
            text = self._over(value.of, {0: None, 1: None})
            if is_safe(frames[side], text):
                name = numbered("e", [name for frame in frames for name in frame.columns])
                frames[side] = frames[side].withColumn(name, F.expr(text))
                values[at] = replace(value, of=name)
        if tuple(values) == windowed.values:
            return self._merged(windowed)
        join = PendingJoin.of(self.spec, (frames[0], frames[1]), self.options)
        return join._merged(replace(windowed, values=tuple(values)))

    def _merged(self, windowed: Windowed) -> DataFrame:
        computes = any(isinstance(value.of, exp.Expression) for value in windowed.values)
        if computes and not is_ansi(self.frames[0].sparkSession):
            raise Unmerged(NOT_ANSI)
        if not self.frames[0].isStreaming:
            raise Unmerged("the inputs are no streams")
        if any(WATERMARK in (field.metadata or {}) for frame in self.frames for field in frame.schema.fields):
            raise Unmerged("an input has a watermark of its own, and Spark takes one in a query")
        merge, uses = merge_of(windowed, self.plan)
        time = self.columns[time_of(windowed, self.plan)]
        if isinstance(self.frames[time.stream].schema[time.source].dataType, TimestampNTZType):
            raise Unmerged(f"{time.name} has no time zone, which Spark's watermark needs: cast it to timestamp")
        said = ["the aggregate after it begins in its workers, which hand on partial results"]
        partials = run(
            self.spec,
            self.frames,
            **self.options,
            merged=lambda plan: with_partials(plan, merge, own_names(plan), {}, said),
            said=said,
        )
        values = [
            F.expr(_merging(how, [measure_name(part) for part in parts])).alias(value.name)
            for value, (how, parts) in zip(windowed.values, uses, strict=True)
        ]
        keys = [F.col(quoted(name)) for _, name in merge.keys]
        return closing(partials).groupBy(_window(PANE, windowed), *keys).agg(*values)


def _is_plain(part: exp.Expression) -> bool:
    """Whether a condition reads columns, and is the same however often and where it is evaluated."""
    strange = (exp.Query, exp.Anonymous, exp.Rand, exp.Randn, exp.AggFunc, exp.Window, exp.Lambda)
    columns = list(part.find_all(exp.Column))
    return bool(columns) and not any(c.table for c in columns) and not any(part.find_all(*strange))


def _merging(how: str, names: Sequence[str]) -> str:
    """Return how partial results become a value, as text."""
    if how == "avg":
        return f"try_divide(cast(sum({names[0]}) AS double), sum({names[1]}))"
    if how in ("sum", "min", "max"):
        return f"{how}({names[0]})"
    if how in ("first", "last"):
        return f"{'min' if how == 'first' else 'max'}({names[0]}).{VALUE}"
    return f"cast(sum({names[0]}) AS {how})"


def grouped(rows: DataFrame, windowed: Windowed, time: str) -> DataFrame:
    """Return windows of rows as Spark's own aggregate makes them."""
    keys = [F.col(quoted(find_column(key, rows.columns, "by"))) for key in windowed.by]
    values = [F.expr(value.text).alias(value.name) for value in windowed.values]
    return rows.groupBy(_window(time, windowed), *keys).agg(*values)


def _window(time: str, windowed: Windowed) -> Any:
    size, slide = (f"{micros} microseconds" for micros in (windowed.size, windowed.slide))
    return F.window(F.col(quoted(time)), size, slide).alias(WINDOW)
