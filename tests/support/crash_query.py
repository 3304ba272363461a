"""A driver to be killed: joins two folders into a Parquet sink until everything is processed.

Run as a process of its own; `slow/test_many_kills.py` kills it at random moments, and the tests in `slow/chaos` do
worse. There `options.json` has settings of Spark, options of the join, and topic and checkpoint where they are elsewhere;
or a table of Delta or Iceberg, and the variable `DIE` where the process is to end, as in `files 7`: see `_Dying`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

import braided
from braided.spark import dataflow, table_sink
from braided.storage.tables import TableSink, open_sink
from braided.storage.writing import DataFile

DDL = "k long, ts timestamp, id long"


class _Batches(StreamingQueryListener):  # type: ignore[misc]
    """Prints a line after every batch, for whoever kills this process between two of them."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        print(f"batch {event.progress.batchId}", flush=True)

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...


def _places(spark: SparkSession) -> list[str]:
    """Return from where executors load the package."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import braided

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"place": [str(braided.__file__)] * batch.num_rows})

    return [row["place"] for row in spark.range(12, numPartitions=6).mapInArrow(look, "place string").collect()]


def main(root: Path) -> None:
    """Process what is there, one file a side and batch.

    With a folder `control`, under ever new routings; with a folder `home` too, with the tables in the checkpoint. With a
    folder `direct`, files are read and written directly; with a folder `deployed`, the query is one of several stages
    with topics between them.
    """
    given = json.loads((root / "options.json").read_text()) if (root / "options.json").exists() else {}
    control: str | bool = (root / "home").exists()
    if (root / "control").exists():
        control = str(root / "control")
    os.environ["XDG_CACHE_HOME"] = str(root / "home")

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "4" if control else "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=braided.SPARK_CONF | braided.FAST_START)
        .config("spark.sql.streaming.minBatchesToRetain", "5")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(map=given.get("spark", {}))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.streams.addListener(_Batches())
    if control:
        from braided.spark.session_operators import registry_of
        from support.routing_cases import RandomController

        registry_of(spark).make_controller = RandomController  # type: ignore[assignment]
    if given.get("ahead"):
        _set_ahead(given["ahead"])
    direct = (root / "direct").exists()
    sides = [
        braided.files(spark, str(root / side), schema=DDL, max_files=1)
        if direct
        else spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(root / side))
        for side in ("left", "right")
    ]
    if (root / "deployed").exists():
        _save(root, _deployed(root, *sides))
        return
    options = {"lateness": "5 seconds", "control": control, **given.get("join", {})}
    joined = braided.join(*sides, on="k", time="ts", within="10 seconds", name="crashed", **options)
    checkpoint = given.get("checkpoint", str(root / "check"))
    if given.get("table"):
        if os.environ.get("DIE"):
            moment, batch = os.environ["DIE"].split()

            def dying(name: str, options: dict[str, str] | None) -> _Dying:
                return _Dying(open_sink(name, options), moment, int(batch))

            mock.patch.object(table_sink, "open_sink", dying).start()
        query = braided.write_table(
            joined, given["table"], checkpoint=checkpoint, trigger="available now", options=given.get("table_options")
        )
        query.awaitTermination()
        written = []  # whoever started this reads the table
    elif direct:
        topic = given.get("topic", str(root / "out"))
        query = braided.write_files(joined, topic, checkpoint=checkpoint, trigger="available now")
        query.awaitTermination()
        written = _pairs(topic)
    else:
        query = (
            joined.writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start(str(root / "out"))
        )
        query.awaitTermination()
        written = [tuple(row) for row in spark.read.parquet(str(root / "out")).select("id", "id_right").collect()]
    if given.get("where"):
        (root / "loaded.json").write_text(json.dumps(_places(spark)))
    report = {}
    with contextlib.suppress(braided.OptionError):  # there was nothing left to do
        report = braided.report(query, "crashed").to_dict()
    (root / "report.json").write_text(json.dumps(report))
    _save(root, written)


class _Dying:
    """A sink in whose batch the process ends at once: when its files are written, or when they are committed."""

    def __init__(self, sink: TableSink, moment: str, batch: int) -> None:
        self._sink = sink
        self._moment = moment
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def commit(self, query: str, batch: int, plan: str, files: Sequence[DataFile]) -> bool:
        self._die("files", batch)
        done = self._sink.commit(query, batch, plan, files)
        self._die("table", batch)
        return done

    def _die(self, moment: str, batch: int) -> None:
        if (moment, batch) == (self._moment, self._batch):
            os.killpg(0, signal.SIGKILL)


def _set_ahead(how_far: str) -> None:
    """Let the one place that asks for the time see a clock that is ahead."""
    now = F.current_timestamp
    dataflow.F.current_timestamp = lambda: now() + F.expr(f"INTERVAL {how_far}")  # type: ignore[attr-defined]


def _deployed(root: Path, left: DataFrame, right: DataFrame) -> list[tuple[int, int]]:
    """Run the same join as stages, and return what the last one wrote."""
    calls, alerts = (braided.stream(side, time="ts", lateness="5 seconds") for side in (left, right))
    query = calls.join(alerts, on="k", within="10 seconds").where("id >= 0")
    deployed = braided.deploy(query, topics=root / "app", strategy="operator", processors=4, max_files=1)
    deployed.run()
    return _pairs(deployed.topic)


def _pairs(topic: str) -> list[tuple[int, int]]:
    """Return what is in a topic, read as anybody could."""
    read = [pd.read_parquet(name, columns=["id", "id_right"]) for name in braided.topic(topic).files()]
    return [pair for frame in read for pair in zip(frame["id"].tolist(), frame["id_right"].tolist(), strict=True)]


def _save(root: Path, pairs: list[tuple[int, int]]) -> None:
    (root / "committed.json").write_text(json.dumps(pairs))
    print("finished", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # a process of its own finds the package of this file
    main(Path(sys.argv[1]))
