"""Topics and tables on an S3-compatible store: requests, retries, credentials that expire. Needs `s3` and `tables`."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType
from support.crashes import expected, write_streams
from support.object_store import Store, forget_clients, object_store
from support.table_driver import ROWS as ROWS_A_BATCH
from support.table_driver import SCHEMA, rows
from support.tables import read_delta

import braided
from braided.spark.source import BraidedSource
from braided.storage.files import files_at, open_input
from braided.storage.tables import Layout, open_sink
from braided.storage.topic import create_topic
from braided.storage.writing import FileTarget, batch_folder

for _name in ("moto", "s3fs", "deltalake", "pyiceberg"):
    pytest.importorskip(_name)

BATCHES = 12


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with object_store() as found:
        forget_clients(monkeypatch, found.environment())
        yield found
        found.expired.clear()
    forget_clients(monkeypatch, {})


@pytest.fixture
def bucket(store: Store) -> str:
    """The URL of an empty bucket."""
    import s3fs

    name = f"bucket-{uuid.uuid4().hex}"
    s3fs.S3FileSystem().mkdir(name)
    return f"s3://{name}"


def _catalog(folder: Path, bucket: str, store: Store) -> dict[str, str]:
    return {
        "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"{bucket}/lake",
        "s3.endpoint": store.url, "s3.access-key-id": "first", "s3.secret-access-key": "anything", "s3.region": "us-east-1",
    }  # fmt: skip


class _Table:
    """A driver of a table: a batch at a time."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        self._sink = open_sink(name, options)
        self._target = self._sink.prepare(SCHEMA, Layout())

    def batch(self, number: int) -> None:
        writer = self._target.writer(batch_folder(number), 0, SCHEMA)
        writer.write(rows(number))
        self._sink.commit("q", number, "plan", writer.close())


class _Topic:
    """The same for a topic."""

    def __init__(self, location: str) -> None:
        self._topic = create_topic(location, "{}")
        self._writer = self._topic.claim("q")

    def batch(self, number: int) -> None:
        writer = FileTarget(self._topic.data).writer(batch_folder(number), 0, SCHEMA)
        writer.write(rows(number))
        self._writer.commit(number, "plan", writer.close())


def test_requests_of_a_batch(store: Store, bucket: str, tmp_path: Path) -> None:
    found: dict[str, Counter[str]] = {}
    drivers = {
        "topic": _Topic(f"{bucket}/topic"),
        "delta": _Table(f"delta:{bucket}/delta", {}),
        "iceberg": _Table("iceberg:lake.calls.pairs", _catalog(tmp_path, bucket, store)),
    }
    for kind, driver in drivers.items():
        for number in range(3):
            driver.batch(number)
        with store.counted() as requests:
            for number in range(3, 8):
                driver.batch(number)
        found[kind] = requests
        print(kind, {method: count / 5 for method, count in requests.items()})
    # With one file: what docs/how-to/tables.md says.
    totals = {kind: sum(requests.values()) / 5 for kind, requests in found.items()}
    assert totals == {"topic": 6, "delta": 13, "iceberg": 20}


@pytest.mark.parametrize("kind", ["topic", "delta"])
def test_requests_that_fail_are_tried_again(store: Store, bucket: str, kind: str) -> None:
    place = f"{bucket}/{kind}"
    store.failing = 0.3
    driver = _Topic(place) if kind == "topic" else _Table(f"delta:{place}", {})
    for number in range(BATCHES):
        driver.batch(number)
    store.failing = 0.0
    assert store.refused > BATCHES
    found = (
        pa.concat_tables(pq.read_table(open_input(name)) for name in braided.topic(place).files())
        if kind == "topic"
        else read_delta(place)
    )
    assert sorted(found["k"].to_pylist()) == list(range(BATCHES * ROWS_A_BATCH))


