"""Where router tasks get their table from: a control directory, or always the first table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from braided.errors import ControlError, OptionError
from braided.operators.physical import Plan
from braided.routing.control_directory import ControlDir
from braided.routing.root import ControlRoot
from braided.routing.start import first_table
from braided.routing.table import RoutingTable
from braided.runtime.bookkeeping import lasting
from braided.runtime.worker import fingerprint
from braided.spark.conf import PROVIDER, ROCKSDB
from braided.spark.control import Fixed, InCheckpoint, warn_if_fixed
from braided.spark.sessions import slots_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
# Spark takes the partitions of stateful operators from the checkpoint. Since 4.1 it keeps them in this setting of the
# query's session, and 4.0 puts them into PARTITIONS there. Tasks get both as local properties.
_STATE_PARTITIONS = "spark.sql.streaming.internal.stateStore.partitions"


@dataclass(frozen=True)
class Routing:
    """How the first table is made and, where the routing adapts, where the later ones are.

    workers : the number of the session's partitions. A running query may have another one: see `workers_of_task`.
    operator : the name of the operator's directory, in the checkpoint or below a root.
    fixed : why the routing does not adapt.
    """

    scheme: str
    keyed: bool
    workers: int
    control: ControlDir | ControlRoot | InCheckpoint | None = None
    redact: bool = False
    operator: str = ""
    fixed: str = ""

    def __post_init__(self) -> None:
        self.first()  # raises if the operator cannot have this scheme

    def first(self, workers: int | None = None) -> RoutingTable:
        """Return the first table for a number of workers, by default the session's."""
        version = 0 if self.control is None else 1
        return first_table(self.scheme, workers or self.workers, keyed=self.keyed, version=version)

    def directory(self, query: str) -> ControlDir | None:
        """Return the control directory of a query."""
        if isinstance(self.control, ControlRoot | InCheckpoint):
            return self.control.directory(query, self.operator)
        return self.control

    def table_of(self, batch: int, query: str, join: str, workers: int, run: str | None = None) -> RoutingTable:
        """Return the table of a batch of a query with this number of workers, in one of its runs."""
        control = self.directory(query)
        if control is None:
            return self.first(workers)
        if isinstance(self.control, ControlRoot) and run is not None:
            self.control.refuse_copy(query, run)
        control.claim(query, join)
        table = control.pin(batch, query, self.first(workers))
        self.check_scheme(control, table)
        if table.workers != workers:
            raise ControlError(
                f"control={control.location!r}: its tables are for {table.workers} workers, but this query has "
                f"{workers}; give the directory that belongs to the checkpoint, or another one"
            )
        return table

    def check_scheme(self, control: ControlDir, table: RoutingTable) -> None:
        """Refuse a table of another scheme."""
        scheme = self.first().scheme
        if table.scheme != scheme:
            raise ControlError(
                f"partition={scheme!r}: control={control.location!r} was created for {table.scheme!r}; "
                "give another directory, or restore partition="
            )


def workers_of_task(routing: Routing) -> int:
    """Return the number of workers of the query that a task belongs to: the partitions in its checkpoint."""
    context = TaskContext.get()
    for name in (_STATE_PARTITIONS, PARTITIONS) if context is not None else ():
        number = context.getLocalProperty(name)
        if number is not None:
            return int(number)
    return routing.workers


def state_partitions(session: SparkSession) -> int:
    """Return the number of partitions in a query's checkpoint, from the session that `foreachBatch` passes on."""
    return int(str(session.conf.get(_STATE_PARTITIONS, None) or session.conf.get(PARTITIONS)))


def count_workers(spark: SparkSession) -> int:
    """Check that the session can run a stateful operator; return the number of its workers.

    If it is not set, Spark's default is 200. In local mode these are two hundred tasks on a few cores, each with a
    Python process and a state store, in every batch. So in local mode it is set, for this session, to one per core.
    """
    provider = spark.conf.get(PROVIDER)
    if provider != ROCKSDB:
        raise OptionError(f"{PROVIDER}={provider!r}: braided keeps its state in RocksDB; set it to {ROCKSDB!r}")
    if spark.conf.get(PARTITIONS, None) is None and str(spark.conf.get("spark.master", "")).startswith("local"):
        spark.conf.set(PARTITIONS, max(2, slots_of(spark)))
    return int(str(spark.conf.get(PARTITIONS)))


def make_routing(
    plan: Plan,
    workers: int,
    control: ControlDir | ControlRoot | InCheckpoint | Fixed,
    *,
    name: str | None,
    redact: bool,
) -> Routing:
    """Return how router tasks find their table, after checking that the control directory can be used.

    The first task of a query publishes the first table: before it, neither the query's id nor its number of workers is
    known. Precondition: everything else about the operator has been checked, since this creates the directory.
    """
    if isinstance(control, Fixed):
        if plan.joined is not None and plan.fixed is None:
            warn_if_fixed(control)
        return Routing(plan.scheme, plan.keyed, workers, fixed=plan.fixed or control.why)
    if plan.fixed is not None:
        raise OptionError(f"control=: {plan.fixed}; leave it out")
    if not isinstance(control, InCheckpoint):
        control.check()
    operator = (
        f"{plain_name(name or plan.spec.kind)}-{fingerprint({'name': name, **lasting(plan.operator.options)})[:12]}"
    )
    routing = Routing(plan.scheme, plan.keyed, workers, control, redact, operator)
    if isinstance(control, ControlDir) and control.versions():
        routing.check_scheme(control, control.newest())
    return routing


def plain_name(name: str) -> str:
    """Return a name as a part of a path."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40]
