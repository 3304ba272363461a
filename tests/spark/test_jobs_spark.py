"""A job file on Spark: its rows, its restart, and that parts which fail are named."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.streams import write_batch

import braided
from braided.errors import JobError
from braided.jobs.job_file import Job
from braided.jobs.job_reader import parse_job
from braided.spark.jobs import build_job, start_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = """
name = "pairs"
checkpoint = "{0}/c"
[sources.l]
path = "{0}/l"
[sources.r]
path = "{0}/r"
time = "t"
watermark = "1 second"
[tables.names]
path = "{0}/names"
[[steps]]
name = "pairs"
sql = '''
SELECT l.k, l.t, r.t AS other FROM l JOIN r ON l.k = r.k AND r.t BETWEEN l.t - INTERVAL 2 SECONDS AND l.t + INTERVAL 2 SECONDS'''
options = {{ lateness = "100 seconds" }}
[[steps]]
name = "named"
sql = "SELECT p.k, p.t, p.other, n.name FROM pairs p JOIN names n ON p.k = n.k"
[[steps]]
name = "shown"
python = "job_steps_of_a_test:upper"
inputs = ["named"]
[sink]
format = "topic"
path = "{0}/out"
"""
STEPS = """
def upper(frame):
    return frame.selectExpr("k", "t", "other", "upper(name) AS name")

def nothing(frame):
    return None
"""


def _write(folder: Path, number: int) -> None:
    rows = range(number * 100, number * 100 + 100)
    times = pa.array([row * 500_000 for row in rows], pa.timestamp("us", "UTC"))
    write_batch(folder, number, pa.table({"k": [row % 7 for row in rows], "t": times}))


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    for side in "lr":
        _write(tmp_path / side, 0)
    (tmp_path / "names").mkdir()
    pq.write_table(pa.table({"k": [1, 2, 3], "name": ["a", "b", "c"]}), tmp_path / "names" / "0.parquet")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "job_steps_of_a_test.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.delitem(sys.modules, "job_steps_of_a_test", raising=False)
    return parse_job(JOB.format(tmp_path))


def test_a_job_gives_the_oracles_rows_and_goes_on_where_it_was(spark: SparkSession, tmp_path: Path, job: Job) -> None:
    start_job(spark, job, once=True).awaitTermination()
    for side in "lr":
        _write(tmp_path / side, 1)
    start_job(spark, job, once=True).awaitTermination()
    wanted = duckdb.sql(
        f"""SELECT l.k, l.t, r.t, upper(name) FROM '{tmp_path}/l/*.parquet' l JOIN '{tmp_path}/r/*.parquet' r
            ON l.k = r.k AND r.t BETWEEN l.t - INTERVAL 2 SECOND AND l.t + INTERVAL 2 SECOND
            JOIN '{tmp_path}/names/*.parquet' n ON n.k = l.k"""
    ).fetchall()
    files = braided.topic(tmp_path / "out").files()
    given = duckdb.sql(f"SELECT k, t, other, name FROM read_parquet({files!r})").fetchall()
    assert sorted(given) == sorted(wanted)
    assert len(given) > 80


def test_a_job_with_a_left_join_keeps_rows_that_match_nothing(spark: SparkSession, tmp_path: Path, job: Job) -> None:
    condition = "l.k = r.k AND r.k > 2 AND r.t BETWEEN l.t + INTERVAL {0} AND l.t + INTERVAL {1}"
    text = JOB.replace("100 seconds", "1 second").partition(" FROM l JOIN")[0]
    text += f" FROM l LEFT JOIN r ON {condition.format('3 SECONDS', '4 SECONDS')}'''\n"
    text += 'options = {{ lateness = "1 second" }}\n[[steps]]\nname = "named"' + JOB.partition('name = "named"')[2]
    start_job(spark, parse_job(text.format(tmp_path)), once=True).awaitTermination()
    wanted = duckdb.sql(
        f"""SELECT l.k, l.t, r.t, upper(name) FROM '{tmp_path}/l/*.parquet' l LEFT JOIN '{tmp_path}/r/*.parquet' r
            ON {condition.format("3 SECOND", "4 SECOND")} JOIN '{tmp_path}/names/*.parquet' n ON n.k = l.k"""
    ).fetchall()
    files = braided.topic(tmp_path / "out").files()
    given = duckdb.sql(f"SELECT k, t, other, name FROM read_parquet({files!r})").fetchall()
    certain = [sorted((row for row in rows if row[1].timestamp() % 86400 < 44), key=repr) for rows in (given, wanted)]
    assert certain[0] == certain[1]
    assert 10 < sum(row[2] is None for row in certain[0]) < len(certain[0])


@pytest.mark.parametrize("limit", ["", "max_files = 5\n"])
def test_files_of_other_formats_with_odd_names_are_read_once(spark: SparkSession, tmp_path: Path, limit: str) -> None:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("a.csv", "b[1].csv", "c.csv")):
        (tmp_path / "in" / name).write_text(f"{number}\n")
    text = """
name = "odd"
checkpoint = "{0}/c"
[sources.a]
format = "csv"
path = "{0}/in"
schema = "n long"
{1}[sink]
format = "topic"
path = "{0}/out"
"""
    start_job(spark, parse_job(text.format(tmp_path, limit)), once=True).awaitTermination()
    files = braided.topic(tmp_path / "out").files()
    assert duckdb.sql(f"SELECT n FROM read_parquet({files!r}) ORDER BY n").fetchall() == [(0,), (1,), (2,)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("l.k = r.k AND", "l.k = r.nope AND", r"^job, line 14: step pairs: .*nope"),
        ('path = "{0}/r"', 'path = "{0}/none"', r"^job, line 6: sources\.r: .*none"),
        ("lateness =", "latenes =", "step pairs: latenes=: unknown option of the joins of a query"),
        (
            ":upper",
            ":lower",
            "step shown: 'job_steps_of_a_test:lower': .* has no attribute 'lower'; install the module",
        ),
        (
            ":upper",
            ":nothing",
            "line 22: step shown: 'job_steps_of_a_test:nothing' returned a NoneType, not a DataFrame",
        ),
    ],
)
def test_parts_that_fail_are_named(
    spark: SparkSession, tmp_path: Path, job: Job, old: str, new: str, message: str
) -> None:
    with pytest.raises(JobError, match=message):
        build_job(spark, parse_job(JOB.replace(old, new).format(tmp_path)))
