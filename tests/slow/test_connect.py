"""Joins on a server of Spark Connect: the same rows, with and without a control directory, and clear words about the rest."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.crashes import expected, write_streams

SUPPORT = Path(__file__).parents[1] / "support"
CLIENT = SUPPORT / "connect_query.py"


def test_joins_work_on_spark_connect(tmp_path: Path) -> None:
    write_streams(tmp_path, files=4, rows=300, seed=31)
    done = subprocess.run(
        [sys.executable, str(CLIENT), str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    if importlib.metadata.version("pyspark").startswith("4.0."):
        assert "it has no stateful operators in Python; use a newer Spark" in done.stderr
        return
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads((tmp_path / "answers.json").read_text())
    wanted = expected(tmp_path)
    for name in ("fixed", "adapts"):
        found = answers[name]
        assert Counter((left, right) for left, right in found["rows"]) == wanted
        assert found["report"]["query"]["results"] == wanted.total()
        assert f"{name}: joins on k" in found["explained"]
    assert "fixed: set spark.braided.control to a path" in answers["fixed"]["explained"]
    assert f"adapts by {tmp_path}/control" in answers["adapts"]["explained"]
    assert answers["adapts"]["report"]["routing"]["control"] == f"{tmp_path}/control"
    pins = [json.loads(pin.read_bytes())["version"] for pin in (tmp_path / "control" / "pins").iterdir()]
    assert len(set(pins)) >= 2, "the routing never changed"
    assert 600 < answers["ordered"] <= 1200, "rows of the last five seconds wait"
    assert "not supported for streaming aggregations without watermark" in answers["append"]
    assert answers["columns"] == ["k", "ts", "id", "ts_right", "id_right"]
    assert "the routing is fixed" in answers["said"]
    assert (
        "the result has no watermark: ts: an aggregate of Spark's over this result needs a watermark delay of 15 seconds"
        in answers["said"]
    )
    assert Counter((left, right) for left, right in answers["topic"]) == wanted
    assert Counter((left, right) for left, right in answers["copy"]) == wanted
    assert answers["page"], "the dashboard does not show the query"
    no_sql, no_upkeep = answers["refused"]
    assert no_sql.startswith(
        "braided.sql: Spark Connect does not show the plan of a query; write the join with braided.join"
    )
    assert no_upkeep.startswith("compact, keep: on Spark Connect the server writes the topic; call braided.topic(path)")


@pytest.mark.skipif(importlib.metadata.version("pyspark").startswith("4.0."), reason="has no operators with state")
@pytest.mark.parametrize("what", ["built", "ended", "running"])
def test_a_client_exits_by_itself(tmp_path: Path, what: str) -> None:
    write_streams(tmp_path, files=2, rows=100, seed=32)
    command = [sys.executable, str(SUPPORT / "connect_exit.py"), str(tmp_path), what]
    log = tmp_path / "stderr.txt"
    with log.open("w") as stderr, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as client:
        try:
            assert client.stdout is not None
            assert "last line\n" in iter(client.stdout.readline, ""), log.read_text()
            assert client.wait(timeout=40) == 0, log.read_text()
        finally:
            client.kill()
