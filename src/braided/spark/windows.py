"""Windowed aggregates by Spark's own operator: of rows, or of partial results from workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from braided.operators.aggregate.partial import HORIZON, PANE, TICK
from braided.plan.aggregates import WINDOW
from braided.plan.nodes import Aggregate
from braided.plan.partials import Partials
from braided.spark.names import quoted
from braided.spark.watermark import WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def native_windows(rows: DataFrame, node: Aggregate) -> DataFrame:
    """Return windows of rows."""
    names = set(rows.columns)
    keys = [(F.col(quoted(text)) if text in names else F.expr(text)).alias(name) for name, text in node.by]
    values = [F.expr(text).alias(name) for name, text in node.values]
    return rows.groupBy(_window(node.time, node), *keys).agg(*values)


def merged_windows(partials: DataFrame, node: Aggregate, plan: Partials) -> DataFrame:
    """Return windows of partial results."""
    values = [F.expr(use.sql()).alias(name) for (name, _), use in zip(node.values, plan.uses, strict=True)]
    keys = [F.col(quoted(key)).alias(name) for (name, _), key in zip(node.by, plan.keys, strict=True)]
    return _closed(partials).groupBy(_window(PANE, node), *keys).agg(*values)


def _closed(partials: DataFrame) -> DataFrame:
    """Return partials with the horizon as their watermark, so that Spark closes windows as soon as they are complete.

    Ticks carry the horizon in every batch, and are dropped after Spark has seen them. Spark moves filters below the
    watermark, where they would drop ticks too early. This filter is not moved because it reads the horizon; the query's
    filters (on its groups, or that a window's time is not null) are not moved because no filter passes a column that is
    not deterministic. The mark that makes the horizon the clock of the window is then on the pane.
    """
    marked = partials.withWatermark(HORIZON, "0 seconds").where(f"NOT ({TICK} AND {HORIZON} IS NOT NULL)")
    others = [F.col(quoted(name)) for name in partials.columns if name not in (PANE, TICK, HORIZON)]
    pane = F.when(F.spark_partition_id() >= 0, F.col(PANE))
    return marked.select(pane.alias(PANE, metadata={WATERMARK: 0}), *others)


def _window(time: str, node: Aggregate) -> Any:
    size, slide, offset = (f"{micros} microseconds" for micros in (node.size, node.slide, node.offset))
    return F.window(F.col(quoted(time)), size, slide, offset).alias(WINDOW)
