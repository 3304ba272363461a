"""Where router tasks get their table from: a control directory, or one table for good."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from braided.compile.plan import Plan
from braided.errors import ControlError, OptionError
from braided.operator.book import lasting
from braided.operator.worker import fingerprint
from braided.routing.control import ControlDir
from braided.routing.root import ControlRoot
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.spark.conf import PROVIDER, ROCKSDB
from braided.spark.control import Fixed, warn_if_fixed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class Routing:
    """The first table and, where the routing adapts, where the later ones are.

    operator : what the operator's directory is called, where one root serves all queries.
    fixed : why the routing does not adapt.
    """

    table: RoutingTable
    control: ControlDir | ControlRoot | None = None
    redact: bool = False
    operator: str = ""
    fixed: str = ""

    @property
    def workers(self) -> int:
        """The number of workers there are."""
        return self.table.workers

    def directory(self, query: str) -> ControlDir | None:
        """Return the control directory of a query."""
        return self.control.directory(query, self.operator) if isinstance(self.control, ControlRoot) else self.control

    def table_of(self, batch: int, query: str, join: str, run: str | None = None) -> RoutingTable:
        """Return the table of a batch of a query, in one of its runs."""
        control = self.directory(query)
        if control is None:
            return self.table
        if isinstance(self.control, ControlRoot) and run is not None:
            self.control.refuse_copy(query, run)
        control.claim(query, join)
        table = control.pin(batch, query, self.table if isinstance(self.control, ControlRoot) else None)
        _check_fit(control, table, self.table)
        return table


def _check_fit(control: ControlDir, table: RoutingTable, first: RoutingTable) -> None:
    """Refuse a table that was made for another number of workers, or another scheme, than a query has."""
    if table.workers != first.workers:
        raise ControlError(
            f"control={control.location!r}: its tables are for {table.workers} workers, this session has "
            f"{first.workers}; set {PARTITIONS}={table.workers} or give another directory"
        )
    if table.scheme != first.scheme:
        raise ControlError(
            f"partition={first.scheme!r}: control={control.location!r} was made for {table.scheme!r}; "
            "give another directory, or restore partition="
        )


def count_workers(spark: SparkSession) -> int:
    """Check that the session can run a stateful operator; return the number of its workers."""
    provider = spark.conf.get(PROVIDER)
    if provider != ROCKSDB:
        raise OptionError(f"{PROVIDER}={provider!r}: braided keeps its state in RocksDB; set it to {ROCKSDB!r}")
    return int(str(spark.conf.get(PARTITIONS)))


def make_routing(
    plan: Plan, workers: int, control: ControlDir | ControlRoot | Fixed, *, name: str | None, redact: bool
) -> Routing:
    """Return how router tasks find their table; open the control directory, with its first table if it has none.

    Below a root the directory is made by the first task of a query, since a query has no id before it starts.
    Precondition: everything else about the operator has been checked, since the directory is written to.
    """
    if isinstance(control, Fixed):
        if plan.joined is not None and plan.fixed is None:
            warn_if_fixed(control)
        fixed = first_table(plan.scheme, workers, keyed=plan.keyed, version=0)
        return Routing(fixed, fixed=plan.fixed or control.why)
    if plan.fixed is not None:
        raise OptionError(f"control=: {plan.fixed}; leave it out")
    control.check()
    operator = f"{_plain(name or plan.spec.kind)}-{fingerprint({'name': name, **lasting(plan.operator.options)})[:12]}"
    routing = Routing(first_table(plan.scheme, workers, keyed=plan.keyed, version=1), control, redact, operator)
    if isinstance(control, ControlRoot):
        return routing
    newest = control.newest(routing.table)
    _check_fit(control, newest, routing.table)
    return replace(routing, table=newest)


def _plain(name: str) -> str:
    """Return a name as a part of a path."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40]
