"""Queries written step by step: their rows are DuckDB's, aggregates and conditions move into joins, errors suggest."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.streams import write_closing

import braided
from braided.errors import OptionError
from braided.operators.aggregate.partial import PartialAggregate
from braided.operators.physical import Plan
from braided.spark.query import Query
from braided.spark.session_operators import registry_of

FILES = 3


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    def make(random: np.random.Generator, times: pa.Array) -> pa.Table:
        rows = len(times)
        return pa.table({
            "phone": pa.array([None if n == 0 else f"p{n}" for n in random.integers(0, 12, rows)]),
            "ts": times,
            "n": pa.array([None if n == 5 else int(n) for n in random.integers(0, 100, rows)], pa.int64()),
            "cell": pa.array([f"x{n}" for n in random.integers(0, 4, rows)]),
        })  # fmt: skip

    root = tmp_path_factory.mktemp("queries")
    return root, write_closing(root, seed=21, files=FILES, rows=150, make=make)


@pytest.fixture
def batch(spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]]) -> dict[str, Query]:
    """The same rows as batch DataFrames, for what a step does."""
    return {name: braided.stream(spark.read.parquet(str(tables[0] / name)), time="ts") for name in tables[1]}


@pytest.fixture
def live(spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]]) -> dict[str, Query]:
    return {
        name: braided.stream(braided.files(spark, str(tables[0] / name), max_files=1), time="ts", lateness="3 seconds")
        for name in tables[1]
    }


def _rows(frame: DataFrame) -> list[Any]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def _oracle(text: str, tables: tuple[Path, dict[str, pa.Table]]) -> list[Any]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables[1].items():
            database.register(name, table)
        return sorted(database.sql(text).fetchall(), key=repr)


def _last_plan(spark: SparkSession) -> Plan:
    return list(registry_of(spark)._operators.values())[-1].plan


WITHIN = "a.ts between c.ts - interval 2 seconds and c.ts + interval 2 seconds"


@pytest.mark.slow
def test_an_aggregate_after_a_join_begins_in_its_workers_and_is_the_oracles(
    spark: SparkSession, live: dict[str, Query], tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path
) -> None:
    joined = live["calls"].join(live["alerts"], on="phone", within="2 seconds")
    query = joined.where("n > 10 AND n_right < n + 40").aggregate(
        by="cell_right",
        window="6 seconds",
        every="2 seconds",
        pairs="count(*)",
        total="sum(n)",
        mean="avg(n_right)",
        long="sum(CASE WHEN cell_right = 'x1' THEN n_right ELSE 0 END)",
        apart="max(n - n_right)",
        opened="first(cell)",
    )
    values = ("pairs", "total", "round(mean, 6) AS mean", "long", "apart", "opened")
    frame = query.select("unix_micros(window.start) AS s", "cell_right", *values).df
    plan = _last_plan(spark)
    assert isinstance(plan.operator, PartialAggregate)
    assert plan.spec.where == "(r.`n` < l.`n` + 40)"  # type: ignore[attr-defined]
    written = braided.write_files(frame, tmp_path / "out", checkpoint=tmp_path / "c", trigger="available now")
    written.awaitTermination()
    with duckdb.connect() as database:
        files = braided.topic(tmp_path / "out").files()
        found = sorted(database.execute("from read_parquet(?)", [files]).fetchall(), key=repr)
    wanted = _oracle(
        f"""with starts as (select unnest(generate_series(-10000000, 200000000, 2000000)) as s)
        select s, a.cell, count(*), sum(c.n)::bigint, round(avg(a.n), 6),
        sum(case when a.cell = 'x1' then a.n else 0 end)::bigint, max(c.n - a.n), first(c.cell order by c.ts, c.cell) from starts, calls c join alerts a
        on c.phone = a.phone and {WITHIN} and c.n > 10 and a.n < c.n + 40
        where s <= epoch_us(c.ts) and epoch_us(c.ts) < s + 6000000 group by all""",
        tables,
    )
    closed = [row for row in wanted if row[0] < 100_000_000]
    assert len(closed) > 30
    assert [row for row in found if row[0] < 100_000_000] == closed


def test_a_condition_gives_the_same_rows_wherever_it_moves(
    batch: dict[str, Query], tables: tuple[Path, dict[str, pa.Table]]
) -> None:
    joined = batch["calls"].join(batch["alerts"], on="phone", within="2 seconds")
    chosen = ("phone", "n", "n_right", "cell", "cell_right")
    for condition in (
        "cell = 'x1'",
        "phone > 'p5' AND cell_right <> cell",
        "n BETWEEN 5 AND 50 OR n_right IS NULL",
        "substring(phone, 2) = '3'",
        "hash(n) % 2 = 0",
    ):
        found = _rows(joined.where(condition).select(*chosen).df)
        assert found == _rows(joined.df.where(condition).select(*chosen)), condition
        assert found
    found = _rows(joined.where("cell = 'x1' AND n < n_right").select("phone", "n", "n_right").df)
    assert found == _oracle(
        f"select c.phone, c.n, a.n from calls c join alerts a on c.phone = a.phone and {WITHIN} and c.cell = 'x1' and c.n < a.n",
        tables,
    )


def test_cases_split_by_the_first_condition_and_union_puts_together(
    batch: dict[str, Query], tables: tuple[Path, dict[str, pa.Table]]
) -> None:
    parts = batch["calls"].cases({"large": "n > 60", "even": "n % 2 = 0"}, rest="others")
    assert list(parts) == ["large", "even", "others"]
    counts = [part.df.count() for part in parts.values()]
    assert counts == list(
        _oracle(
            """select count(*) filter (n > 60), count(*) filter (n <= 60 and n % 2 = 0),
            count(*) filter (n is null or (n <= 60 and n % 2 <> 0)) from calls""",
            tables,
        )[0]
    )
    again = parts["large"].union(parts["even"], parts["others"])
    assert _rows(again.df) == _rows(batch["calls"].df)


def test_other_steps_make_what_the_functions_make(live: dict[str, Query], spark: SparkSession) -> None:
    three = live["calls"].multijoin(live["alerts"], live["calls"], on="phone", within="1 second", name="three")
    assert three.df.columns == ["phone", "ts", "n", "cell", "ts_2", "n_2", "cell_2", "ts_3", "n_3", "cell_3"]
    assert _last_plan(spark).spec.to_json()["lateness"] == ["3 seconds"] * 3
    ordered = live["calls"].order(key="phone", late="drop")
    assert ordered.df.columns == ["phone", "ts", "n", "cell"]
    spec = _last_plan(spark).spec.to_json()
    assert (spec["kind"], spec["key"], spec["lateness"]) == ("order", "phone", "3 seconds")
    plain = live["calls"].aggregate(by="cell", window="1 minute", n="count(*)")
    assert "EventTimeWatermark" in plain.df._jdf.queryExecution().analyzed().toString()
    again = plain.select("cell", "n", "window.start AS at", time="at")
    assert again.time == "at"
    windows = live["calls"].aggregate(by="cell", rows=10, every=2, forget="1 day", mean="avg(n)")
    assert windows.df.dtypes == [("cell", "string"), ("ts", "timestamp"), ("mean", "double")]
    spec = _last_plan(spark).spec.to_json()
    assert (spec["kind"], spec["rows"], spec["every"], spec["lateness"]) == ("row_windows", 10, 2, "3 seconds")


def test_queries_that_were_written_alike_have_equal_plans(live: dict[str, Query]) -> None:
    one, other = (
        live["calls"].join(live["alerts"], on="phone", within="1 second").where("n > 1").select("n") for _ in range(2)
    )
    assert one.plan == other.plan
    assert one.plan != live["alerts"].join(live["calls"], on="phone", within="2 seconds").where("n > 1").plan
    assert [node.kind for node in one.plan.root.walk()] == ["source", "source", "join", "filter", "project"]


def _aggregate(**options: Any) -> Callable[[dict[str, Query]], Any]:
    def made(live: dict[str, Query]) -> Any:
        joined = live["calls"].join(live["alerts"], on="phone", within="2 seconds")
        return joined.aggregate(**{"window": "1 minute", "total": "count(*)", **options}).df

    return made


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (_aggregate(x="stddev(n)"), "partial results of stddev(n) cannot be merged"),
        (_aggregate(x="max(cell)"), "only Spark can compute max of string"),
        (_aggregate(x="sum(CAST(phone AS int))"), "only Spark can compute CAST(`phone` AS INT)"),
    ],
)
def test_what_does_not_merge_is_sparks_and_explained(
    live: dict[str, Query], made: Callable[..., Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    braided.explain(made(live))
    assert f"the aggregate after it is Spark's: {why}" in capsys.readouterr().out


ERRORS: list[tuple[Callable[[dict[str, Query]], Any], str]] = [
    (lambda q: braided.stream(q["calls"].df, time="t"), "time='t': no such column; did you mean 'ts'?"),
    (lambda q: braided.stream(q["calls"].df, time="n"), "time='n': has type bigint, not TIMESTAMP; cast it"),
    (lambda q: braided.stream([], time="t"), "df: list is not a Spark DataFrame; for Arrow data use braided.local.stream"),  # type: ignore[arg-type]
    (lambda q: q["calls"].join(q["alerts"].df, on="phone"), "join: expected a query, not DataFrame; write braided.stream(df, time='ts')"),
    (lambda q: q["calls"].join(q["alerts"], on="phone", witin="1 second"), "witin=: unknown option of join; did you mean within=?"),
    (lambda q: q["calls"].join(q["alerts"], on="fone", within="1 second"), "on='fone': the left input has no such column"),
    (lambda q: q["calls"].where("m > 1"), "where: 'm > 1': [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
    (lambda q: q["calls"].where(True), "where: expected a condition in SQL, such as 'n > 1', not bool"),  # type: ignore[arg-type]
    (lambda q: q["calls"].select("m"), "select: 'm': [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
    (lambda q: q["calls"].select("n", time="ts"), "time='ts': no such column; the columns are n"),
    (lambda q: q["calls"].select("n").order(), "order: the query has no event time at this point; name one with select(..., time='ts')"),
    (lambda q: q["calls"].union(q["alerts"].select("ts")), "union: another stream has no column 'phone'; select it in both"),
    (lambda q: q["calls"].cases({}), "cases: give conditions by the names of their outputs"),
    (lambda q: q["calls"].cases({"rest": "n > 1"}), "rest='rest': a condition has that name; choose another name for the remaining rows"),
    (lambda q: q["calls"].order(late="side"), "late='side': a query has one output; write 'flag' and split it with cases()"),
    (_aggregate(rows="count(*)"), "rows='count(*)': this is the number of rows in a window; give the value another name"),
    (_aggregate(rows=3), "window='1 minute': cannot be used with rows=3; omit one of them"),
    (_aggregate(by="cel"), "by='cel': no such column; did you mean 'cell'?"),
    (_aggregate(x="sum(m)"), "x='m': no such column; the columns are phone, ts"),
    (_aggregate(x="stddev(m)"), "aggregate: 'count(*), stddev(m)': [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "message"), ERRORS, ids=[message[:40] for _, message in ERRORS])
def test_errors_say_what_to_write(live: dict[str, Query], made: Callable[..., Any], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)):
        made(live)


def test_a_query_is_drawn_with_what_was_merged_and_how_it_is_laid_out(
    live: dict[str, Query], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = live["calls"].where("n > 1").join(live["alerts"], on="phone", within="2 seconds", name="hits")
    braided.explain(joined.aggregate(by="cell", window="1 minute", n="count(*)").df, svg=tmp_path / "query.svg")
    text = (tmp_path / "query.svg").read_text()
    shown = [part.text for part in ElementTree.fromstring(text).iter() if part.text and part.text.strip()]
    titles = [part for part in shown if re.match(r"Braided: |Spark: |stream of files$|result$", part)]
    assert titles[-3:] == ["Braided: hits", "Spark: aggregate", "result"]
    assert titles.count("stream of files") == 2
    together = " ".join(part.strip() for part in shown)
    operator = capsys.readouterr().out.partition("logical plan:")[0]
    for line in operator.splitlines()[1:]:
        assert line.strip() in together
    assert "joins on phone" in together
    assert "phone, ts, cell" in together  # n is read before the join, by the condition alone
    assert "begins in its workers" in together


def test_explain_prints_the_plan_before_and_after_with_the_names_of_the_text(
    live: dict[str, Query], spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = live["calls"].join(live["alerts"], on="phone", within="2 seconds").where("n > 1")
    braided.explain(joined.aggregate(by="cell", window="1 minute", total="sum(n_right * 2)").df)
    shown = capsys.readouterr().out
    before, _, after = shown.partition("optimised plan:")
    assert "+- Filter n > 1\n" in before
    assert "condition into the join: Filter n > 1\n" in before
    assert "total = sum(n_right * 2), which begins in the workers of the join" in after
    text = """SELECT window(c.ts, '1 minute') AS w, max(a.CELL) AS m FROM calls c JOIN alerts a ON c.phone = a.phone
        AND a.ts BETWEEN c.ts AND c.ts + INTERVAL 1 SECOND GROUP BY window(c.ts, '1 minute')"""
    braided.explain(braided.sql(spark, text, {name: query.df for name, query in live.items()}))
    shown = capsys.readouterr().out
    assert "joins on c.phone = a.phone" in shown
    assert "the aggregate after it is Spark's: only Spark can compute max of string" in shown
    assert "__" not in shown


def test_explain_says_where_a_plain_group_by_runs(live: dict[str, Query], capsys: pytest.CaptureFixture[str]) -> None:
    joined = braided.join(live["calls"].df, live["alerts"].df, on="phone", time="ts", within="1 second")
    braided.explain(joined.where("n > 1").groupBy("cell").count())
    assert "an aggregate of its rows is Spark's: it was written with groupBy" in capsys.readouterr().out
    braided.explain(joined.where("n > 1"))
    assert "groupBy" not in capsys.readouterr().out


ON = f"from calls c {{}} join alerts a on c.phone = a.phone and {WITHIN}"


@pytest.mark.parametrize("how", ["inner", "left", "right"])
def test_the_smaller_time_of_a_join_is_its_time_and_no_row_is_late_for_a_step_after_it(
    how: str, live: dict[str, Query], tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path
) -> None:
    """StreamCloud's output time (II.A): min(s.t, u.t). The last rows wait for a silence, those before all come out."""
    joined = live["calls"].join(live["alerts"], time="min", on="phone", within="2 seconds", how=how)
    query = joined.order(lateness="0 seconds").where("NOT late").select("ts", "ts_right", "ts_min").df
    written = braided.write_files(query, tmp_path / "out", checkpoint=tmp_path / "c", trigger="available now")
    written.awaitTermination()
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        files = braided.topic(tmp_path / "out").files()
        found = sorted(
            database.execute("select ts, ts_right, ts_min from read_parquet(?)", [files]).fetchall(), key=repr
        )
    wanted = _oracle(f"select c.ts, a.ts, least(c.ts, a.ts) {ON.format(how)}", tables)
    last = max(row[2] for row in found)
    assert [row for row in found if row[2] < last] == [row for row in wanted if row[2] < last]
    assert len(found) > 0.5 * len(wanted)


