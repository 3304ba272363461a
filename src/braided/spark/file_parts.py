"""Which of Spark's files, and which part of it, each row of a stream comes from.

Spark gives a task its files by size, not in the order in which they were written. An operator that learns a lateness
must not take that for rows that are late (`braided.runtime.input_parts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braided.runtime.input_parts import COLUMN
from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Nothing of these reads ahead, so Spark knows which file each row is in.
_TRANSPARENT = {"Project", "Filter", "SubqueryAlias", "EventTimeWatermark"}


def with_parts(frame: DataFrame) -> tuple[DataFrame, bool]:
    """Return a frame with a last column that tells files and parts of them apart, where it reads files."""
    if is_connect(frame) or not _reads_files(plan_of(frame)):
        return frame, False
    return frame.withColumn(COLUMN, F.xxhash64(F.input_file_name(), F.input_file_block_start())), True


def _reads_files(plan: PlanNode) -> bool:
    """Whether there is one source of files, and nothing in between reads ahead, as Python functions do."""
    if plan.has_python_functions:
        return False
    while plan.kind in _TRANSPARENT:
        plan = plan.child
    return plan.kind == "StreamingRelation"
