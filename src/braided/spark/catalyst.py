"""The only module that accesses Spark's plans and its JVM: all other modules ask it for plain values.

Spark has no public API for these functions. Each function names the internal class it uses, so that only this file must
be checked for a new version of Spark. A plan is wrapped in `PlanNode`, which is immutable like Spark's own trees.

Precondition: a classic session. Callers ask `is_connect` first, since a client of Spark Connect has no JVM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import JStreamingQueryListener, QueryProgressEvent
from pyspark.sql.types import StructType

from braided.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

JavaError = Py4JJavaError
"""An exception of the JVM that PySpark does not translate."""


@dataclass(frozen=True)
class Attribute:
    """A column of a plan's output: its name, and the number by which Spark distinguishes columns of one name."""

    id: int
    name: str


@dataclass(frozen=True)
class ProjectedColumn:
    """A column of a projection; if it only selects or renames a column of the child, with that column's number."""

    id: int
    name: str
    source: int | None
    sql: str


@dataclass(frozen=True)
class StreamSource:
    """A leaf that reads a stream: the name of its format, its options, and the schema of its rows."""

    format: str
    options: Mapping[str, str]
    schema: StructType | None


class PlanNode:
    """A node of a logical plan.

    Two wrappers of one node are not equal: compare with `same_result`.
    """

    def __init__(self, java: Any, session: SparkSession) -> None:
        self._java = java
        self._session = session

    @cached_property
    def kind(self) -> str:
        """The name of Spark's class, such as ``"Project"``."""
        return str(self._java.getClass().getSimpleName())

    @cached_property
    def children(self) -> tuple[PlanNode, ...]:
        """The inputs."""
        return tuple(PlanNode(child, self._session) for child in _items(self._java.children()))

    @property
    def child(self) -> PlanNode:
        """The only input."""
        [child] = self.children
        return child

    @property
    def output(self) -> list[Attribute]:
        """The columns of the output."""
        return [Attribute(_id_of(column), str(column.name())) for column in _items(self._java.output())]

    @property
    def metadata(self) -> list[dict[str, Any]]:
        """The metadata of the output's columns."""
        return [json.loads(str(column.metadata().json())) for column in _items(self._java.output())]

    @property
    def is_streaming(self) -> bool:
        """Whether a stream is below."""
        return bool(self._java.isStreaming())

    @property
    def is_deterministic(self) -> bool:
        """Whether the same input gives the same rows every time."""
        return bool(self._java.deterministic())

    @property
    def text(self) -> str:
        """The tree as Spark prints it."""
        return str(self._java.toString())

    def line(self, fields: int = 25) -> str:
        """Return only this node as Spark prints it, with at most `fields` fields."""
        return str(self._java.simpleString(fields))

    @property
    def metric(self) -> str:
        """The name of the metrics that a `CollectMetrics` node observes."""
        return str(self._java.name())

    @property
    def condition(self) -> str:
        """The condition of a `Filter`, as SQL."""
        return str(self._java.condition().sql())

    @property
    def projected(self) -> list[ProjectedColumn]:
        """The columns of a `Project`."""
        columns = []
        for column in _items(self._java.projectList()):
            inner = column.child() if _kind_of(column) == "Alias" else column
            source = _id_of(inner) if _kind_of(inner) == "AttributeReference" else None
            columns.append(ProjectedColumn(_id_of(column), str(column.name()), source, str(inner.sql())))
        return columns

    @property
    def stream_source(self) -> StreamSource | None:
        """What a leaf reads; None for other nodes."""
        if self.kind == "StreamingRelation":
            source = self._java.dataSource()
            options = {str(pair._1()): str(pair._2()) for pair in _items(source.options().toSeq())}
            return StreamSource(str(source.className()), options, _schema_of(source.userSpecifiedSchema()))
        if self.kind == "StreamingRelationV2":
            entries = self._java.extraOptions().asCaseSensitiveMap().items()
            options = {str(name): str(value) for name, value in entries}
            schema = StructType.fromJson(json.loads(self._java.schema().json()))
            return StreamSource(str(self._java.sourceName()), options, schema)
        return None

    @property
    def has_python_functions(self) -> bool:
        """Whether a Python function runs anywhere in the plan."""
        pattern = _jvm(self._session).org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
        return bool(self._java.containsPattern(pattern))

    def walk(self) -> Iterator[PlanNode]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def same_result(self, other: PlanNode) -> bool:
        """Whether Spark knows that two plans give the same rows."""
        return bool(self._java.sameResult(other._java))

    def optimised(self) -> PlanNode:
        """Return the plan after Spark's optimiser. (`optimizedPlan` refuses streams that do not run.)"""
        return PlanNode(_state(self._session).optimizer().execute(self._java), self._session)

    def with_inlined_ctes(self) -> PlanNode:
        """Return the plan with common table expressions inlined, where the optimiser inlines them too."""
        # Versions of Spark differ in the number of the rule's flags; all are off.
        rule = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"
        jvm = _jvm(self._session)
        count = jvm.java.lang.Class.forName(rule).getConstructors()[0].getParameterCount()
        inline = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(*[False] * count)
        return PlanNode(inline.apply(self._java), self._session)

    def with_children(self, children: Sequence[PlanNode]) -> PlanNode:
        """Return the node over other inputs."""
        listed = _jvm(self._session).PythonUtils.toSeq([child._java for child in children])
        return PlanNode(self._java.withNewChildren(listed), self._session)

    def with_columns(self, columns: Sequence[int], child: PlanNode) -> PlanNode:
        """Return a `Project` over another input, with some columns of that input, given by number, after its own."""
        own = list(_items(self._java.projectList()))
        below = {_id_of(column): column for column in _items(child._java.output())}
        listed = _jvm(self._session).PythonUtils.toSeq([*own, *(below[number] for number in columns)])
        return PlanNode(self._java.copy(listed, child._java), self._session)

    def condition_over(self, columns: Mapping[int, tuple[str, str]]) -> str | None:
        """Return the condition of a `Join` as SQL; None if it has none. `columns` are (qualifier, name) by number."""
        condition = self._java.condition()
        return str(_Renaming(self._session, columns).apply(condition.get()).sql()) if condition.isDefined() else None

    def standing_for(self, other: PlanNode) -> PlanNode:
        """Return the plan with the names, qualifiers and numbers of the columns of another plan with the same rows.

        So references to columns of DataFrames below the other plan, and to aliases, resolve as they do there.
        """
        jvm = _jvm(self._session)
        expressions, listed = jvm.org.apache.spark.sql.catalyst.expressions, jvm.PythonUtils.toSeq
        none, names = jvm.scala.Option.empty(), listed([])
        pairs = zip(_items(self._java.output()), _items(other._java.output()), strict=True)
        columns = [
            expressions.Alias(own, column.name(), column.exprId(), column.qualifier(), none, names)
            for own, column in pairs
        ]
        project = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(listed(columns), self._java)
        return PlanNode(project, self._session)

    def with_watermark_delay(self, milliseconds: int) -> PlanNode:
        """Return an `EventTimeWatermark` node with another delay.

        It has its own id: if a stream is joined with itself, both sides start from one node but have different delays.
        """
        jvm, java = _jvm(self._session), self._java
        months_days_micros = (0, 0, milliseconds * 1000)
        delay = jvm.org.apache.spark.unsafe.types.CalendarInterval(*months_days_micros)
        changed = java.copy(jvm.java.util.UUID.randomUUID(), java.eventTime(), delay, java.child())
        return PlanNode(changed, self._session)

    def to_frame(self) -> DataFrame:
        """Return the plan as a DataFrame."""
        from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

        session = self._session
        dataset = _jvm(session).org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, self._java)
        return ClassicDataFrame(dataset, session)

    def check_output_mode(self, mode: str) -> None:
        """Raise Spark's error if a stream with this plan cannot be written in an output mode."""
        jvm = _jvm(self._session)
        java_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(self._java, java_mode)


