"""The pipeline in examples/pipeline, run by `spark-pipelines run`, twice: a join of Braided as a flow into a topic."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import braided

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
WANTED = [("555", 0, "A1", "cloned card"), ("555", 6, "A2", "cloned card"), ("777", 4, "B2", "stolen"), ("777", 11, "B2", "stolen")]  # fmt: skip


@pytest.mark.skipif(importlib.metadata.version("pyspark").startswith("4.0."), reason="Spark 4.0 has no pipelines")
@pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="spark-pipelines needs pyyaml")
def test_a_pipeline_with_a_join_runs_and_goes_on(tmp_path: Path) -> None:
    spec = tmp_path / "pipeline" / "spark-pipeline.yml"
    shutil.copytree(EXAMPLE, spec.parent)
    written = spec.read_text()
    assert "file:///tmp/braided-pipeline" in written
    spec.write_text(written.replace("file:///tmp/braided-pipeline", f"file://{tmp_path}/storage"))
    environment = {
        **os.environ, "FRAUD_DATA": str(tmp_path / "data"), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout + done.stderr

    def hits() -> list[tuple[str, int, str, str]]:
        files = braided.topic(tmp_path / "data" / "hits").files()
        rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
        return sorted((row["phone"], row["ts"].second, row["cell"], row["reason"]) for row in rows)

    pipelines = str(Path(sys.executable).with_name("spark-pipelines"))
    run(sys.executable, str(spec.parent / "streams.py"), str(tmp_path / "data"))
    assert "Run is COMPLETED" in run(pipelines, "run", "--spec", str(spec))
    assert hits() == WANTED
    assert "Run is COMPLETED" in run(pipelines, "run", "--spec", str(spec))
    assert hits() == WANTED, "a second run writes nothing twice"
    # More of both streams: the query goes on from its checkpoint, and late rows meet what is in its state.
    run(sys.executable, str(spec.parent / "streams.py"), str(tmp_path / "data"))
    assert "Run is COMPLETED" in run(pipelines, "run", "--spec", str(spec))
    assert hits() == sorted(4 * WANTED)
