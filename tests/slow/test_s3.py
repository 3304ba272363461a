"""A control directory, a topic and a checkpoint on an S3-compatible store: moto's server, on loopback.

Needs the packages of the group `s3`; Spark's own part of it (`s3a://`), for the checkpoint, comes as jars from Maven.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from support.chaos import Driver
from support.crashes import expected, write_streams
from support.folder_store import ObjectStore, folder_stores
from support.kafka_topics import JarsMissing, Package, fetch
from support.operators import join_operator

from braided.local.runtime import LocalRuntime
from braided.runtime.store import MemoryCache
from braided.spark.control import open_control
from braided.storage.files import files_at
from braided.time.clocks import Window

# Of the SDK what Hadoop's file system needs, instead of the bundle of everything (600 MB).
S3A = (
    Package("org.apache.hadoop", "hadoop-aws", "3.5.0", alone=True),
    Package("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1", alone=True),
    *(Package("software.amazon.awssdk", name, "2.35.4") for name in ("s3", "s3-transfer-manager", "sts")),
)
SERVER = Path(__file__).parents[1] / "support" / "s3_server.py"
RACES = 150
BATCHES = 6

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("moto", "s3fs")), reason="no moto or no s3fs"
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that only these tests know. There is one for all: fsspec keeps its clients, by the process's settings."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path_factory.mktemp("store") / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, str(SERVER), "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "anybody",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        try:
            _await_port(port)
            import s3fs

            yield s3fs.S3FileSystem()
        finally:
            server.kill()
            server.wait()


@pytest.fixture
def bucket(store: Any) -> str:
    """The URL of an empty bucket."""
    name = f"bucket-{uuid.uuid4().hex}"
    store.mkdir(name)
    return f"s3://{name}"


@pytest.fixture
def streams(tmp_path: Path) -> Path:
    """Files of two streams, for as many batches."""
    write_streams(tmp_path, files=BATCHES, rows=600, seed=47)  # blocks of more than `INLINE` bytes
    return tmp_path


def _await_port(port: int) -> None:
    for _ in range(300):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError("the server did not start")


def test_of_two_who_create_a_file_one_wins(bucket: str) -> None:
    both = [files_at(f"{bucket}/control"), files_at(f"{bucket}/control")]
    both[0].check()
    start = Barrier(2)

    def race(writer: int, number: int) -> bool:
        start.wait()
        return both[writer].create(f"tables/{number}.json", str(writer).encode())

    with ThreadPoolExecutor(2) as pool:
        for number in range(RACES):
            won = list(pool.map(race, (0, 1), (number, number)))
            assert sorted(won) == [False, True]
            assert both[0].read(f"tables/{number}.json") == str(won.index(True)).encode()


def test_a_join_adapts_by_a_directory_in_a_bucket(streams: Path, bucket: str) -> None:
    (streams / "home").mkdir()  # under ever new routings
    with Driver(streams, join={"control": f"{bucket}/control"}) as driver:
        assert driver.result() == expected(streams)
    assert len(open_control(f"{bucket}/control").versions()) > 1
    assert len(files_at(f"{bucket}/control").names("pins")) == BATCHES


def test_a_topic_in_a_bucket_is_written_once(streams: Path, bucket: str) -> None:
    (streams / "direct").mkdir()
    with Driver(streams, topic=f"{bucket}/pairs") as driver:
        driver.after(2)
        driver.kill()
    with Driver(streams, topic=f"{bucket}/pairs") as driver:
        assert driver.result() == expected(streams)


class BucketStore(ObjectStore):
    """The state of a worker in a bucket."""

    place = ""

    @property
    def location(self) -> str:
        return self.place


def test_state_in_a_bucket_takes_a_request_for_each_worker_and_batch(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    calls: Counter[str] = Counter()
    plain = s3fs.S3FileSystem._call_s3

    async def counted(self: Any, method: str, *arguments: Any, **options: Any) -> Any:
        calls[method] += 1
        return await plain(self, method, *arguments, **options)

    stores = folder_stores(2, kind=BucketStore)
    for store in stores:
        assert isinstance(store, BucketStore)
        store.place = f"{bucket}/check/braided/state"
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    runtime = LocalRuntime(join_operator(schema, Window(-100, 100, (5, 5))), stores=stores)
    rng = np.random.default_rng(5)

    def rows(number: int) -> pa.RecordBatch:
        times = pa.array(np.sort(number * 40 + rng.integers(0, 40, 3000)), pa.timestamp("us"))
        return pa.RecordBatch.from_arrays([pa.array(rng.integers(0, 1000, 3000)), times], schema=schema)

    def run(number: int) -> int:
        return sum(piece.num_rows for piece in runtime.run_batch([(side, [rows(number)]) for side in (0, 1)]))

    run(0)
    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)
    for number in range(1, 6):
        assert run(number) > 3000
        assert calls == {"put_object": 2 * number}
    for store in stores:
        store.cache = MemoryCache()
    calls.clear()
    run(6)
    reads = sum(report["last"]["state_reads"] - report["last"]["cached_reads"] for report in runtime.reports)
    assert calls == {"put_object": 2, "get_object": reads}
    assert all(store.files() == store.named() for store in stores)


def _s3a(folder: Path) -> dict[str, str]:
    """Return the settings with which Spark knows the store; jars that Spark has of its own are left out."""
    try:
        jars = fetch(S3A, folder)
    except JarsMissing as missing:
        pytest.skip(str(missing))
    own = {_artifact(path) for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    return {
        "spark.jars": ",".join(str(jar) for jar in jars if _artifact(jar) not in own),
        "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_DEFAULT_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
        # A server of tests that answers "100 Continue", which the client of files that are copied takes for a failure.
        "spark.hadoop.fs.s3a.connection.expect.continue": "false",
        "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d.*", "", jar.stem)


def test_a_checkpoint_in_a_bucket_survives_a_kill(streams: Path, bucket: str) -> None:
    (streams / "direct").mkdir()
    settings, checkpoint = _s3a(streams / "jars"), bucket.replace("s3:", "s3a:") + "/check"
    with Driver(streams, spark=settings, checkpoint=checkpoint) as driver:
        driver.after(2)
        driver.kill()
    with Driver(streams, spark=settings, checkpoint=checkpoint) as driver:
        assert driver.result() == expected(streams)
    assert not (streams / "check").exists()
    written = files_at(f"{bucket}/check/braided")
    assert written.names("state"), "state is in objects"


def test_a_job_of_a_fleet_moves_with_its_checkpoint_in_a_bucket(streams: Path, bucket: str) -> None:
    checkpoint = bucket.replace("s3:", "s3a:") + "/jobs/pairs"
    script = Path(__file__).parents[1] / "support" / "s3_fleet.py"
    words = [sys.executable, str(script), str(streams), checkpoint, json.dumps(_s3a(streams / "jars"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads((streams / "committed.json").read_text())
    assert Counter((left, right) for left, right in said["pairs"]) == expected(streams)
    assert said["epochs"][-1] == 2
    root = files_at(f"{bucket}/jobs/pairs")
    assert not [name for name in root.names("") if name.startswith(".")], "a rehearsal is left"
    assert root.names("000000000002/braided/state"), "state is in objects"
    assert root.names("000000000002/braided/control"), "routing tables too"
