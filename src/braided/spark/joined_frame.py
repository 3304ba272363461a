"""The DataFrame of a join: `groupBy(window(...)).agg(...)` on it starts in the join's workers, as in a query.

It is a DataFrame like any other, and all its methods are Spark's. Only `groupBy` called directly on it is special:
Spark builds its own aggregate, and if ours has the same columns, ours is returned instead. Any other step in between
gives a plain DataFrame, and then the aggregate is Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import sqlglot
from pyspark.errors import PySparkException
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.group import GroupedData
from sqlglot import exp
from sqlglot.errors import SqlglotError

from braided.errors import BraidedError
from braided.expressions.dialect import Braided
from braided.operators.join.spec import JoinSpec
from braided.plan.aggregates import WINDOW
from braided.plan.explain import spelled, why_native
from braided.plan.nodes import Aggregate, LogicalPlan, Operator, combine, plan_of_source
from braided.plan.optimiser import NotApplied
from braided.spark.catalyst import aggregate_texts, plan_of
from braided.spark.inputs import check_frames
from braided.spark.run_plan import optimise_plan, run_optimised, run_plan
from braided.spark.session_operators import registry_of
from braided.spark.sessions import is_connect
from braided.sqltext.aggregate import is_window, window_of
from braided.typing import Control

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

K = TypeVar("K")
_OPERATORS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE, "+": exp.Add, "-": exp.Sub, "*": exp.Mul,
}  # fmt: skip


def run_plain_join(
    spec: JoinSpec, frames: Sequence[DataFrame], *, name: str | None, control: Control, redact: bool
) -> DataFrame:
    """Return the results of a join over DataFrames, in one DataFrame."""
    check_frames(dict(zip(spec.labels, frames, strict=True)))
    sources = [plan_of_source(frame, frame.columns) for frame in frames]
    plan = combine(sources, lambda streams: Operator(spec, streams, name, control, redact))
    rows = run_plan(plan)
    return joined_frame(rows, plan, rows.columns, {})


def joined_frame(
    frame: DataFrame, plan: LogicalPlan[DataFrame], columns: Sequence[str], names: Mapping[str, str]
) -> DataFrame:
    """Return the rows of a join so that an aggregate of them can start in its workers.

    `columns` are the names of the frame's columns in the plan, in order; `names` are the users' names.
    """
    join = plan.root
    is_join = isinstance(join, Operator) and isinstance(join.spec, JoinSpec) and join.spec.rows is None
    if not is_join or is_connect(frame) or not frame.isStreaming:
        return frame
    joined = _as(JoinedFrame, frame)
    joined.braided_join = _Join(plan, tuple(columns), names)
    return joined


def _as(kind: type[K], original: object) -> K:
    """Return an object of Spark's as an object of a class that extends its class."""
    result = object.__new__(kind)
    vars(result).update(vars(original))
    return result


@dataclass(frozen=True)
class _Join:
    plan: LogicalPlan[DataFrame]
    columns: tuple[str, ...]
    names: Mapping[str, str]


class JoinedFrame(ClassicDataFrame):  # type: ignore[misc]
    """The rows of a join of two streams."""

    braided_join: _Join

    def groupBy(self, *cols: Any) -> GroupedData:
        """See `DataFrame.groupBy`."""
        return _as(JoinedGroups, super().groupBy(*cols))

    groupby = groupBy


class JoinedGroups(GroupedData):  # type: ignore[misc]
    """Groups of the rows of a join."""

    def agg(self, *exprs: Any) -> DataFrame:
        """See `GroupedData.agg`."""
        return _in_workers(self._df, super().agg(*exprs))

    def count(self) -> DataFrame:
        """See `GroupedData.count`."""
        return _in_workers(self._df, super().count())

    def sum(self, *cols: str) -> DataFrame:
        """See `GroupedData.sum`."""
        return _in_workers(self._df, super().sum(*cols))

    def avg(self, *cols: str) -> DataFrame:
        """See `GroupedData.avg`."""
        return _in_workers(self._df, super().avg(*cols))

    def mean(self, *cols: str) -> DataFrame:
        """See `GroupedData.mean`."""
        return _in_workers(self._df, super().mean(*cols))

    def min(self, *cols: str) -> DataFrame:
        """See `GroupedData.min`."""
        return _in_workers(self._df, super().min(*cols))

    def max(self, *cols: str) -> DataFrame:
        """See `GroupedData.max`."""
        return _in_workers(self._df, super().max(*cols))


