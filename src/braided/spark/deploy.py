"""`braided.deploy`: a query as one Spark query, or as several that are connected by topics, under one handle."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braided.durations import Duration
from braided.errors import BraidedError, OptionError
from braided.operators.shared_options import one_of
from braided.plan.nodes import Aggregate, LogicalPlan, Node, Operator, Source, Watermark
from braided.plan.shares import Cost, shares_of
from braided.plan.stages import Stage, Strategy, split
from braided.spark.analysis import SparkAnalysis
from braided.spark.direct import read_files
from braided.spark.progress import read_report
from braided.spark.query import Query
from braided.spark.routing import PARTITIONS, count_workers
from braided.spark.run_plan import run_plan
from braided.spark.sink import NOW, write_files
from braided.spark.watermark import WATERMARK, marks_of
from braided.storage.topic import is_topic
from braided.time.lateness import Lateness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_POOL = "spark.scheduler.pool"
_COSTS = "costs.json"
# A query reads its settings from its session when it is built and when it starts.
_STARTING = threading.Lock()


class Deployment:
    """The stages of a query, which start, run and stop together. Made by `braided.deploy`; prints as a small table."""

    def __init__(
        self,
        stages: Sequence[Stage],
        sources: Sequence[DataFrame],
        folder: Path,
        partitions: Mapping[str, int],
        max_files: int | None,
    ) -> None:
        self._stages, self._sources, self._folder, self._partitions = stages, sources, folder, partitions
        self._session: SparkSession = sources[0].sparkSession
        self._max_files = max_files
        self._queries: dict[str, StreamingQuery] = {}
        self._before = {name: Cost(**cost) for name, cost in _read(folder / _COSTS).items()}

    @property
    def topic(self) -> str:
        """The topic with the results: read it with `braided.files` or `braided.topic`."""
        return str(self._folder / self._stages[-1].name)

    @property
    def stages(self) -> list[str]:
        """The names of the stages, each after those whose results it reads."""
        return [stage.name for stage in self._stages]

    @property
    def partitions(self) -> dict[str, int]:
        """How many partitions each stage has."""
        return dict(self._partitions)

    def start(self, *, trigger: Duration | None = None) -> None:
        """Start all stages, or start them again where they stopped; each goes on from its checkpoint."""
        self._check_stopped()
        for stage in self._stages:
            self._queries[stage.name] = self._start(stage, trigger)

    def run(self) -> None:
        """Process the available input, stage by stage, and end."""
        self._check_stopped()
        for stage in self._stages:
            self._queries[stage.name] = self._start(stage, NOW)
            self._queries[stage.name].awaitTermination()
        self._keep_costs()

    def watch(self, timeout: float | None = None) -> bool:
        """Wait until a stage ends, at most `timeout` seconds; return whether one has. All stop if one fails."""
        waiting = threading.Event()
        passed = 0.0
        while timeout is None or passed < timeout:
            ended = [stage for stage in self._stages if not self._queries[stage.name].isActive]
            failed = [stage for stage in ended if self._queries[stage.name].exception() is not None]
            if failed:
                why = self._queries[failed[0].name].exception()
                self.stop()
                raise BraidedError(f"stage {failed[0].name}: {why}")
            if ended:
                return True
            waiting.wait(0.2)
            passed += 0.2
        return False

    def stop(self) -> None:
        """Stop all stages. When they start again, no result is lost or duplicated."""
        for query in self._queries.values():
            query.stop()
        self._keep_costs()

    def costs(self) -> dict[str, Cost]:
        """Return the costs of each stage so far, those of earlier runs included; pass them to `braided.deploy`."""
        return {stage.name: self._cost(stage.name) for stage in self._stages}

    def shares(self) -> dict[str, int]:
        """Return how many partitions each stage would have by its costs so far (StreamCloud III.G).

        A stage keeps its number of partitions, since its state is on them. A new deployment with `costs` uses these.
        """
        return shares_of(self.stages, sum(self._partitions.values()), self.costs())

    def __str__(self) -> str:
        costs, shares = self.costs(), self.shares()
        width = max(map(len, self.stages))
        lines = [f"{'stage':<{width}}  partitions  by cost  state    us/row"]
        for stage in self._stages:
            query, name = self._queries.get(stage.name), stage.name
            state = "new" if query is None else "runs" if query.isActive else "stopped"
            cost, share = (f"{costs[name].us_per_row:.1f}", shares[name]) if costs[name].rows else ("-", "-")
            lines.append(f"{name:<{width}}  {self._partitions[name]:>10}  {share:>7}  {state:<7}  {cost:>8}")
        return "\n".join(lines)

    def _check_stopped(self) -> None:
        running = [name for name, query in self._queries.items() if query.isActive]
        if running:
            raise BraidedError(f"deploy: {running[0]} is running; call stop() before")

    def _start(self, stage: Stage, trigger: Any) -> StreamingQuery:
        conf, context = self._session.conf, self._session.sparkContext
        with _STARTING:
            before = conf.get(PARTITIONS, None)
            conf.set(PARTITIONS, self._partitions[stage.name])
            context.setLocalProperty(_POOL, stage.name)
            try:
                frames = (*self._sources, *(self._stream(given) for given in stage.inputs))
                return write_files(
                    run_plan(LogicalPlan(_with_watermarks(stage.root, frames), frames)),
                    self._folder / stage.name,
                    checkpoint=self._folder / "checkpoints" / stage.name,
                    trigger=trigger,
                    name=None,
                )
            finally:
                if before is None:
                    conf.unset(PARTITIONS)
                else:
                    conf.set(PARTITIONS, before)
                context.setLocalProperty(_POOL, None)

    def _stream(self, stage: Stage) -> DataFrame:
        """Return the output of a stage as a stream."""
        path = self._folder / stage.name
        return read_files(
            self._session, path, format="parquet", schema=None, max_files=self._max_files, reader=None, options={}
        )

    def _cost(self, name: str) -> Cost:
        kept = self._before.get(name, Cost())
        query = self._queries.get(name)
        if query is None:
            return kept
        progress = list(query.recentProgress)
        ms = sum(batch.durationMs.get("addBatch", 0) for batch in progress)
        return Cost(kept.ms + ms, kept.rows + _rows(query, progress))

    def _keep_costs(self) -> None:
        costs = self.costs()
        content = {name: {"ms": cost.ms, "rows": cost.rows} for name, cost in costs.items()}
        new = self._folder / f".costs.{os.getpid()}"
        new.write_text(json.dumps(content))
        new.replace(self._folder / _COSTS)
        self._before, self._queries = costs, {}


def _rows(query: StreamingQuery, progress: Sequence[Any]) -> int:
    """Return how many rows a query has read in these batches.

    If an operator reads files itself, Spark counts files. The operator's report counts rows, from the checkpoint's
    start on.
    """
    try:
        report = read_report(query, None)
    except BraidedError:
        return sum(int(batch.numInputRows) for batch in progress)
    rows, batches = sum(int(stream.get("rows", 0)) for stream in report.streams), int(report.query["batches"])
    return round(rows * min(1.0, len(progress) / max(1, batches)))


def deploy_query(
    query: Query,
    *,
    topics: str | os.PathLike[str],
    strategy: Strategy,
    processors: int | None,
    costs: Mapping[str, Cost] | Deployment | str | os.PathLike[str] | None,
    max_files: int | None,
) -> Deployment:
    """See `braided.deploy`."""
    if not isinstance(query, Query):
        raise OptionError(
            f"query: expected a query, not {type(query).__name__}; write it with braided.stream(df, time='ts')"
        )
    root, sources = query.plan.root, query.plan.sources
    if isinstance(root, Source):
        raise OptionError("query: has no step; add one, such as where() or join()")
    analysis = SparkAnalysis(sources)

    def is_lateness_learned(join: Operator) -> bool:
        physical, given = analysis.physical(join), getattr(join.spec, "lateness", None)
        if any(isinstance(rule, Lateness) for rule in physical.operator.lateness):
            return True
        # A stage reads the result of another one from a topic, whose rows have a horizon and no fixed lateness.
        marks = [stream.marks_of(time) for stream, time in zip(physical.streams, physical.times, strict=True)]
        return any(mark.delay is not None and one_of(given, side) is None for side, mark in enumerate(marks))

    stages = split(root, len(sources), strategy, is_lateness_learned)
    given = count_workers(analysis.session) if processors is None else processors
    if type(given) is not int or given < len(stages):
        raise OptionError(f"processors={processors!r}: write at least one for each of the {len(stages)} stages")
    folder = Path(os.fspath(topics)).absolute()
    if is_topic(str(folder)):
        raise OptionError(f"topics={str(topics)!r}: this is a topic; give a directory for all topics of the query")
    names = [stage.name for stage in stages]
    shares = shares_of(names, given, _measured(costs, names))
    return Deployment(stages, sources, folder, _kept_partitions(folder, strategy, shares), max_files)


def _with_watermarks(node: Node, frames: Sequence[DataFrame]) -> Node:
    """Return a plan whose aggregates of topics have a watermark, if the topic's writer recorded how late rows are."""
    node = node.with_inputs([_with_watermarks(child, frames) for child in node.inputs])
    if not isinstance(node, Aggregate) or not isinstance(node.input, Source):
        return node
    metadata = frames[node.input.number].schema[node.time].metadata or {}
    delay = marks_of(metadata).delay
    if delay is None or WATERMARK in metadata:
        return node
    return replace(node, input=Watermark(node.input, node.time, delay))


