"""Spark's own connector for Delta reads what we write, and writes beside us. It lags behind Spark: on 4.0 to 4.2 only.

With a newer Spark installed: `scripts/spark_versions.py 4.2.0 --tests tests/slow/test_delta_connector.py`.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.kafka_topics import JarsMissing, Package, fetch
from support.odd_rows import NAMES, ROWS, named, shown
from support.table_driver import SCHEMA, rows
from support.tables import read_delta

from braided.storage.tables import Layout, open_sink
from braided.storage.writing import batch_folder

pytest.importorskip("deltalake")
VERSION = ".".join(importlib.metadata.version("pyspark").split(".")[:2])
pytestmark = pytest.mark.skipif(VERSION not in ("4.0", "4.1", "4.2"), reason="no connector for this Spark")
# Without the kernel, which only tables of a Unity Catalog need.
CONNECTOR = (
    Package("io.delta", f"delta-spark_{VERSION}_2.13", "4.4.0", alone=True),
    Package("io.delta", "delta-storage", "4.4.0", alone=True),
)


def _write(table: Path, batches: list[pa.RecordBatch], layout: Layout, first: int = 0) -> None:
    sink = open_sink(f"delta:{table}")
    for number, batch in enumerate(batches, first):
        target = sink.prepare(batch.schema, layout)
        writer = target.writer(batch_folder(number), 0, batch.schema)
        writer.write(batch)
        assert sink.commit("q", number, "plan", writer.close())


def test_sparks_connector_reads_tables_and_writes_beside_us(tmp_path: Path) -> None:
    try:
        jars = fetch(CONNECTOR, tmp_path / "jars")
    except JarsMissing as error:
        pytest.skip(str(error))
    tables, out = tmp_path / "tables", tmp_path / "out"
    odd = {f"name{at}": named(name, ["x/y", name, None, "a b=c"]) for at, name in enumerate(NAMES)}
    for at, batch in {"types": ROWS, **odd}.items():
        _write(tables / at, [batch], Layout())
        if at != "types":
            _write(tables / f"by_{at}", [batch], Layout((batch.schema.names[1],)))
    wanted: dict[str, pa.RecordBatch | pa.Table] = {"types": ROWS, **odd}
    wanted |= {f"by_{at}": batch for at, batch in odd.items()}
    for column in ("flag", "i8", "i16", "day"):
        wanted[f"by_{column}"] = batch = ROWS.select(["id", column])
        _write(tables / f"by_{column}", [batch], Layout((column,)))
    wider = [ROWS.select(["id"]), ROWS.select(["id", "ntz", "st"])]
    wanted["wider"] = pa.concat_tables(map(pa.table, wider), promote_options="default")
    _write(tables / "wider", wider, Layout(add_columns=True))
    _write(tables / "shared", [rows(number) for number in range(12)], Layout(("part",)))
    script = Path(__file__).parents[1] / "support" / "delta_connector.py"
    command = [sys.executable, str(script), str(tables), str(out), ",".join(map(str, jars))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for at, batch in wanted.items():
        found = pq.read_table(next((out / at).glob("*.parquet")), partitioning=None)
        assert shown(_as(found, batch.schema)) == shown(batch), at
        assert told["counts"][at] == sum(number >= 2 for number in batch["id"].to_pylist()), at
    assert told["streamed"] == 12 * len(rows(0)) + 1
    # We go on after Spark's append and its compaction, which moved all our files.
    _write(tables / "shared", [rows(12)], Layout(), first=12)
    found = read_delta(str(tables / "shared"))
    assert sorted(found["k"].to_pylist()) == [-1, *range(13 * len(rows(0)))]
    assert found.schema.names == SCHEMA.names


def _as(found: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows without what files of Spark say about nulls and names within lists and maps."""
    return pa.table({field.name: found[field.name].cast(field.type) for field in schema})