def _in_workers(joined: DataFrame, native: DataFrame) -> DataFrame:
    """Return an aggregate of a join's rows that starts in its workers if possible; else Spark's own."""
    assert isinstance(joined, JoinedFrame)
    try:
        return _compiled(joined, native)
    except NotApplied as why:
        reason = spelled(str(why), joined.braided_join.names)
        registry_of(joined.sparkSession).note(native, [f"the aggregate after it is Spark's: {reason}"])
        return native


def _compiled(joined: JoinedFrame, native: DataFrame) -> DataFrame:
    texts = aggregate_texts(native)
    if texts is None:
        raise NotApplied("it is more than groupBy and agg")
    groups, results = ([_over_join(text, joined) for text in part] for part in texts)
    windows = [each for each in groups if is_window(each)]
    if len(windows) != 1:
        raise NotApplied("it does not group by one window")
    column, size, slide, offset = window_of(windows[0])
    keys = [each for each in groups if not is_window(each)]
    values = [each for each in results if each not in groups]
    names = [(windows[0], WINDOW), *((key, f"k{at}") for at, key in enumerate(keys))]
    names += [(value, f"a{at}") for at, value in enumerate(values)]
    by, of = (
        tuple((name, _text(each)) for each, name in names if name[0] == letter and name != WINDOW) for letter in "ka"
    )
    join = joined.braided_join
    node = Aggregate(join.plan.root, by, column.name, size, slide, of, offset)
    try:
        optimised = optimise_plan(LogicalPlan(node, join.plan.sources))
        after = optimised.optimised.after
        if not (isinstance(after, Aggregate) and after.in_workers):
            raise NotApplied(why_native(optimised.optimised) or "it is not over a join of two streams")
        rows = run_optimised(optimised, names=join.names, aggregated=True)
    except (BraidedError, PySparkException) as error:
        raise NotApplied(str(error).splitlines()[0]) from error
    chosen = rows.select(*(next(name for known, name in names if known == each) for each in results))
    if [field.dataType for field in chosen.schema] != [field.dataType for field in native.schema]:
        raise NotApplied("its types would differ")
    return plan_of(chosen).standing_for(plan_of(native)).to_frame()


def _over_join(text: str, joined: JoinedFrame) -> exp.Expression:
    """Return an expression over the columns of the join's plan; Spark must read it like the original."""
    numbers = {
        column.id: name for column, name in zip(plan_of(joined).output, joined.braided_join.columns, strict=True)
    }
    try:
        tree = sqlglot.parse_one(text, dialect=Braided).transform(_operator)
        again = [plan_of(joined.selectExpr(each)) for each in (text, tree.sql(dialect=Braided))]
        if not again[0].same_result(again[1]):
            raise NotApplied(f"Spark and Braided read {text} differently")
        columns = {column.sql(dialect=Braided) for column in tree.find_all(exp.Column)}
        sources = {name: plan_of(joined.selectExpr(name)).projected[0].source for name in columns}
    except (SqlglotError, PySparkException) as error:
        raise NotApplied(f"{text} has more than names of the join's columns") from error

    def renamed(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Column):
            return node
        source = sources[node.sql(dialect=Braided)]
        if source not in numbers:
            raise NotApplied(f"{text} reads a part of a column")
        return exp.column(exp.to_identifier(numbers[source], quoted=True))

    return tree.transform(renamed)


def _operator(node: exp.Expression) -> exp.Expression:
    """Return an operator for a call of its function; expressions of Columns have such calls before their analysis."""
    named = isinstance(node, exp.Anonymous) and isinstance(node.this, exp.Identifier) and node.this.quoted
    operator = _OPERATORS.get(node.this.name) if named else None
    if operator is None or len(node.expressions) != 2:
        return node
    left, right = (exp.Paren(this=operand.transform(_operator)) for operand in node.expressions)
    return exp.Paren(this=operator(this=left, expression=right))


def _text(tree: exp.Expression) -> str:
    """Return the text of an expression for a node: a plain column as its bare name."""
    return tree.name if isinstance(tree, exp.Column) else str(tree.sql(dialect=Braided))