def _measured(
    costs: Mapping[str, Cost] | Deployment | str | os.PathLike[str] | None, names: Sequence[str]
) -> Mapping[str, Cost]:
    """Return the costs of stages in another run: the given ones, or those that the deployment saved in its folder."""
    if costs is None:
        return {}
    if isinstance(costs, Deployment):
        return costs.costs()
    if isinstance(costs, Mapping):
        return costs
    noted = {name: Cost(**cost) for name, cost in _read(Path(os.fspath(costs)) / _COSTS).items()}
    missing = [name for name in names if name not in noted]
    if missing:
        raise OptionError(
            f"costs={os.fspath(costs)!r}: it has no costs of the stage {missing[0]}; give the topics= of a "
            "deployment of this query that has run with the same strategy"
        )
    return noted


def _kept_partitions(folder: Path, strategy: str, shares: dict[str, int]) -> dict[str, int]:
    """Return the partitions of the stages from the first deployment of the query: state cannot be moved."""
    path = folder / "deployment.json"
    known = _read(path)
    if known:
        if known.get("strategy") != strategy or list(known.get("partitions", {})) != list(shares):
            raise OptionError(
                f"topics={str(folder)!r}: another query is deployed there, with strategy={known.get('strategy')!r} "
                f"and the stages {', '.join(known.get('partitions', {}))}; give another directory"
            )
        return {name: int(count) for name, count in known["partitions"].items()}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"strategy": strategy, "partitions": shares}))
    return shares


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise OptionError(f"{path}: is damaged ({error}); delete it") from error
    return content if isinstance(content, dict) else {}
