"""The processor that Spark calls with a worker's packets. It is light: the operator is loaded with the first packets.

When a query starts, Spark runs another Python process on the driver, only to ask a processor for its state variables.
If this loaded an operator with its kernels, every start of a query would take about a second longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

if TYPE_CHECKING:
    import pandas as pd

    Work = Callable[[tuple[int], Iterator[pd.DataFrame], Any, Any], Iterator[pd.DataFrame]]

# Types, not a string, which PySpark would parse twice in every task.
_CONTENT = StructType([StructField("content", BinaryType())])
_ID = StructType([StructField("id", LongType())])


class Processor(StatefulProcessor):  # type: ignore[misc]
    """Opens the two state variables, and passes them with the packets to `work`, which it carries pickled."""

    def __init__(self, work: Work) -> None:
        # Part of the function that Spark itself pickles, so equally trusted.
        self._packed = cloudpickle.dumps(work)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        self._bookkeeping = handle.getValueState("book", _CONTENT)
        self._blocks = handle.getMapState("blocks", _ID, _CONTENT)

    def handleInputRows(
        self, key: tuple[int], rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Process everything this worker gets in one batch."""
        work: Work = cloudpickle.loads(self._packed)
        return work(key, rows, self._bookkeeping, self._blocks)

    def close(self) -> None:
        """Do nothing: no resources are held between batches."""