def test_a_directory_in_a_bucket_is_a_stream(store: Store, bucket: str) -> None:
    """Files of any name, each once; to plan a batch takes four requests, as docs/how-to/sources.md has it."""
    schema = StructType([StructField("k", LongType()), StructField("day", StringType())])
    place = f"{bucket}/in"

    def put(name: str, *values: int) -> None:
        out = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": pa.array(values, pa.int64())}), out)
        files_at(place, "path").replace(name, out.getvalue().to_pybytes())

    put("day=1/a b[1].parquet", 1, 2)
    put("_hidden/x.parquet", 9)
    reader = BraidedSource({"path": place, "max_files": "1"}).streamReader(schema)
    start = json.loads(json.dumps(reader.initialOffset()))
    put("day=2/ä.parquet", 3)
    found, requests = [], Counter[str]()
    for _ in range(3):
        with store.counted() as counted:
            end = json.loads(json.dumps(reader.latestOffset(start)))
            tasks = reader.partitions(start, end)
        requests += counted
        found.append([row for task in tasks for rows in reader.read(task) for row in rows.to_pylist()])
        start = end
    assert found == [[{"k": 1, "day": "1"}, {"k": 2, "day": "1"}], [{"k": 3, "day": "2"}], []]
    assert sum(requests.values()) == 3 * 4
    again = BraidedSource({"path": place}).streamReader(schema)
    begin = again.initialOffset()
    assert len(again.partitions(begin, again.latestOffset(begin))) == 2


def _drive(root: Path, table: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    script = str(Path(__file__).parents[1] / "support" / "table_driver.py")
    return subprocess.Popen(
        [sys.executable, script, str(root), table, "{}", str(BATCHES)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def test_a_credential_that_expires_stops_the_query_which_goes_on_with_another(
    store: Store, bucket: str, tmp_path: Path
) -> None:
    table = f"delta:{bucket}/out"
    with _drive(tmp_path, table, os.environ | store.environment("old")) as first:
        assert first.stdout is not None
        assert any(line == "table 4\n" for line in iter(first.stdout.readline, ""))
        store.expired.add("old")
        _, errors = first.communicate(timeout=120)
    assert first.returncode == 1
    assert "ExpiredToken" in errors or "expired" in errors.lower(), errors[-3000:]
    with _drive(tmp_path, table, os.environ | store.environment("new")) as second:
        said, errors = second.communicate(timeout=120)
    assert said.endswith("finished\n"), errors[-3000:]
    assert sorted(read_delta(f"{bucket}/out")["k"].to_pylist()) == list(range(BATCHES * ROWS_A_BATCH))


def test_credentials_that_are_renewed_go_unnoticed(store: Store, bucket: str, tmp_path: Path) -> None:
    """Keys of a role end all the time, and clients ask for the next."""
    plain = {name: value for name, value in os.environ.items() if name not in store.environment()}
    with _drive(tmp_path, f"delta:{bucket}/out", plain | store.role(tmp_path / "token")) as driver:
        said, errors = driver.communicate(timeout=120)
    assert said.endswith("finished\n"), errors[-3000:]
    assert len(store.expired) > BATCHES
    assert sorted(read_delta(f"{bucket}/out")["k"].to_pylist()) == list(range(BATCHES * ROWS_A_BATCH))


def test_spark_writes_a_table_in_a_bucket_and_reads_it_as_a_stream(
    spark: SparkSession, store: Store, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_streams(tmp_path, files=3, rows=200, seed=1)
    # Tasks have the environment of the JVM, which has begun before there was a store.
    monkeypatch.setattr(spark.sparkContext, "environment", spark.sparkContext.environment | store.environment())
    ddl = "k long, ts timestamp, id long"
    sides = [braided.files(spark, str(tmp_path / side), schema=ddl, max_files=1) for side in ("left", "right")]
    joined = braided.join(*sides, on="k", time="ts", within="10 seconds", lateness="5 seconds")
    environment: dict[str, Any] = {"trigger": "available now", "checkpoint": str(tmp_path / "check")}
    braided.write_table(joined, f"delta:{bucket}/out", partition_by="k", **environment).awaitTermination()
    found = read_delta(f"{bucket}/out")
    assert Counter(zip(found["id"].to_pylist(), found["id_right"].to_pylist(), strict=True)) == expected(tmp_path)
    again = braided.table(spark, f"delta:{bucket}/out")
    query = braided.write_files(again, f"{bucket}/copy", checkpoint=str(tmp_path / "c"), trigger="available now")
    query.awaitTermination()
    assert sum(manifest.rows for manifest in braided.topic(f"{bucket}/copy").manifests()) == found.num_rows
    assert json.loads((tmp_path / "c" / "metadata").read_text())["id"]
