"""The README's code runs and prints what the README shows."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streams import write_batch

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    return [text for tag, text in fenced if tag == language]


def test_the_first_screen(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa

    def at(second: int) -> datetime:
        return datetime(2024, 5, 1, 12, 0, second, tzinfo=UTC)

    zoned = pa.timestamp("us", tz="UTC")
    calls = pa.table({"phone": ["555", "777"], "ts": pa.array([at(0), at(30)], zoned), "cell": ["A1", "B2"]})
    alerts = pa.table({"phone": ["555"], "ts": pa.array([at(4)], zoned), "reason": ["fraud"]})
    write_batch(tmp_path / "calls", 0, calls)
    write_batch(tmp_path / "alerts", 0, alerts)
    [code] = blocks("python")
    names = {"spark": spark, "calls_dir": str(tmp_path / "calls"), "alerts_dir": str(tmp_path / "alerts")}
    exec(compile(code, str(README), "exec"), names)
    printed = capsys.readouterr().out
    shown, report, *_ = blocks("")
    assert shown.strip() in printed
    text = str(braided.report(names["query"]))
    # The join's number depends on how many joins this process made before.
    assert re.sub(r"join-\d+", "join-1", text).startswith(report.rstrip())
