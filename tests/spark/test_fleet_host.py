"""The host of a peer on the shared session: start, rehearse, stop between batches, go on elsewhere, and the fence."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from support.streams import file_stream, write_batch

import braided
from braided.errors import PeerError
from braided.fleet.checkpoints import Checkpoints
from braided.fleet.definition import component_of
from braided.fleet.hosting import component, rehearsal, staging, warmup
from braided.fleet.hosting.job_environment import JobEnvironment
from braided.fleet.hosting.spark_host import SparkHost
from braided.fleet.hosting.task_time import TaskTime
from braided.fleet.leases import Position
from braided.spark.catalyst import StageTimes
from braided.spark.jobs import build_job, start_job
from braided.storage.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from braided.jobs.job_file import Job

JOB = """
name = "doubled"
checkpoint = "{0}/c"
[sources.numbers]
path = "{0}/numbers"
schema = "n LONG"
max_files = 1
[[steps]]
name = "doubled"
sql = "SELECT 2 * n AS n FROM numbers"
[sink]
format = "topic"
path = "{0}/out"
"""


def _write(root: Path, number: int) -> None:
    write_batch(root / "numbers", number, pa.table({"n": list(range(number * 10, number * 10 + 10))}))


def _found(root: Path) -> list[int]:
    files = Topic(str(root / "out")).files()
    return [n for (n,) in duckdb.sql(f"SELECT n FROM read_parquet({files!r}) ORDER BY n").fetchall()] if files else []


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


def _has(root: Path, rows: int) -> Callable[[], bool]:
    return lambda: (root / "out" / "_topic.json").exists() and len(_found(root)) == rows


def test_a_component_stops_between_batches_goes_on_elsewhere_and_its_former_owner_cannot_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, 0)
    job = component_of(JOB.format(tmp_path), "doubled.toml")

    async def work() -> None:
        north, south = SparkHost(spark, cores=2, period=0.2), SparkHost(spark, cores=2, period=0.2)
        ends: list[tuple[str, str]] = []
        north.ended = lambda name, why: ends.append((name, why))
        for text, message in (
            (
                JOB + '[spark]\n"spark.driver.memory" = "1g"\n',
                "spark.driver.memory: cannot be set for one job of a peer",
            ),
            (JOB.replace("2 * n", "2 * m"), "step doubled: .*`m`"),
        ):
            with pytest.raises(PeerError, match=message):
                await north.rehearse(component_of(text.format(tmp_path), "x.toml"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["numbers"]
        await north.start(job, 0, None)
        await _until(_has(tmp_path, 10))
        position = await north.stop("doubled")
        assert position.batch == 0
        await south.rehearse(job)
        assert Checkpoints(job.checkpoint).epochs() == [0]
        with pytest.raises(PeerError, match=r"its checkpoint is at .*, not at Position\(batch=5"):
            await south.start(job, 1, Position(5, "x"))
        await south.rehearse(job)
        built.clear()
        await south.start(job, 2, position)
        assert built == []  # the rehearsal has
        _write(tmp_path, 1)
        await _until(_has(tmp_path, 20))
        part = south.measure().components
        await _until(lambda: bool(south.measure().components))
        assert [(one.name, one.operator) for one in south.measure().components] == [("doubled", "sql")], part
        # Another takes the topic without a word, as after a death: who wakes up writes nothing.
        await north.start(job, 3, None)
        _write(tmp_path, 2)
        await _until(_has(tmp_path, 30))
        await north.stop("doubled")
        assert built == ["doubled"]  # it had not rehearsed
        south.close()
        north.close()
        assert ends == []

    built: list[str] = []

    def build(session: SparkSession, job: Job, *, reader: str | None = None) -> DataFrame:
        if reader is not None:  # else only its schema is asked for
            built.append(reader)
        return build_job(session, job, reader=reader)

    closed: list[str | None] = []

    def rehearsed(session: SparkSession, job: Job) -> DataFrame:
        closed.append(session.conf.get("spark.sql.streaming.stateStore.unloadOnCommit", None))
        return build_job(session, job)

    monkeypatch.setattr(component, "build_job", build)
    monkeypatch.setattr(rehearsal, "build_job", rehearsed)
    asyncio.run(work())
    assert set(closed) == {"true"}  # its state must not be left to the query that follows
    assert _found(tmp_path) == list(range(0, 60, 2))


def test_a_component_that_is_lost_while_it_starts_does_not_run_and_what_was_built_long_ago_is_not_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, 0)
    job = component_of(JOB.format(tmp_path), "doubled.toml")
    lost: list[component.Component] = []

    def count(times: StageTimes) -> TaskTime:
        for one in lost:
            one.close()  # as the host does where a start takes too long
        return TaskTime(times)

    async def work() -> None:
        host = SparkHost(spark, cores=2)
        await host.start(job, 0, None)
        await _until(_has(tmp_path, 10))
        await host.stop("doubled")
        await host.rehearse(job)
        staged = host._take_staged(job)
        assert staged is not None
        monkeypatch.setattr(component, "TaskTime", count)
        lost.append(component.Component(host._setting, job, 1, staged))
        with pytest.raises(PeerError, match="was lost while it started"):
            lost[0].start(None)
        assert staged.session.streams.active == []
        await host.rehearse(job)
        monkeypatch.setattr(staging, "_FRESH", 0)
        assert host._take_staged(job) is None
        host.close()
        host._threads.shutdown()

    asyncio.run(work())
    assert not [path for path in (tmp_path / "c").iterdir() if path.name.startswith(".")]


def test_a_new_component_whose_sink_cannot_work_is_refused_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    _write(tmp_path, 0)
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "rows.csv").write_text("")
    topic = 'format = "topic"\npath = "{0}/out"\n'
    before = sorted(tmp_path.rglob("*"))

    async def work() -> None:
        host = SparkHost(spark, cores=2, environment={"NAME": "orders"})
        for sink, message in (
            (topic.replace("out", "file"), r"line 11: sink: path='.*/file': is not a directory; use another path"),
            (topic.replace("out", "file/below"), "sink: path=.*: '.*/file' above it is not a directory"),
            (topic.replace("out", "full"), "sink: path=.*: the directory has other files"),
            ('format = "parquet"\npath = "{0}/file/a/b"\n', "sink: path=.*: '.*/file' above it is not a directory"),
            ('format = "parquet"\npath = "{0}/out"\nmode = "complete"\n', "sink: .*Invalid streaming output mode"),
            ('format = "none.such"\n', r"sink: \[DATA_SOURCE_NOT_FOUND\].*none\.such"),
        ):
            text = JOB.replace(topic, sink).replace("{0}/c", "{0}/not/there/c").format(tmp_path)
            with pytest.raises(PeerError, match=message):
                await host.rehearse(component_of(text, "x.toml"))
        with pytest.raises(PeerError, match=r"checkpoint='.*/file/c': Not a directory; give another"):
            await host.rehearse(component_of(JOB.replace("{0}/c", "{0}/file/c").format(tmp_path), "x.toml"))
        kept = JOB.replace(topic, 'format = "csv"\noptions = {{ path = "{0}/file", header = "${{NAME}}" }}\n')
        with pytest.raises(PeerError, match=r"^doubled, line 11: sink: .*not a directory") as raised:
            await host.start(component_of(kept.format(tmp_path), "x.toml"), 0, None)
        assert "orders" not in str(raised.value)
        host.close()

    asyncio.run(work())
    assert [
        path for path in sorted(tmp_path.rglob("*")) if "/c" not in str(path.relative_to(tmp_path.parent))
    ] == before


def test_the_seconds_of_tasks_are_counted_for_the_query_that_they_are_of(spark: SparkSession, tmp_path: Path) -> None:
    _write(tmp_path, 0)

    def query(name: str, seconds: float) -> StreamingQuery:
        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            time.sleep(seconds)
            yield from batches

        rows = file_stream(spark, tmp_path / "numbers", "n long").mapInArrow(wait, "n long")
        writer = rows.writeStream.foreachBatch(lambda rows, batch: rows.collect())  # type: ignore[arg-type,return-value]
        return writer.option("checkpointLocation", str(tmp_path / name)).start()

    query("first", 0.0).processAllAvailable()  # Python processes start, which takes both as long
    queries = [query("slow", 1.5), query("quick", 0.0)]
    for each in queries:
        each.processAllAvailable()
    slow, quick = (TaskTime(StageTimes(spark, str(each.runId))).since_last() for each in queries)
    assert slow >= 1.5
    assert quick < slow


def test_a_warm_up_joins_a_few_rows_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[StreamingQuery] = []

    def start(session: SparkSession, job: Job, **options: Any) -> StreamingQuery:
        assert Path(job.checkpoint).is_relative_to(tmp_path)  # which executors elsewhere must reach
        started.append(start_job(session, job, **options))
        return started[-1]

    monkeypatch.setattr(warmup, "start_job", start)
    warmup.warm_up(JobEnvironment(spark, cores=1, modules=(), environment={}), str(tmp_path))
    [query] = started
    assert not query.isActive
    assert query.exception() is None
    assert [progress.numInputRows for progress in query.recentProgress][:2] == [2, 2]  # files, one of each stream
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sink", ["topic", pytest.param("parquet", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", ["a damaged file", "a step that raises"])
def test_a_job_that_fails_is_reported_with_its_innermost_cause(
    spark: SparkSession, tmp_path: Path, fault: str, sink: str
) -> None:
    _write(tmp_path, 0)
    text = JOB.replace('format = "topic"', f'format = "{sink}"').format(tmp_path)
    if fault == "a damaged file":
        (tmp_path / "numbers" / "x.parquet").write_bytes(b"PAR1 damaged PAR0")
        expected = r"RuntimeException: file:.*/numbers/x.parquet is not a Parquet file. Expected magic number.*"
    else:
        text = text.replace(
            'sql = "SELECT 2 * n AS n FROM numbers"', 'python = "support.fleet_steps:fail"\ninputs = ["numbers"]'
        )
        expected = r"ZeroDivisionError: the number 3 \(fleet_steps.py, line \d+, in check\)"

    async def work() -> list[tuple[str, str]]:
        ended: list[tuple[str, str]] = []
        host = SparkHost(spark, cores=2, modules=["support.fleet_steps"])
        host.ended = lambda name, why: ended.append((name, why))
        await host.start(component_of(text, "x.toml"), 0, None)
        await _until(lambda: bool(ended))
        host.close()
        return ended

    [(name, why)] = asyncio.run(work())
    assert name == "doubled"
    assert re.fullmatch(expected, why), why


def test_metrics_have_the_jobs_of_a_peer_while_they_run(spark: SparkSession, tmp_path: Path) -> None:
    async def play() -> None:
        with braided.metrics(spark, port=0) as served:
            host = SparkHost(spark, cores=2, watch=served.follow)
            _write(tmp_path, 0)
            job = component_of(JOB.format(tmp_path), "job.toml")
            running = 'braided_query_state{query="doubled",state="running"} 1'
            stopped = 'braided_query_state{query="doubled",state="stopped"} 1'
            try:
                await host.start(job, 0, None)
                async with asyncio.timeout(120):
                    while running not in served.text():
                        await asyncio.sleep(0.1)
                    assert 'braided_source_rows_total{query="doubled",source="0"}' in served.text()
                    await host.stop("doubled")
                    while stopped not in served.text():
                        await asyncio.sleep(0.1)
            finally:
                host.close()

    asyncio.run(play())
