"""NEXMark's queries with joins, as `benchmarks/nexmark.py` asks them: by `braided.sql`, each result that of DuckDB."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from nexmark_data import LOADS, generate, truth
from nexmark_queries import QUERIES
from nexmark_spark import job

LOAD = replace(LOADS["default"], events=400_000, rate=2_000, batch=30_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nexmark")
    generate(LOAD, root)
    return root


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_gives_what_duckdb_gives(name: str, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    found: dict[str, Any] = job(spark, "braided", name, files / "data", tmp_path / "checkpoint", LOAD.cutoff_ms)
    wanted = truth(name, LOAD, files)
    assert wanted["count"] > 3
    assert {what: found[what] for what in wanted} == wanted
