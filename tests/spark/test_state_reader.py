"""`braided.state` of checkpoints: the rows that the bookkeeping names, as files and in Spark's state store."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from support.control_roots import joined
from support.crashes import write_streams
from support.streams import run_to_end

import braided
from braided.cli import state_commands

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", 2)


def digests(folder: Path) -> dict[str, str]:
    """Return the content of every file below a folder."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def wanted(root: Path, side: str, horizon: int) -> Counter[int]:
    """Return the ids of rows that can still match, by DuckDB."""
    with duckdb.connect() as db:
        rows = db.execute(f"select id from '{root}/{side}/*.parquet' where epoch_us(ts) >= {horizon}").fetchall()
    return Counter(number for (number,) in rows)


@pytest.mark.parametrize("in_files", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_state_of_a_stopped_query(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_files: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write_streams(tmp_path, files=4, rows=300, seed=41)
    with monkeypatch.context() as patch:
        if not in_files:
            patch.setattr("braided.spark.session_operators.open_for_run", lambda *_: None)
        query = run_to_end(joined(session, tmp_path, name="hits"), tmp_path / "check", tmp_path / "out")
    before = digests(tmp_path / "check")
    state = braided.state(tmp_path / "check")
    assert state.batch == query.lastProgress.batchId
    [operator] = state.operators
    assert (operator.kind, len(operator.workers), operator.inputs) == ("join", 3, ("left", "right"))
    report = braided.report(query).to_dict()
    stored = [worker["total"]["stored_rows"] for worker in report["workers"]]
    summary = operator.summary().to_pylist()
    assert [sum(line["rows"] for line in summary if line["worker"] == at) for at in range(3)] == stored
    assert sum(stored) > 500
    for name in operator.inputs:
        rows = operator.rows(name)
        ids = Counter(rows.column("id").to_pylist())
        first = min(line["first_time"] for line in summary if line["input"] == name)
        assert ids <= wanted(tmp_path, name, int(first.timestamp() * 1e6))
        newest = int(max(line["last_time"] for line in summary).timestamp() * 1e6)
        assert ids >= wanted(tmp_path, name, newest - 10_000_000), "rows that can still match are missing"
        found = operator.heaviest(name, 3).to_pylist()
        keys = Counter(rows.column("k").to_pylist())
        assert [line["rows"] for line in found] == [count for _, count in keys.most_common(3)]
    files = operator.files().to_pylist()
    if in_files:
        names = list((tmp_path / "check" / "braided" / "state").glob("*/*/*"))
        assert sum(line["live"] + line["dropped"] for line in files) == len(names)
        assert sum(line["live_bytes"] + line["dropped_bytes"] for line in files) == sum(p.stat().st_size for p in names)
    else:
        assert files[0]["live"] is None
    monkeypatch.setattr(state_commands, "local_session", lambda *_: _Same(session))
    assert state_commands.show_state(
        str(tmp_path / "check"), operator="0", rows=2, keys=1, as_json=True, redact=False
    ) == 0  # fmt: skip
    told = json.loads(capfd.readouterr().out)
    assert told["operators"][0]["kind"] == "join"
    assert len(told["operators"][0]["rows"]["left"]) == 2
    assert digests(tmp_path / "check") == before, "the checkpoint has changed"


class _Same:
    """A session that is there already, as one that a command starts."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def __enter__(self) -> SparkSession:
        return self._session

    def __exit__(self, *_: object) -> None:
        return None
