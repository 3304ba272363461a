"""`braided.order` and `braided.merge` on Spark DataFrames."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Window as Rows
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from braided.durations import Duration
from braided.errors import BraidedError
from braided.ordering.ordering import LATE, SEQ, Ordering
from braided.routing.start import first_table
from braided.spark.dataflow import Routing, check_session, stateful, with_delay
from braided.spark.inputs import arrow_schema, check_frames
from braided.spark.watermark import BEHIND, DELAY, WATERMARK, lengthen_watermark, metadata_of
from braided.specs.order_options import build_ordering
from braided.time.resolve import learned_above, least, resolve_rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_numbers = itertools.count(1)


def merge_frames(
    inputs: Sequence[DataFrame],
    *,
    time: str,
    key: Any,
    lateness: Any,
    late: str,
    idle: Duration | None,
    workers: int | None,
    name: str | None,
) -> Any:
    """See `braided.order` and `braided.merge`."""
    if not isinstance(inputs, (list, tuple)) or not inputs:
        raise BraidedError("inputs: give a list of one or more DataFrames")
    names = [f"input {number}" for number in range(len(inputs))] if len(inputs) > 1 else ["input"]
    session = check_frames(dict(zip(names, inputs, strict=True)))
    schemas = [arrow_schema(frame, label) for label, frame in zip(names, inputs, strict=True)]
    rules = [_rule(frame, time, lateness) for frame in inputs]
    operator = build_ordering(schemas, time, key, rules, late, idle)
    if not inputs[0].isStreaming:
        return _aside(_ordered_batch(inputs, operator), late)
    workers = check_session(session, workers)
    routing = Routing(first_table("hash", workers, keyed=True, version=0))
    marked: list[DataFrame] = []
    mark: dict[str, int] = {}
    for frame, rule in zip(inputs, rules, strict=True):
        changed, mark = _mark(with_delay(frame), time, rule)
        marked.append(changed)
    label = name or f"order-{next(_numbers)}"
    output = _spark_schema(inputs[0], operator, mark)
    return _aside(stateful(operator, marked, output, name=label, routing=routing), late)


def _aside(frame: DataFrame, late: str) -> Any:
    if late != "side":
        return frame
    return frame.where(~F.col(LATE)).drop(LATE), frame.where(F.col(LATE)).drop(LATE)


def _rule(frame: DataFrame, time: str, lateness: Any) -> Any:
    """Return the lateness of an input; one that a braided join made brings a bound below which K need not learn."""
    known = metadata_of(frame, time).get(DELAY, 0) if time in frame.columns else 0
    if lateness == "auto":
        return resolve_rule("auto", int(known))
    rule = resolve_rule(lateness, 0)
    return rule + int(known) if isinstance(rule, int) else learned_above(rule, int(known))


def _mark(frame: DataFrame, time: str, rule: Any) -> tuple[DataFrame, dict[str, int]]:
    """Lengthen the input's watermark by how long rows wait; return it and the marks of the result's time column."""
    metadata = metadata_of(frame, time)
    behind = max(int(metadata.get(BEHIND, 0)), least(rule))
    marks = {BEHIND: behind}
    if WATERMARK in metadata:
        frame, marks[WATERMARK] = lengthen_watermark(frame, time, behind)
    return frame, marks


def _spark_schema(frame: DataFrame, operator: Ordering, marks: dict[str, int]) -> StructType:
    fields = []
    for field in frame.schema.fields:
        metadata = {k: v for k, v in (field.metadata or {}).items() if k not in (WATERMARK, DELAY, BEHIND)}
        if field.name == operator.time:
            metadata |= marks
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    fields += [] if operator.key else [StructField(SEQ, LongType(), False)]
    fields += [StructField(LATE, BooleanType(), False)] if operator.flagged else []
    return StructType(fields)


def _ordered_batch(inputs: Sequence[DataFrame], operator: Ordering) -> DataFrame:
    """Let Spark sort what is all there; ties break by input and the columns' values."""
    number = "__braided_input"
    tagged = [frame.withColumn(number, F.lit(at)) for at, frame in enumerate(inputs)]
    together = reduce(lambda a, b: a.unionByName(b), tagged).where(F.col(operator.time).isNotNull())
    columns = [F.col(f"`{name}`") for name, kind in zip(operator.schema.names, operator.schema.types, strict=True)
               if not pa.types.is_nested(kind)]  # fmt: skip
    by = [F.col(operator.time), F.col(number), *columns]
    ordered = together.sort(*by)
    if not operator.key:
        ordered = together.withColumn(SEQ, (F.row_number().over(Rows.orderBy(*by)) - 1).cast("long")).sort(SEQ)
    ordered = ordered.drop(number)
    return ordered.withColumn(LATE, F.lit(False)) if operator.flagged else ordered