class _Renaming:
    """Renames the columns of an analysed expression so that it can be written as SQL."""

    def __init__(self, session: SparkSession, columns: Mapping[int, tuple[str, str]]) -> None:
        jvm = _jvm(session)
        self._columns = columns
        self._listed = jvm.PythonUtils.toSeq
        package = "org.apache.spark.sql.catalyst.expressions"
        # Such as BETWEEN: its SQL is its original text, with the old names.
        self._replaced = jvm.java.lang.Class.forName(f"{package}.InheritAnalysisRules")
        self._common: dict[str, Any] = {}

    def apply(self, expression: Any) -> Any:
        """Return an expression over the new names."""
        while self._replaced.isInstance(expression):
            expression = expression.replacement()
        kind = _kind_of(expression)
        if kind == "AttributeReference":
            qualifier, name = self._columns[_id_of(expression)]
            return expression.withName(name).withQualifier(self._listed([qualifier]))
        if kind == "With":  # it has common parts once; a text repeats them
            self._common |= {str(each.id().toString()): each.child() for each in _items(expression.defs())}
            return self.apply(expression.child())
        if kind == "CommonExpressionRef":
            return self.apply(self._common[str(expression.id().toString())])
        children = [self.apply(child) for child in _items(expression.children())]
        if kind == "Cast" and expression.dataType().equals(children[0].dataType()):
            return children[0]  # every analysis casts a time plus an interval to a time
        return expression.withNewChildren(self._listed(children)) if children else expression