def test_windows_of_the_smaller_time_are_sparks_and_lose_nothing(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, alerts = (
        braided.stream(
            braided.files(spark, str(tables[0] / name), max_files=1).withWatermark("ts", "3 seconds"), time="ts"
        )
        for name in ("calls", "alerts")
    )
    joined = calls.join(alerts, time="min", on="phone", within="2 seconds")
    query = joined.aggregate(by="cell", window="6 seconds", n="count(*)", m="max(n_right)")
    frame = query.select("unix_micros(window.start) AS s", "cell", "n", "m").df
    braided.explain(frame)
    assert "least(`ts`, `ts_right`) AS `ts_min`" in capsys.readouterr().out
    stream = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
    stream.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    found = _rows(spark.read.parquet(str(tmp_path / "out")))
    wanted = _oracle(
        f"""select epoch_us(least(c.ts, a.ts)) // 6000000 * 6000000 as s, c.cell, count(*), max(a.n) {ON.format("")}
        group by all""",
        tables,
    )
    last = max(row[0] for row in found)
    assert len(found) > 20
    assert found == [row for row in wanted if row[0] <= last]


def test_joins_whose_smaller_time_has_no_known_delay_are_refused(batch: dict[str, Query]) -> None:
    for options, message in (
        ({"time": "max"}, "time='max': write 'left' or 'min'"),
        ({"how": "full"}, "time='min': with how='full' rows of each stream come out alone"),
        ({"how": "left_anti"}, "time='min': the join must give both times, each with a bound"),
    ):
        with pytest.raises(OptionError, match=message):
            batch["calls"].join(batch["alerts"], **{"time": "min", "on": "phone", "within": "2 seconds"} | options)
