"""Starts a job on Spark: sources become streams, steps make streams from them, and the last one goes to the sink."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from braided.errors import BraidedError, JobError
from braided.jobs.job_file import KAFKA, NOW, TOPIC, Job, Source, Step
from braided.spark.catalyst import JavaError, check_sink_format, java_message, plan_of, scheme_of
from braided.spark.direct import one_by_one, read_files
from braided.spark.kafka import SHORT_FETCHES, WriteRecords, sequenced
from braided.spark.sink import start_query, write_files
from braided.spark.sql import run_sql
from braided.spark.topic_schema import topic_schema
from braided.storage.files import check_folder
from braided.storage.topic import check_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_MEMORY = "memory"  # a sink that Spark has built in


def build_job(spark: SparkSession, job: Job, *, reader: str | None = None) -> DataFrame:
    """Return the stream of a job's sink, without starting it. Topics keep rows that `reader` has not read yet."""
    streams: dict[str, DataFrame] = {}
    for name, table in job.tables.items():
        with named(job, f"tables.{name}"):
            _load(spark.read, table).createOrReplaceTempView(name)
    for name, source in job.sources.items():
        with named(job, f"sources.{name}"):
            streams[name] = _stream(spark, source, reader if source.format == TOPIC else None)
    for number, step in enumerate(job.steps):
        with named(job, f"steps.{number}.{'python' if step.sql is None else 'sql'}", f"step {step.name}"):
            streams[step.name] = _run_step(spark, step, streams)
    return streams[job.sink.input]


def start_job(spark: SparkSession, job: Job, *, once: bool = False) -> StreamingQuery:
    """Start a job's query. With `once` it processes the available input, and ends."""
    frame = build_job(spark, job)
    with named(job, "sink"):
        return write_sink(frame, job, NOW if once else job.trigger)


def check_sink(frame: DataFrame, job: Job) -> None:
    """Refuse a sink that a stream cannot go to, as far as this is known before the query starts; creates nothing."""
    sink, session = job.sink, frame.sparkSession
    with named(job, "sink"):
        if sink.format == TOPIC:
            check_place(str(sink.path), topic_schema(frame.schema))
        elif sink.path is not None and scheme_of(session, sink.path) == "file":
            check_folder(sink.path, "path")
        plan_of(frame).check_output_mode(sink.mode)
        if sink.format not in (TOPIC, _MEMORY):
            check_sink_format(session, sink.format)


def write_sink(frame: DataFrame, job: Job, trigger: str | None) -> StreamingQuery:
    """Start the query that writes a stream to a job's sink."""
    sink = job.sink
    if sink.format == TOPIC:
        assert sink.path is not None
        return write_files(
            frame, sink.path, checkpoint=job.checkpoint, trigger=trigger, name=job.name, compact=False, keep=None
        )
    records = sequenced(frame) if sink.format == KAFKA else None
    if records is not None:
        writer = records.writeStream.outputMode(sink.mode).foreachBatch(WriteRecords(records, sink.options))
        return start_query(writer, job.checkpoint, trigger, job.name)
    writer = frame.writeStream.format(sink.format).outputMode(sink.mode).queryName(job.name).options(**sink.options)
    writer = writer.option("checkpointLocation", job.checkpoint)
    if trigger is not None:
        writer = writer.trigger(availableNow=True) if trigger == NOW else writer.trigger(processingTime=trigger)
    return writer.start() if sink.path is None else writer.start(sink.path)


@contextmanager
def named(job: Job, key: str, called: str | None = None) -> Iterator[None]:
    """Add to an error the part of the job that it concerns, and its place in the file; without its secrets."""
    place = f"{job.places[key]}: " if key in job.places else ""
    what = f"{place}{called or key}"
    try:
        yield
    except BraidedError as error:
        raise JobError(job.hide(f"{what}: {error}")) from error
    except PySparkException as error:
        raise JobError(job.hide(f"{what}: {str(error).strip().splitlines()[0]}")) from error
    except JavaError as error:
        raise JobError(job.hide(f"{what}: {java_message(error).strip().splitlines()[0]}")) from error


def _stream(spark: SparkSession, source: Source, reader: str | None) -> DataFrame:
    if source.format in ("parquet", TOPIC):
        assert source.path is not None
        frame = read_files(
            spark,
            source.path,
            format="parquet",
            schema=source.schema,
            max_files=source.max_files,
            reader=reader,
            options=source.options,
        )
    else:
        stream = spark.readStream
        if source.max_files is not None:
            stream = stream.option("maxFilesPerTrigger", source.max_files)
        frame = _load(stream, source if source.path is None else _once(source, source.path))
    return frame if source.watermark is None else frame.withWatermark(str(source.time), source.watermark)


def _once(source: Source, path: str) -> Source:
    return replace(source, options=one_by_one(path, source.options))


def _load(reader: Any, source: Source) -> DataFrame:
    usual = SHORT_FETCHES if source.format == KAFKA else {}
    reader = reader.format(source.format).options(**{**usual, **source.options})
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load() if source.path is None else reader.load(source.path)


def _run_step(spark: SparkSession, step: Step, streams: Mapping[str, DataFrame]) -> DataFrame:
    if step.sql is not None:
        return run_sql(spark, step.sql, streams, dict(step.options))
    assert step.python is not None
    module, _, function = step.python.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise JobError(f"{step.python!r}: {error}; install the module, or set PYTHONPATH") from error
    result = make(*(streams[name] for name in step.inputs))
    if not isinstance(result, DataFrame):
        raise JobError(f"{step.python!r} returned a {type(result).__name__}, not a DataFrame")
    return result