@dataclass(frozen=True)
class ExpressionNode:
    """A node of an analysed expression."""

    java: Any
    session: SparkSession

    @property
    def kind(self) -> str:
        """The name of Spark's class, such as ``"EqualTo"``."""
        return _kind_of(self.java)

    @property
    def type_name(self) -> str:
        """The name of its type, such as ``"double"``."""
        return str(self.java.dataType().typeName())

    @cached_property
    def children(self) -> tuple[ExpressionNode, ...]:
        """The operands."""
        return tuple(ExpressionNode(child, self.session) for child in _items(self.java.children()))

    def walk(self) -> Iterator[ExpressionNode]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def is_constant(self) -> bool:
        """Whether it is the same for every row."""
        return bool(self.java.foldable())

    def constant(self) -> Any:
        """Return the value of a constant; raise `ValueError` if computing it fails."""
        try:
            return self.java.eval(None)
        except (PySparkException, Py4JError) as error:
            raise ValueError(str(error)) from error

    @property
    def is_safe_cast(self) -> bool:
        """Whether a `Cast` fails for no value."""
        cast = _jvm(self.session).org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast.canUpCast(self.children[0].java.dataType(), self.java.dataType()))


def plan_of(frame: DataFrame) -> PlanNode:
    """Return the analysed plan of a DataFrame."""
    return PlanNode(frame._jdf.queryExecution().analyzed(), frame.sparkSession)


def running_plan_of(query: StreamingQuery, session: SparkSession) -> PlanNode:
    """Return the plan of a query that has started."""
    return PlanNode(query._jsq.streamingQuery().logicalPlan(), session)


def expressions_of(node: PlanNode) -> list[ExpressionNode]:
    """Return the expressions of a node."""
    return [ExpressionNode(each, node._session) for each in _items(node._java.expressions())]


def aggregate_texts(frame: DataFrame) -> tuple[list[str], list[str]] | None:
    """Return the keys of a ``groupBy(...).agg(...)`` and all columns of its result, as SQL; None for other plans.

    They are read from the plan before its analysis, because the analysis rewrites windows of time.
    """
    plan = frame._jdf.queryExecution().logical()
    if _kind_of(plan) != "Aggregate":
        return None
    listed = [list(_items(each)) for each in (plan.groupingExpressions(), plan.aggregateExpressions())]
    groups, columns = ([_text_of(expression) for expression in each] for each in listed)
    return groups, columns


def _text_of(expression: Any) -> str:
    named = _kind_of(expression) in ("Alias", "UnresolvedAlias")
    return str((expression.child() if named else expression).sql()).replace("unresolvedstar()", "*")


def compared_types(session: SparkSession, one: str, other: str) -> tuple[str, str]:
    """Return the types that Spark casts two types to when it compares them for equality."""
    columns = f"CAST(NULL AS {one}) AS a, CAST(NULL AS {other}) AS b"
    project = plan_of(session.sql(f"SELECT a = b FROM (SELECT {columns})"))
    [comparison] = [node for each in expressions_of(project) for node in each.walk() if node.kind == "EqualTo"]
    first, second = (str(child.java.dataType().sql()).lower() for child in comparison.children)
    return first, second


def is_classic(of_spark: object) -> bool:
    """Whether an object is a classic session or DataFrame, with a JVM behind it."""
    return hasattr(of_spark, "_jsparkSession") or hasattr(of_spark, "_jdf")


def aggregates(session: SparkSession, function: str) -> bool | None:
    """Whether a function of Spark's is an aggregate or a generator; None if it is not one of Spark's own."""
    info = _state(session).catalog().lookupBuiltinOrTempFunction(function)
    if not info.isDefined() or not info.get().getGroup().endswith("_funcs"):
        return None
    return str(info.get().getGroup()) in ("agg_funcs", "window_funcs", "generator_funcs")


