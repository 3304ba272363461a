"""Files that router tasks read themselves: `braided.files`, and how it is found again below the user's projections.

```
 native:  files -> Spark's reader -> JVM rows -> Arrow -> ROUTE
 direct:  names of files -> ROUTE, which reads them
```

`braided.files` is Spark's own file source with a mark among its options, so it is an ordinary DataFrame everywhere. If
one of our operators reads it, through selections of columns and filters that compile (docs/reference/where.md), the
same source returns only names: in format `binaryFile`, which opens no file unless its content is selected. Discovery,
offsets and the limit on files are still Spark's, and one checkpoint works for both ways of reading.

No public API returns a DataFrame's plan as a tree. If the plan has another shape, Spark reads the files, and
`braided.explain` reports why.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from braided.errors import BraidedError, OptionError
from braided.expressions.compile import Predicate, compile_filter
from braided.expressions.tree import Column, Compare, Constant, Every, Truth, Value
from braided.spark.arrow_types import arrow_of
from braided.spark.catalyst import PlanNode, StreamSource, plan_of
from braided.spark.delta_source import NAME as TABLE
from braided.spark.delta_source import partition_names
from braided.spark.file_tasks import CUT
from braided.spark.names import quoted
from braided.spark.place import NAME as TOPIC
from braided.spark.sessions import is_connect, slots_of
from braided.spark.source import register
from braided.storage.directory import check_no_table, is_hidden
from braided.storage.file_reader import Bound, FileReader
from braided.storage.files import has_glob_characters, is_remote, local_path
from braided.storage.topic import Topic, check_reader, is_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

MARK = "braided.files"
# A mark, and the prefix of limits that `one_by_one` replaces.
_ALONE = "braided.alone."
_LIMITS = ("maxfilespertrigger", "maxbytespertrigger")
_NAMES = "path string, modificationTime timestamp, length long, content binary"
# The most files whose sizes are read when a query is built.
_LOOKED_AT = 10_000


@dataclass(frozen=True)
class RowFilter:
    """A predicate of the user, over the files' column names."""

    predicate: Predicate
    sources: Mapping[str, str]

    @property
    def columns(self) -> Sequence[str]:
        """See `Filter`."""
        return [self.sources[name] for name in self.predicate.left]

    def mask(self, columns: Mapping[str, pa.Array[Any]]) -> npt.NDArray[np.bool_]:
        """See `Filter`."""
        return self.predicate.mask({name: columns[self.sources[name]] for name in self.predicate.left}, {})


@dataclass(frozen=True)
class DirectInput:
    """An input that ROUTE reads: a DataFrame with names of files, and how to read these files."""

    names: DataFrame
    reader: FileReader
    partitions: tuple[str, ...]
    may_repeat: bool = False
    """Whether a name may come more than once: Spark repeats files of a batch if a name has glob characters."""


@dataclass(frozen=True)
class _Found:
    """What is below a node of a plan: the leaf, its columns in order with the ids of their attributes, and filters."""

    leaf: str
    options: Mapping[str, str]
    schema: StructType
    columns: tuple[tuple[int, str, str], ...]
    """(id, name here, name in files)"""
    filters: tuple[RowFilter, ...]


@dataclass(frozen=True)
class _Seen:
    """The files when a query is built: columns from their paths, the largest size, a name with glob characters."""

    partitions: tuple[str, ...]
    largest: int
    odd: str | None


class _ReadBySpark(Exception):
    """The plan has another shape, which the text describes."""


