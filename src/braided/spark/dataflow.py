"""The Spark runtime: one shuffle of packed blocks, state in Spark's own state store.

```
 each input -> mapInArrow ROUTE -> union -> observe, drop reports
   -> groupBy(worker).transformWithStateInPandas WORK -> observe, drop reports -> rows
```

Results of flat types leave WORK as rows: as pandas columns backed by Arrow, which Spark takes over without a copy.
PySpark converts nested columns of pandas row by row, so results with nested columns leave as blocks, which a further
mapInArrow unpacks (UNPACK); the hop through a second Python process costs a fifth of a large batch.

Python is fast on columns, and Spark's Python state API costs a round trip per call. So rows cross the shuffle
as a few large binary rows, and state is read and written in blocks. Reports travel as rows that `observe`
collects into the query's progress; nothing timed crosses the shuffle.

PySpark finds columns by their names, and a dot in a name means a field, so columns have plain names inside the
dataflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from braided.runtime.contract import Operator
from braided.spark.direct import DirectInput
from braided.spark.file_parts import with_parts
from braided.spark.processor import Processor
from braided.spark.routing import Routing
from braided.spark.tasks import (
    BLOCK,
    FILES_DDL,
    MOMENT,
    PACKETS_DDL,
    REPORT,
    FileTask,
    RouteTask,
    TickTask,
    Unpack,
    Worker,
    WrittenResult,
    wire_names,
)
from braided.time.propagated_delay import COLUMN, FIELD, PropagatedDelay

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METRIC = "braided:"


@dataclass(frozen=True)
class Dataflow:
    """An operator over streaming inputs, and what Spark must know to run it.

    With `propagated_delay`, the last column of the result is the delay of its rows, for an operator after this one. A
    column that no operator reads costs eight bytes per row in Arrow, and Spark never reads it.
    """

    operator: Operator
    inputs: Sequence[DataFrame | DirectInput]
    output: StructType
    metric: str
    routing: Routing
    propagated_delay: PropagatedDelay | None = None
    home: str = ""
    """The name of its folder in a new checkpoint."""
    times: Mapping[str, int] = field(default_factory=dict)
    """For each column of the result that is a time of a stream's rows, the stream."""
    ticks: DataFrame | None = None
    """A stream that makes batches without rows, if a silence is to release rows (`braided.spark.ticks`)."""


def stateful(dataflow: Dataflow, written: WrittenResult | None = None) -> DataFrame:
    """Run an operator and return its results as a streaming DataFrame.

    With `written`, workers write their results into files, and the returned rows name these files.
    """
    operator, inputs, output = dataflow.operator, dataflow.inputs, dataflow.output
    metric, routing, propagated_delay = dataflow.metric, dataflow.routing, dataflow.propagated_delay
    routed = None
    for side, input_ in enumerate(inputs):
        files, in_parts = None, False
        if isinstance(input_, DirectInput):
            files = FileTask(input_.reader, input_.partitions, may_repeat=input_.may_repeat)
            input_ = input_.names  # noqa: PLW2901
        elif not isinstance(operator.lateness[side], int):
            input_, in_parts = with_parts(input_)  # noqa: PLW2901
        named = input_.toDF(*wire_names(len(input_.columns)))
        task = RouteTask(operator, side, routing, files, in_parts=in_parts, home=dataflow.home)
        packets = named.mapInArrow(task, PACKETS_DDL)
        routed = packets if routed is None else routed.unionAll(packets)
    assert routed is not None
    if dataflow.ticks is not None:
        task = TickTask(operator, 0, routing, home=dataflow.home)
        routed = routed.unionAll(dataflow.ticks.mapInArrow(task, PACKETS_DDL))
    flat = all(not pa.types.is_nested(field.type) for field in operator.output)
    results_schema = operator.output
    if propagated_delay is not None:
        results_schema = results_schema.append(FIELD)
        output = StructType([*output.fields, StructField(COLUMN, LongType())])
    # Report rows have no values, so every column must admit nulls on the way.
    names = wire_names(len(output))
    fields = [StructField(name, field.dataType, True) for name, field in zip(names, output.fields, strict=True)]
    if written is not None:
        fields = StructType.fromDDL(FILES_DDL).fields
    leaving = fields if flat or written is not None else [StructField(BLOCK, BinaryType())]
    wire = StructType([*leaving, StructField(REPORT, StringType())])
    # Spark fixes this time for a micro-batch and keeps it in the offset log. It is part of the code that Spark
    # generates, so every batch compiles that code again: here for a few packets, not for every row.
    moment = F.lit(None).cast("long") if operator.idle is None else F.unix_micros(F.current_timestamp())
    results = (
        routed.observe(f"{METRIC}{metric}:route", F.collect_list("report").alias("reports"))
        .where("report is null")
        .drop("report")
        .withColumn(MOMENT, moment)
        .groupBy("worker")
        .transformWithStateInPandas(
            Processor(Worker(operator, routing, flat, propagated_delay, written, dataflow.home)),
            wire,
            "Append",
            "None",
        )
        .observe(f"{METRIC}{metric}:work", F.collect_list(REPORT).alias("reports"))
        .where(F.col(REPORT).isNull())
        .drop(REPORT)
    )
    if written is not None:
        return results
    if not flat:
        results = results.mapInArrow(Unpack(results_schema), StructType(fields))
    return results.select(
        *(
            F.col(name).alias(field.name, metadata=field.metadata or {})
            for name, field in zip(names, output.fields, strict=True)
        )
    )
