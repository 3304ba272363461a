"""The two halves of an aggregate after a join: partials in the join's workers, and windows that Spark closes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braided.aggregates.partial import HORIZON, PANE, TICK
from braided.spark.names import quoted
from braided.spark.watermark import WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOT_ANSI = "spark.sql.ansi.enabled is off, and workers compute as with it"


def with_keys(partials: DataFrame, keys: Sequence[str], held: Mapping[str, str]) -> DataFrame:
    """Return partials with every key of their groups under its own name."""
    for key in keys:
        if key in held:
            partials = partials.withColumn(key, F.col(quoted(held[key])))
    return partials


def closing(partials: DataFrame) -> DataFrame:
    """Return partials by which Spark closes windows as soon as nothing can be added to them: by the horizon.

    Ticks carry it in every batch and are dropped after Spark has seen them. Spark moves filters below the watermark,
    where they would drop ticks before it has: this one stays since it mentions the horizon, and those of the query
    (on its groups, or that a window's time is not null) since no filter passes a column that is not deterministic. The
    mark that makes the horizon the clock of the window is then on the pane.
    """
    marked = partials.withWatermark(HORIZON, "0 seconds").where(f"NOT ({TICK} AND {HORIZON} IS NOT NULL)")
    others = [F.col(quoted(name)) for name in partials.columns if name not in (PANE, TICK, HORIZON)]
    pane = F.when(F.spark_partition_id() >= 0, F.col(PANE))
    return marked.select(pane.alias(PANE, metadata={WATERMARK: 0}), *others)
