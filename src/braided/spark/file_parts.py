"""The file, and the part of it, from which each row of a stream comes.

Spark gives a task its files by size, not in the order in which they were written. An operator that learns a lateness
must not treat rows as late because of this (`braided.runtime.input_parts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from braided.runtime.input_parts import COLUMN
from braided.spark.catalyst import PlanNode, plan_of
from braided.spark.sessions import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# None of these reads ahead, so Spark knows which file each row is in.
_TRANSPARENT = {"Project", "Filter", "SubqueryAlias", "EventTimeWatermark"}


def with_parts(frame: DataFrame) -> tuple[DataFrame, bool]:
    """Return a frame with a last column that identifies files and their parts, if it reads files."""
    if is_connect(frame) or not _reads_files(plan_of(frame)):
        return frame, False
    return frame.withColumn(COLUMN, F.xxhash64(F.input_file_name(), F.input_file_block_start())), True


def _reads_files(plan: PlanNode) -> bool:
    """Whether there is one source of files, and nothing after it reads ahead, as Python functions do."""
    if plan.has_python_functions:
        return False
    while plan.kind in _TRANSPARENT:
        plan = plan.child
    return plan.kind == "StreamingRelation"
