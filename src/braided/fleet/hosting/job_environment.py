"""What the components of a peer share: its Spark application, its environment, and the modules that it may run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from braided.errors import PeerError
from braided.fleet.component_host import Job
from braided.fleet.definition import job_of, modules_of
from braided.jobs import job_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobEnvironment:
    """A peer's session, its cores, and the Python modules that steps may come from, including their submodules.

    watch : called with the session of each component that starts; its result is called after the component has ended.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        cores: float,
        modules: Sequence[str],
        environment: Mapping[str, str],
        watch: Callable[[SparkSession], Callable[[], None]] = lambda session: lambda: None,
    ) -> None:
        self.spark = spark
        self.cores = cores
        self.watch = watch
        self._modules = tuple(modules)
        self._environment = environment

    def check(self, component: Job) -> None:
        """Refuse a component that this peer must not run, or whose variables it does not have."""
        self.job(component, component.checkpoint)

    def job(self, component: Job, checkpoint: str) -> job_file.Job:
        """Return the job of a component with a checkpoint; `PeerError` if this peer must not run it."""
        job = job_of(component, checkpoint, self._environment)
        if job.needs.cores > self.cores:
            raise PeerError(f"needs.cores={job.needs.cores}: this peer has {self.cores:g} cores")
        for module in modules_of(job):
            if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in self._modules):
                raise PeerError(f"python={module!r}: this peer may not run it; start it with --allow {module}")
        return job

    def session(self, job: job_file.Job) -> SparkSession:
        """Return a separate session for a component: settings and names of tables are not shared."""
        session = self.spark.newSession()
        settings = {
            # Not the peer's cores: a checkpoint keeps the number of state partitions of its first start.
            "spark.sql.shuffle.partitions": str(max(2, job.needs.cores)),
            # Routing tables are in the checkpoint and move with it, wherever the peer's own queries have theirs.
            "spark.braided.control": "true",
            **job.spark,
        }
        for name, value in settings.items():
            try:
                session.conf.set(name, value)
            except PySparkException as error:
                raise PeerError(f"spark.{name}: cannot be set for one job of a peer: {first_line(error)}") from error
        return session


def first_line(error: BaseException) -> str:
    """Return the first line of a message that is not empty."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