def read_files(
    session: SparkSession,
    path: str | os.PathLike[str],
    *,
    format: str,
    schema: StructType | str | None,
    max_files: int | None,
    reader: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    """See `braided.files`."""
    if max_files is not None and (type(max_files) is not int or max_files < 1):
        raise OptionError(f"max_files={max_files!r}: write a number of 1 or more")
    path = os.fspath(path)
    if format == "parquet" and _is_topic(path):
        if schema is not None or options:
            raise OptionError(
                "path: this is a topic, which has its own schema; leave out schema= and options of Spark's file source"
            )
        if reader is not None:
            check_reader(reader)
        return _read_topic(session, path, max_files, reader)
    if reader is not None:
        raise OptionError(
            f"reader={reader!r}: only readers of a topic have names, and {path} is not a topic; leave it out"
        )
    if not is_remote(path):
        check_no_table(path)
    reader_options = dict(options)
    if max_files is not None:
        reader_options["maxFilesPerTrigger"] = str(max_files)
    reader_options = one_by_one(path, reader_options)
    if schema is None:
        schema = _schema_of(session, path, format, options)
    source = session.readStream.format(format).schema(schema).options(**reader_options).option(MARK, "direct")
    return source.load(path)


def _schema_of(session: SparkSession, path: str, format: str, options: Mapping[str, str]) -> StructType:
    try:
        return session.read.format(format).options(**options).load(path).schema
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" not in str(error):
            raise
        raise OptionError(
            f"path={path!r}: no file there to read a schema from; give schema=, such as 'k long'"
        ) from error


def _check_literal(path: str) -> None:
    """Refuse an existing path that Spark would read as a glob pattern."""
    if is_remote(path) or not has_glob_characters(path):
        return
    if "\\" in path or os.path.exists(local_path(path)):
        raise OptionError(
            f"path={path!r}: Spark reads {{}}, [], * and ? as a glob pattern, even after a backslash, and reads files "
            "below such a name several times (SPARK-58518); rename it"
        )


def one_by_one(path: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return options with which Spark reads every file once: one file per batch, if a name has glob characters."""
    _check_literal(path)
    odd = None if is_remote(path) else _look(local_path(path), StructType(), case_sensitive=True).odd
    if odd is None:
        return dict(options)
    _log.warning(
        "%s: has %r. If a name has {}, [], * or ?, Spark reads all files of its batch several times (SPARK-58518), so "
        "batches that Spark reads itself have one file each",
        path,
        odd,
    )
    renamed = {_ALONE + name if name.lower() in _LIMITS else name: value for name, value in options.items()}
    return {**renamed, _ALONE: "true", "maxFilesPerTrigger": "1"}


def _limited(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without the changes of `one_by_one`."""
    if _ALONE not in options:
        return dict(options)
    return {
        name.removeprefix(_ALONE): value
        for name, value in options.items()
        if name != _ALONE and name.lower() not in _LIMITS
    }


def _is_topic(path: str) -> bool:
    try:
        return is_topic(path)
    except Exception:
        if is_remote(path):  # Spark may know a file system that fsspec does not
            return False
        raise


def _read_topic(session: SparkSession, path: str, max_files: int | None, reader: str | None) -> DataFrame:
    register(session)
    options = {"path": Topic(path).location, "parallel": str(slots_of(session)), MARK: "topic"}
    if max_files is not None:
        options["max_files"] = str(max_files)
    if reader is not None:
        options["reader"] = reader
    return session.readStream.format(TOPIC).options(**options).load()


def read_directly(frame: DataFrame, ansi: bool) -> DirectInput | str | None:
    """Return how ROUTE can read an input itself, or why it cannot; None if the input is not from `braided.files`."""
    if is_connect(frame):
        return None
    plan = plan_of(frame)
    options = _marked(plan)
    if options is None:
        return None
    session = frame.sparkSession
    case_sensitive = str(session.conf.get("spark.sql.caseSensitive")).lower() == "true"
    try:
        scan = _walk(plan, session, ansi)
        return _input(session, scan, case_sensitive)
    except _ReadBySpark as why:
        return f"{why}; one file per batch, since names have glob characters" if _ALONE in options else str(why)


def _marked(plan: PlanNode) -> Mapping[str, str] | None:
    """Return the options of the source with our mark, None if there is none."""
    sources = (node.stream_source for node in plan.walk() if not node.children)
    return next(
        (
            source.options
            for source in sources
            if source is not None and (MARK in source.options or _is_given_topic(source))
        ),
        None,
    )


def _is_given_topic(source: StreamSource) -> bool:
    """Whether a topic is read by `format("braided")`. For a table in Spark's catalog, names cannot be read instead."""
    return source.format == TOPIC and "path" in source.options and is_topic(source.options["path"])


def _walk(plan: PlanNode, session: SparkSession, ansi: bool) -> _Found:
    source = plan.stream_source
    if source is not None:
        if source.format not in ("parquet", TOPIC, TABLE):
            raise _ReadBySpark(f"only Parquet is read directly, not {source.format}")
        columns = [(column.id, column.name, column.name) for column in plan.output]
        assert source.schema is not None
        return _Found(source.format, source.options, source.schema, tuple(columns), ())
    if plan.kind not in ("Project", "Filter", "SubqueryAlias"):
        shown = "a watermark, which Spark computes from rows" if plan.kind == "EventTimeWatermark" else plan.kind
        raise _ReadBySpark(f"between files and operator is {shown}")
    below = _walk(plan.child, session, ansi)
    if plan.kind == "Project":
        return replace(below, columns=_projected(plan, below))
    return replace(below, filters=(*below.filters, _filter(plan, below, ansi))) if plan.kind == "Filter" else below


def _projected(plan: PlanNode, below: _Found) -> tuple[tuple[int, str, str], ...]:
    known = {number: source for number, _, source in below.columns}
    columns = []
    for column in plan.projected:
        if column.source is None:
            raise _ReadBySpark(f"column {column.name} is computed: {column.sql}")
        columns.append((column.id, column.name, known[column.source]))
    return tuple(columns)


def _filter(plan: PlanNode, below: _Found, ansi: bool) -> RowFilter:
    if not ansi:
        raise _ReadBySpark("spark.sql.ansi.enabled is false, and filters compile by ANSI rules")
    visible = [(name, source) for _, name, source in below.columns]
    names = [name.lower() for name, _ in visible]
    if len(set(names)) != len(names):
        raise _ReadBySpark("two columns share a name below a filter")
    types = arrow_of(below.schema, "path")
    text = plan.condition
    try:
        schema = pa.schema([pa.field(name, types.field(source).type) for name, source in visible])
        return RowFilter(compile_filter(text, schema), dict(visible))
    except BraidedError as error:
        raise _ReadBySpark(f"the filter {text} does not compile: {error}") from error


def _input(session: SparkSession, scan: _Found, case_sensitive: bool) -> DirectInput:
    options = {name: value for name, value in _limited(scan.options).items() if name != MARK}
    types = arrow_of(scan.schema, "path")
    needed = [source for _, _, source in scan.columns]
    needed += [source for row_filter in scan.filters for source in row_filter.columns]
    flag = {name.lower(): str(value).lower() == "true" for name, value in options.items()}
    committed = {TOPIC: "topic", TABLE: "table"}.get(scan.leaf)
    reader = FileReader(
        pa.schema([types.field(source) for source in dict.fromkeys(needed)]),
        tuple(source for _, _, source in scan.columns),
        scan.filters,
        tuple(bound for row_filter in scan.filters for bound in _bounds(row_filter)),
        case_sensitive or scan.leaf == TOPIC,
        committed is None and flag.get("ignoremissingfiles", _is_set(session, "spark.sql.files.ignoreMissingFiles")),
        committed is None and flag.get("ignorecorruptfiles", _is_set(session, "spark.sql.files.ignoreCorruptFiles")),
        committed,
    )
    if committed is not None:
        names = session.readStream.format(scan.leaf).options(**options, names="true").load()
        return DirectInput(names, reader, partition_names(options) if scan.leaf == TABLE else ())
    path = options.pop("path")
    if is_remote(path):
        raise _ReadBySpark("the files are on a remote file system, for which only Spark has credentials")
    if any(mark in path for mark in "*?[{"):
        raise _ReadBySpark("its path is a glob pattern")
    seen = _look(local_path(path), scan.schema, case_sensitive)
    partitions = seen.partitions
    columns = [f"{quoted(name)} {scan.schema[name].dataType.simpleString()}" for name in partitions]
    source = session.readStream.format("binaryFile").schema(", ".join([_NAMES, *columns])).options(**options).load(path)
    names = _cut(source, partitions, seen.largest, session)
    if seen.odd is None:
        return DirectInput(names, reader, partitions)
    return DirectInput(names.repartition(slots_of(session), "path", "start"), reader, partitions, may_repeat=True)


def _cut(source: DataFrame, partitions: Sequence[str], largest: int, session: SparkSession) -> DataFrame:
    """Return rows (path, start, stop, partitions...): one per file, several for large files, spread over tasks."""
    parts = [F.col(quoted(name)) for name in partitions]
    if largest <= CUT:
        return source.select(
            "path", F.lit(0).cast("long").alias("start"), F.lit(None).cast("long").alias("stop"), *parts
        )
    starts = F.explode(
        F.sequence(F.lit(0).cast("long"), F.greatest(F.col("length") - 1, F.lit(0)), F.lit(CUT).cast("long"))
    )
    cut = source.select("path", starts.alias("start"), *parts)
    stop = (F.col("start") + CUT).alias("stop")
    return cut.select("path", "start", stop, *parts).repartition(slots_of(session))


def _is_set(session: SparkSession, name: str) -> bool:
    return str(session.conf.get(name, "false")).lower() == "true"


def _look(folder: str, schema: StructType, case_sensitive: bool) -> _Seen:
    """Look at the existing files."""
    partitions: tuple[str, ...] = ()
    odd = None
    largest = looked = 0
    named = {name if case_sensitive else name.lower(): name for name in schema.names}
    for place, folders, files in os.walk(folder, followlinks=True):  # as Spark does
        folders[:] = [name for name in folders if not is_hidden(name)]
        shown = [name for name in files if not is_hidden(name)]
        if shown and not partitions:
            parts = [part.split("=", 1)[0] for part in os.path.relpath(place, folder).split(os.sep) if "=" in part]
            keys = [part if case_sensitive else part.lower() for part in parts]
            partitions = tuple(named[key] for key in keys if key in named)
        odd = odd or next((name for name in (place, *shown) if has_glob_characters(name)), None)
        if looked <= _LOOKED_AT:
            largest = max([largest, *(_size(os.path.join(place, name)) for name in shown)])
        looked += len(shown)
    return _Seen(partitions, largest, odd)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _bounds(row_filter: RowFilter) -> list[Bound]:
    """Return the bounds that a filter sets on single columns; they are compared with the statistics of row groups."""
    bounds = []
    for part in _conjuncts(row_filter.predicate.root):
        if not isinstance(part, Compare) or part.op not in ("=", "<", "<="):
            continue
        for one, other, is_low in ((part.left, part.right, False), (part.right, part.left, True)):
            value = _whole(other)
            if isinstance(one, Column) and _is_counted(one) and value is not None:
                source = row_filter.sources[one.name]
                low = value if is_low or part.op == "=" else None
                high = value if not is_low or part.op == "=" else None
                bounds.append(Bound(source, low, high))
    return bounds


def _conjuncts(root: Truth) -> tuple[Truth, ...]:
    return tuple(part for each in root.parts for part in _conjuncts(each)) if isinstance(root, Every) else (root,)


def _is_counted(column: Column) -> bool:
    return column.type.name in ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz")


def _whole(value: Value) -> int | None:
    return value.value if isinstance(value, Constant) and type(value.value) is int else None
