"""Every operator gives on Spark what it gives in one process: cases of a kind in one query, batch for batch.

The runtime knows nothing of an operator's options, so a few cases of each kind say what all of them say before an issue
is closed.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support import detect_reference
from support.contract import case_detect
from support.contract.cases import KINDS
from support.contract.checks import kind_of, lateness_of
from support.contract.driving import drive
from support.contract.histories import SCHEMA, History, Way, batches, sample
from support.profiles import some
from support.streams import UTC, file_stream, run_to_end, write_batch

from braided.operators.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

COLUMNS = "k long, s string, t timestamp, u timestamp, id long"
ON_SPARK = pa.schema([field.with_type(UTC) if pa.types.is_timestamp(field.type) else field for field in SCHEMA])
WAY = Way((0, 30, 50, 92), workers=2)


def for_all(specs: list[Spec]) -> History:
    """Return a history that has no late row for any of these specs."""
    known = [lateness_of(spec) for spec in specs]
    inputs = max(map(len, known))
    return sample([min(each[side] for each in known if side < len(each)) for side in range(inputs)], rows=90)


def of_inputs(history: History, inputs: int) -> History:
    """Return the first streams of a history; cuts stay where they are, since rows only change their stream."""
    return History(inputs, tuple((side % inputs, row) for side, row in history.rows))


@pytest.mark.parametrize("kind", [pytest.param(kind, id=spec.kind) for spec, kind in KINDS.items()])
def test_equals_the_local_runtime(kind: Any, spark: SparkSession, tmp_path: Path) -> None:
    from pyspark import cloudpickle

    from braided.spark.frontend import run

    # Spark's processes do not find the modules of tests: classes of users' own travel with the operator.
    for module in (case_detect, detect_reference):
        cloudpickle.register_pickle_by_value(module)
    cases = some(kind.cases, quick=1)
    history = for_all([case.example for case in cases])
    for side, _ in enumerate(history.streams):
        for number, tasks in enumerate(batches(history, WAY, [ON_SPARK] * history.inputs)):
            rows = [batch for at, parts in tasks if at == side for batch in parts]
            write_batch(tmp_path / f"in{side}", number, pa.Table.from_batches(rows, ON_SPARK))
    # First in this process: what Spark's processes would else compile each for itself is compiled once.
    local = []
    for case in cases:
        mine = History(len(case.example.labels), tuple(r for r in history.rows if r[0] < len(case.example.labels)))
        cuts = tuple(sum(side < mine.inputs for side, _ in history.rows[:cut]) for cut in WAY.cuts)
        local.append(drive(case.example, mine, Way(cuts, workers=2), schema=ON_SPARK, final=False))
    results = []
    for number, case in enumerate(cases):
        frames = [file_stream(spark, tmp_path / f"in{side}", COLUMNS) for side, _ in enumerate(case.example.labels)]
        results.append(as_json(run(case.example, frames, name=f"case {number}"), number))
    run_to_end(reduce(lambda a, b: a.union(b), results), tmp_path / "check", tmp_path / "out")
    found: dict[int, Counter[Any]] = {number: Counter() for number, _ in enumerate(cases)}
    for number, text in spark.read.parquet(str(tmp_path / "out")).collect():
        found[number].update([comparable(json.loads(text))])
    for number, case in enumerate(cases):
        assert found[number] == Counter(map(comparable, local[number].rows)), case.name
        assert kind_of(case.example) is kind
        assert found[number].total() > 4, "too few results to say"


def as_json(results: DataFrame, number: int) -> DataFrame:
    """Return results as text, with times in microseconds."""
    from pyspark.sql import functions as F

    row = F.struct(*(plain(F.col(f"`{field.name}`"), field.dataType).alias(field.name) for field in results.schema))
    return results.select(F.lit(number).alias("case"), F.to_json(row, {"ignoreNullFields": "false"}).alias("row"))


def plain(column: Column, kind: Any) -> Column:
    """Return a column with times in microseconds."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType, TimestampType

    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, StructType):
        parts = [plain(column[field.name], field.dataType).alias(field.name) for field in kind]
        return F.when(column.isNotNull(), F.struct(*parts))
    return column


def comparable(row: Any) -> Any:
    """Return a row that can be counted."""
    return tuple(comparable(value) if isinstance(value, dict) else value for value in row.values())