def has_class(session: SparkSession, name: str) -> bool:
    """Whether the JVM finds a class."""
    return bool(_jvm(session).org.apache.spark.util.Utils.classIsLoadable(name))


def check_sink_format(session: SparkSession, name: str) -> None:
    """Raise Spark's error if it knows no data source of that name."""
    state = _state(session)
    if not state.dataSourceManager().dataSourceExists(name):
        source = _jvm(session).org.apache.spark.sql.execution.datasources.DataSource
        source.lookupDataSource(name, state.conf())


def scheme_of(session: SparkSession, location: str) -> str:
    """Return the scheme of the file system to which Spark resolves a location."""
    return str(_file_system(session, location)[0].getScheme())


def read_text(session: SparkSession, location: str) -> str:
    """Return a file's content, read through Spark's own file systems."""
    system, path = _file_system(session, location)
    stream = system.open(path)
    try:
        return str(_jvm(session).org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def checkpoint_of(session: SparkSession | None, query_id: str) -> str | None:
    """Return where the checkpoint of a running query is; None if neither session nor query runs."""
    query = None if session is None else session.streams.get(query_id)
    return None if query is None else str(query._jsq.streamingQuery().resolvedCheckpointRoot())


def observes(session: SparkSession, query_id: str, prefix: str) -> bool:
    """Whether a query that has just started observes metrics whose names start with `prefix`.

    `StreamExecution.analyzedPlan` exists from the start; `logicalPlan` must be created in the query's own thread.
    """
    query = session.streams.get(query_id)
    plan = None if query is None else query._jsq.streamingQuery().analyzedPlan()
    return plan is not None and f"CollectMetrics {prefix}" in str(plan.toString())


def observed_texts(session: SparkSession, query_id: str, name: str) -> list[str]:
    """Return the texts that a metric of a running query collected in its last batch, even before the batch has ended.

    `StreamExecution.lastExecution` is the plan of the batch. Its metrics are complete once its rows have been taken.
    """
    query = session.streams.get(query_id)
    last = None if query is None else query._jsq.streamingQuery().lastExecution()
    metric = None if last is None else last.observedMetrics().get(name)
    return [] if metric is None or metric.isEmpty() else [str(text) for text in _items(metric.get().getSeq(0))]


def set_for_query(session: SparkSession, query_id: str, name: str, value: str) -> None:
    """Set an option for one running query only; its tasks get it as a local property, from the next batch on.

    `StreamExecution.sparkSessionForStream` is a session that Spark clones for every query, and
    `SQLExecution.withSQLConfPropagated` gives its settings to tasks.
    """
    query = session.streams.get(query_id)
    assert query is not None
    query._jsq.streamingQuery().sparkSessionForStream().conf().set(name, value)


def can_divide_state(session: SparkSession) -> bool:
    """Whether this Spark can change the number of state partitions in a checkpoint (`divide_state`)."""
    return hasattr(type(session), "_streamingCheckpointManager")


def divide_state(session: SparkSession, checkpoint: str, partitions: int) -> None:
    """Change the number of state partitions in the checkpoint of a query that does not run, by Spark's own tool.

    `StreamingCheckpointManager.repartition` (SPARK-54346, since 4.2), which PySpark has but does not export yet. It
    commits a batch without rows, and refuses a query whose last batch is not committed.
    """
    try:
        session._streamingCheckpointManager.repartition(checkpoint, partitions)
    except (PySparkException, Py4JJavaError) as error:
        text = java_message(error) if isinstance(error, Py4JJavaError) else str(error)
        reason = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
        raise StateError(f"{checkpoint}: Spark cannot repartition its state: {reason}") from error


def fill_file_sink(session: SparkSession, query_id: str, batch: int) -> None:
    """Add a batch without files to the log of Spark's file sink, if the query has one and its log ends just before it.

    `divide_state` commits a batch that no sink sees, but the log must not have a gap: its reader and its compaction
    would stop. Precondition: the query has started, and no batch of this run has.
    """
    query = session.streams.get(query_id)
    assert query is not None
    sink = re.fullmatch(r"FileSink\[(.*)\]", str(query._jsq.streamingQuery().sink().toString()), re.DOTALL)
    if sink is None:
        return
    sinks = _jvm(session).org.apache.spark.sql.execution.streaming.sinks
    place = f"{sink[1].rstrip('/')}/{sinks.FileStreamSink.metadataDir()}"
    version, nothing = sinks.FileStreamSinkLog.VERSION(), _jvm(session).scala.Option.empty()
    log = sinks.FileStreamSinkLog(version, session._jsparkSession, place, nothing)
    last = log.getLatestBatchId()
    if last.isDefined() and int(last.get()) == batch - 1:
        log.add(batch, session.sparkContext._gateway.new_array(sinks.SinkFileStatus, 0))


def causes_of(query: StreamingQuery, depth: int = 20) -> list[str]:
    """Return the exceptions that ended a query, each followed by its cause; none if it has not failed."""
    raised = query._jsq.exception()
    texts: list[str] = []
    throwable = raised.get() if raised.isDefined() else None
    while throwable is not None and len(texts) < depth:
        texts.append(str(throwable.toString()))
        throwable = throwable.getCause()
    return texts


def java_message(error: Py4JJavaError) -> str:
    """Return the message of an exception of the JVM."""
    return str(error.java_exception.getMessage())


class _JsonEvents(JStreamingQueryListener):  # type: ignore[misc]
    """Events from the JVM. PySpark reads each field of a progress separately: hundreds of round trips, which take
    0.2 s beside the next batch. As JSON it is one round trip.
    """

    def onQueryProgress(self, jevent: Any) -> None:
        progress = json.loads(jevent.progress().json())
        self.pylistener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress}))


