"""A client of Spark Connect, run as a process of its own with a server that it starts; see `slow/test_connect.py`.

It joins two folders with and without a control directory, and writes down what it got and what it was told.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import braided

DDL = "k long, ts timestamp, id long"


def main(root: Path) -> None:
    """Answer into the file `answers.json`."""
    from pyspark.sql import SparkSession, functions

    from braided.spark.session_operators import registry_of
    from support.routing_cases import RandomController

    said = io.StringIO()
    logging.basicConfig(stream=said, level=logging.WARNING)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.remote("local[2]")
        .config(map=braided.SPARK_CONF)
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    registry_of(spark).make_controller = RandomController  # type: ignore[assignment]
    left, right = (
        spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(root / side))
        for side in ("left", "right")
    )
    options: dict[str, Any] = {"on": "k", "time": "ts", "within": "10 seconds", "lateness": "5 seconds"}
    answers: dict[str, Any] = {}
    for name, control in (("fixed", None), ("adapts", str(root / "control"))):
        joined = braided.join(left, right, **options, name=name, control=control)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            braided.explain(joined)
        query = (
            joined.writeStream.format("parquet")
            .option("checkpointLocation", str(root / f"check-{name}"))
            .trigger(availableNow=True)
            .start(str(root / name))
        )
        query.awaitTermination()
        rows = spark.read.parquet(str(root / name)).select("id", "id_right").collect()
        report = braided.report(query, name).to_dict()
        answers[name] = {"rows": [tuple(row) for row in rows], "explained": shown.getvalue(), "report": report}
    ordered = braided.order(left, time="ts", key="k", lateness="5 seconds")
    query = ordered.writeStream.format("parquet").option("checkpointLocation", str(root / "check-ordered"))
    query.trigger(availableNow=True).start(str(root / "ordered")).awaitTermination()
    answers["ordered"] = spark.read.parquet(str(root / "ordered")).where("not late").count()
    marked = left.withWatermark("ts", "5 seconds")
    joined = braided.join(marked, right.withWatermark("ts", "5 seconds"), on="k", time="ts", within="10 seconds")
    answers["columns"] = joined.columns
    counted = joined.groupBy(functions.window("ts", "10 seconds")).count()
    try:
        counted.writeStream.format("memory").queryName("counted").trigger(availableNow=True).start().awaitTermination()
        answers["append"] = "accepted"
    except Exception as error:
        answers["append"] = str(error)
    answers |= through_topics(spark, root, left, right, options)
    answers["refused"] = []
    attempts: list[Callable[[], Any]] = [
        lambda: braided.sql(spark, "SELECT 1", {"left": left}),
        lambda: braided.write_files(left, root / "topic", checkpoint=root / "check-topic", keep=10),
    ]
    for refused in attempts:
        try:
            refused()
        except braided.OptionError as error:
            answers["refused"].append(str(error))
    answers["said"] = said.getvalue()
    (root / "answers.json").write_text(json.dumps(answers))
    spark.stop()


def through_topics(spark: Any, root: Path, left: Any, right: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Write a join into a topic, twice the same; copy it by a stream; watch that on a page."""
    answers: dict[str, Any] = {}
    for _ in range(2):
        joined = braided.stream(left, time="ts").join(braided.stream(right, time="ts"), on="k", **_steps(options)).df
        braided.write_files(
            joined, root / "topic", checkpoint=root / "check-topic", trigger="available now"
        ).awaitTermination()
    with braided.dashboard(spark) as page:
        copied = braided.files(spark, root / "topic")
        writer = copied.writeStream.format("braided").option("checkpointLocation", str(root / "check-copy"))
        query = writer.queryName("copy").trigger(availableNow=True).start(str(root / "copy"))
        query.awaitTermination()
        deadline = time.monotonic() + 20
        while not answers.get("page") and time.monotonic() < deadline:
            page.save(root / "page.html")
            answers["page"] = "copy" in (root / "page.html").read_text()
            time.sleep(0.1)
    for name in ("topic", "copy"):
        rows = spark.read.format("braided").load(str(root / name)).select("id", "id_right").collect()
        answers[name] = [tuple(row) for row in rows]
    return answers


def _steps(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("on", "time")}


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # a process of its own finds the package of this file
    status = 1
    try:
        main(Path(sys.argv[1]))
        status = 0
    except Exception:
        traceback.print_exc()
    # The server lives in a JVM of this process, whose threads would wait for it.
    sys.stderr.flush()
    os._exit(status)
