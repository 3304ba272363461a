"""Where router tasks get their table from: a control directory that the driver opens, or one table for good."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braided.compile.plan import Plan
from braided.errors import ControlError, OptionError
from braided.routing.control import ControlDir
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.spark.conf import PROVIDER, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("braided")
PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Routing:
    """The first table and, where the routing adapts, the directory with the later ones."""

    table: RoutingTable
    control: ControlDir | None = None
    redact: bool = False

    @property
    def workers(self) -> int:
        """The number of workers there are."""
        return self.table.workers

    def table_of(self, batch: int, query: str, join: str) -> RoutingTable:
        """Return the table of a batch."""
        if self.control is None:
            return self.table
        self.control.claim(query, join)
        table = self.control.pin(batch, query)
        if table.workers != self.workers:
            raise ControlError(
                f"control={self.control.location!r}: its tables are for {table.workers} workers, this query has "
                f"{self.workers}; set {PARTITIONS}={table.workers} or start anew"
            )
        return table


def count_workers(spark: SparkSession) -> int:
    """Check that the session can run a stateful operator; return the number of its workers."""
    provider = spark.conf.get(PROVIDER)
    if provider != ROCKSDB:
        raise OptionError(f"{PROVIDER}={provider!r}: braided keeps its state in RocksDB; set it to {ROCKSDB!r}")
    return int(str(spark.conf.get(PARTITIONS)))


def make_routing(plan: Plan, workers: int, control: str | None, redact: bool) -> Routing:
    """Return how router tasks find their table; open the control directory, with its first table if it has none.

    Precondition: everything else about the operator has been checked, since the directory is written to.
    """
    if control is None:
        if plan.scheme == "auto" and plan.keyed:
            _log.info("no control=: the routing is fixed, so hot keys and hot workers stay where they are")
        return Routing(first_table(plan.scheme, workers, keyed=plan.keyed, version=0))
    if not isinstance(control, str | os.PathLike) or not str(control):
        raise OptionError(f"control={control!r}: write a directory or an fsspec URL that all executors can reach")
    if plan.fixed is not None:
        raise OptionError(f"control=: {plan.fixed}; leave it out")
    first = first_table(plan.scheme, workers, keyed=plan.keyed, version=1)
    directory = open_control(control)
    directory.check()
    if not directory.versions():
        directory.publish(first)
    newest = directory.newest()
    if newest.workers != workers:
        raise ControlError(
            f"control={str(control)!r}: its tables are for {newest.workers} workers, this session has {workers}; set "
            f"{PARTITIONS}={newest.workers} or give another directory"
        )
    if newest.scheme != first.scheme:
        raise ControlError(
            f"partition={plan.scheme!r}: control={str(control)!r} was made for {newest.scheme!r}; "
            "give another directory"
        )
    return Routing(newest, directory, redact)


def open_control(location: str | os.PathLike[str]) -> ControlDir:
    """Return the control directory at a path or URL."""
    text = str(location)
    return ControlDir(text if "://" in text else os.path.abspath(text))