def java_listener(listener: StreamingQueryListener) -> Any:
    """Return the object that PySpark registers in the JVM for our listener."""
    jvm = SparkContext._jvm
    assert jvm is not None
    return jvm.PythonStreamingQueryListenerWrapper(_JsonEvents(listener))


class StageTimes:
    """Spark's data about the jobs of one query: their stages, and how long tasks have run."""

    def __init__(self, session: SparkSession, run_id: str) -> None:
        context, jvm = session._jsc.sc(), _jvm(session)
        self._tracker, self._store = context.statusTracker(), context.statusStore()
        self._text_of = getattr(jvm, "java.util.Arrays").toString
        status = getattr(jvm, "org.apache.spark.status.api.v1.TaskStatus")
        self._running = getattr(jvm, "java.util.Collections").singletonList(status.RUNNING)
        self._by_id = getattr(jvm, "org.apache.spark.status.api.v1.TaskSorting").ID
        self._run_id = run_id

    def jobs(self) -> list[int]:
        """Return the numbers of the query's jobs that Spark keeps."""
        numbers: list[int] = json.loads(self._text_of(self._tracker.getJobIdsForGroup(self._run_id)))
        return numbers

    def job(self, number: int) -> tuple[bool, list[int]]:
        """Return whether a job is running, and the numbers of its stages."""
        job = self._store.job(number)
        stages = [int(stage) for stage in str(job.stageIds().mkString(" ")).split()]
        return job.status().toString() == "RUNNING", stages

    def task_times(self, stage: int, most: int) -> tuple[float, list[float]] | None:
        """Return the seconds of a stage's finished tasks, and when each running one began (at most `most` of them).

        None for a stage that was skipped, or that Spark no longer has.
        """
        try:
            attempt = self._store.lastStageAttempt(stage)
            seconds = float(attempt.executorRunTime() / 1000)
            if attempt.status().toString() != "ACTIVE":
                return seconds, []
            tasks = self._store.taskList(attempt.stageId(), attempt.attemptId(), 0, most, self._by_id, self._running)
            return seconds, [task.launchTime().getTime() / 1000 for task in _items(tasks)]
        except Py4JJavaError:
            return None


def executor_cores(session: SparkSession) -> int:
    """Return the cores of the executors that a session has now; in a local session, the driver's cores."""
    listed = _items(session._jsc.sc().statusStore().executorList(True))
    cores = {str(executor.id()): int(executor.totalCores()) for executor in listed}
    return sum(count for name, count in cores.items() if name != "driver" or len(cores) == 1)


def _jvm(session: SparkSession) -> Any:
    jvm = session._jvm
    assert jvm is not None
    return jvm


def _state(session: SparkSession) -> Any:
    return session._jsparkSession.sessionState()


def _file_system(session: SparkSession, location: str) -> tuple[Any, Any]:
    path = _jvm(session).org.apache.hadoop.fs.Path(location)
    return path.getFileSystem(_state(session).newHadoopConf()), path


def _items(listed: Any) -> Iterator[Any]:
    """Yield the items of a Scala sequence."""
    return (listed.apply(at) for at in range(listed.size()))


def _kind_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id_of(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _schema_of(option: Any) -> StructType | None:
    return StructType.fromJson(json.loads(option.get().json())) if option.isDefined() else None
