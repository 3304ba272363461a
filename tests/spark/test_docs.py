"""Every Python block of the README and of the pages in docs/ runs, page by page, and prints what the page says."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.streams import file_stream, write_first_screen

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
# What pages need that not every check installs.
NEEDED = {"tables": ("deltalake", "pyiceberg")}
# What pages write for a directory that driver and executors share.
SHARED = "/shared/"
STREAMS = {
    "calls": "phone string, ts timestamp, cell string",
    "alerts": "phone string, ts timestamp, reason string",
    "cells": "phone string, ts timestamp, cell string",
    "alarms": "cell string, ts timestamp, alarm string",
    "events": "device string, ts timestamp, value double",
    "north": "device string, ts timestamp, value double",
    "south": "device string, ts timestamp, value double",
    "orders": "order_id long, ts timestamp, total double",
    "payments": "order_id long, ts timestamp, paid double",
    "shipments": "order_id long, ts timestamp, carrier string",
    "asks": "lot long, ts timestamp, price double",
    "bids": "lot long, ts timestamp, price double",
}


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for tag, text in fenced if tag == language]


def names_of_page(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """What a page may use without having made it."""
    write_first_screen(folder)
    keys = pa.table({"key": [1, 1, 2, 3]})
    return {
        "braided": braided,
        "spark": spark,
        "calls_dir": str(folder / "calls"),
        "alerts_dir": str(folder / "alerts"),
        **{name: str(folder / name) for name in ("checkpoint", "hits_dir", "late_checkpoint")},
        "exact": keys,
        "some": keys.slice(0, 2),
        **{name: file_stream(spark, folder / name, schema) for name, schema in STREAMS.items()},
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(
    page: Path, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = blocks(page, "python")
    if not code:
        return
    for package in NEEDED.get(page.stem, ()):
        pytest.importorskip(package)
    names = names_of_page(spark, tmp_path)
    for number, block in enumerate(code):
        text = block.replace(SHARED, f"{tmp_path}/shared/")
        if text.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(text, names, f"{page.name}, block {number}", str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            assert runner.run(example, clear_globs=False).failed == 0, capsys.readouterr().out
            names |= example.globs
            continue
        exec(compile(text, f"{page.name}, block {number}", "exec"), names)
        printed = capsys.readouterr().out
        # `print(x)  # y` promises that y is printed.
        for promised in re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE):
            assert promised in printed.splitlines()
        for shown in blocks(page, "") if page == README else []:
            if shown.startswith("+--"):
                assert shown.strip() in printed
    if page == README:
        report = next(text for text in blocks(README, "") if text.startswith("join-1:"))
        # The join's number depends on how many joins this process made before.
        assert re.sub(r"join-\d+", "join-1", str(braided.report(names["query"]))).startswith(report.rstrip())
