"""Outer, semi, anti and as-of joins in SQL: DuckDB's rows over the finished streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.profiles import some
from support.sql_streams import certain, in_order, oracle, run_all, sql_streams, tables_as_streams, write_sql_streams

import braided
from braided.errors import OptionError
from braided.spark.progress import explain_frame

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("l", "r", "s")
NEAR = "l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts + INTERVAL 2 SECONDS"

QUERIES = {
    # The check runs the first three on streams.
    "right, after an inner join with the same key": f"""
        SELECT s.ts AS at, l.k, r.k AS rk, s.k AS sk, l.n FROM l JOIN r ON {NEAR}
        RIGHT JOIN s ON s.k = r.k AND s.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND""",
    "left, with conditions on each side and on both": f"""
        SELECT l.ts AS at, l.k, r.k AS rk, l.n, r.n AS m, l.g FROM l LEFT JOIN r
        ON {NEAR} AND l.n > -5 AND r.n < 15 AND l.x < r.x + 2""",
    "left, with a condition that Spark alone evaluates": f"""
        SELECT l.ts AS at, l.k, r.k AS rk, l.g FROM l LEFT OUTER JOIN r ON {NEAR} AND reverse(l.g) = '2g'""",
    "left, with WHERE on both": f"""
        SELECT l.ts AS at, l.k, r.n FROM l LEFT JOIN r ON {NEAR} WHERE l.n > 0 AND (r.n IS NULL OR r.n > 10)""",
    "right, with WHERE on the side of nulls": f"""
        SELECT r.ts AS at, l.k, r.k AS rk, l.n, r.n AS m FROM l RIGHT JOIN r ON {NEAR} AND l.n > 0 AND r.x > 1
        WHERE l.k IS NULL OR r.n > 3""",
    "full, by two keys": f"""
        SELECT coalesce(l.ts, r.ts) AS at, l.k, r.k AS rk, l.g, r.g AS rg, l.n, r.n AS m FROM l FULL OUTER JOIN r
        ON {NEAR} AND r.g = l.g AND l.n > -10 AND r.n > -10""",
    "full, by columns that both have": "SELECT ts AS at, k, l.k AS lk, r.k AS rk, l.n, r.n AS m FROM l FULL JOIN r USING (k, ts)",
    "right, by doubles that both have": "SELECT ts AS at, x, l.x AS lx, l.n FROM l RIGHT JOIN r USING (x, ts)",
    "semi": f"SELECT l.ts AS at, l.* FROM l LEFT SEMI JOIN r ON {NEAR} AND r.n > 5 AND l.n < 15 WHERE l.x < 3",
    "anti": f"SELECT l.ts AS at, k, n FROM l LEFT ANTI JOIN r ON {NEAR} AND r.n > 5 AND l.n < 15",
    "EXISTS and NOT EXISTS": f"""
        SELECT l.ts AS at, l.k, l.n FROM l WHERE EXISTS (SELECT 1 FROM r WHERE {NEAR} AND r.n > 0)
        AND NOT EXISTS (SELECT * FROM s WHERE s.k = l.k AND s.ts BETWEEN l.ts AND l.ts + INTERVAL 1 SECOND)""",
    "IN, and a stream with itself": """
        SELECT l.ts AS at, l.k, l.n FROM l WHERE k IN (SELECT k FROM r WHERE r.g = l.g AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 3 SECONDS)
        AND NOT EXISTS (SELECT 1 FROM l AS o WHERE o.k = l.k AND o.n > l.n AND o.ts > l.ts - INTERVAL 1 SECOND AND o.ts <= l.ts)""",
    "a left join after an inner join, of a subquery and a common table expression": """
        WITH few AS (SELECT k AS key, ts AS t, n AS few_n FROM s WHERE n < 10)
        SELECT * FROM (SELECT ts AS at, k, n FROM l WHERE n > -15) p
        JOIN (SELECT k AS rk, ts AS rt FROM r) q ON p.k = q.rk AND q.rt BETWEEN p.at AND p.at + INTERVAL 1 SECOND
        LEFT JOIN few ON few.key = q.rk AND few.t BETWEEN q.rt - INTERVAL 1 SECOND AND q.rt AND few.few_n > p.n""",
    "two left joins, the second by the nulls of the first, and a table": f"""
        SELECT l.ts AS at, l.k, r.k AS rk, s.k AS sk, s.n, t.label FROM l LEFT JOIN r ON {NEAR} AND r.n > 5
        LEFT JOIN s ON s.k = r.k AND s.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND
        LEFT JOIN t ON t.k = s.k WHERE s.n IS NULL OR s.n > 0""",
    "an inner join after a left join": f"""
        SELECT l.ts AS at, l.n, r.n AS m, s.n AS o FROM l LEFT JOIN r ON {NEAR} AND r.n > 5
        JOIN s ON s.k = l.k AND s.ts BETWEEN l.ts AND l.ts + INTERVAL 1 SECOND AND coalesce(r.n, 0) < s.n""",
    "full, after an inner join with the same key": f"""
        SELECT coalesce(l.ts, s.ts) AS at, l.k, s.k AS sk, l.n FROM l JOIN r ON {NEAR}
        FULL JOIN s ON s.k = r.k AND s.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND AND l.n > 0""",
    "left, by computed keys": """
        SELECT l.ts AS at, l.k, r.k AS rk, l.g, r.g AS rg FROM l LEFT JOIN r ON upper(l.g) = upper(r.g) AND l.k + 1 = r.k
        AND r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts + INTERVAL 2 SECONDS AND l.n < r.n + 10""",
    "left, by seconds that are compared before the times": f"""
        SELECT l.ts AS at, l.n, r.n AS m FROM l LEFT JOIN r
        ON l.k = r.k AND date_trunc('SECOND', l.ts) = date_trunc('SECOND', r.ts) AND {NEAR}""",
    "NOT EXISTS, by a computed key and a column": """
        SELECT l.ts AS at, l.k, l.n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k - 1 = l.k
        AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 1 SECOND)""",
    "inner, by computed keys in WHERE": """
        SELECT l.ts AS at, l.k, r.k AS rk, s.k AS sk FROM l, r, s WHERE l.k + 1 = r.k - 1 AND s.k = abs(r.k - 2)
        AND r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts AND s.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND""",
    "an inner join by a value that the nulls of a left join change": f"""
        SELECT l.ts AS at, l.n, r.k AS rk, s.k AS sk FROM l LEFT JOIN r ON {NEAR} AND r.n > 5
        JOIN s ON s.k = coalesce(r.k + 1, 3) AND s.ts BETWEEN l.ts AND l.ts + INTERVAL 1 SECOND""",
}  # fmt: skip


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    root = tmp_path_factory.mktemp("kinds")
    return root, write_sql_streams(root, NAMES, rows=60, seed=3)


@pytest.fixture
def streams(spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]]) -> dict[str, DataFrame]:
    return sql_streams(spark, tables[0], NAMES, files=2)


@pytest.fixture
def labels(spark: SparkSession) -> pa.Table:
    import pyarrow as pa

    labels = pa.table({"k": pa.array(range(1, 8), pa.int32()), "label": list("abcdefg")})
    spark.createDataFrame(labels.to_pylist(), "k int, label string").createOrReplaceTempView("t")
    return labels


@pytest.mark.slow
def test_every_kind_of_join_gives_the_oracles_rows(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], labels: pa.Table
) -> None:
    batches = {name: spark.read.parquet(str(tables[0] / name)) for name in NAMES}
    for what, text in QUERIES.items():
        with tables_as_streams():
            frame = braided.sql(spark, text, batches)
        wanted = oracle(text, {**tables[1], "t": labels})
        assert len(wanted) > 20, what
        assert in_order(frame.collect()) == wanted, what


@pytest.mark.parametrize("what", some(QUERIES, quick=3))
def test_every_kind_of_join_of_streams_gives_the_oracles_rows(
    spark: SparkSession,
    tables: tuple[Path, dict[str, pa.Table]],
    streams: dict[str, DataFrame],
    labels: pa.Table,
    tmp_path: Path,
    what: str,
) -> None:
    frame = braided.sql(spark, QUERIES[what], streams, lateness="20 seconds")
    wanted = certain(oracle(QUERIES[what], {**tables[1], "t": labels}))
    assert len(wanted) > 20
    assert run_all({what: frame}, tmp_path) == {what: wanted}


ASOF_ON = "MATCH_CONDITION (l.ts >= q.ts) ON l.k = q.k AND q.ts >= l.ts - INTERVAL 2 SECONDS"
ASOF = {
    # The closest row is of the largest n: ties go to the largest.
    f"SELECT l.ts AS at, l.k, q.k AS qk, q.n FROM l LEFT ASOF JOIN (SELECT k, ts, n FROM r WHERE n > 0) q {ASOF_ON} WHERE l.n < 10": """
        SELECT l.ts AS at, l.k, q.k AS qk, q.n FROM l LEFT JOIN LATERAL (SELECT * FROM r WHERE r.n > 0 AND r.k = l.k
        AND r.ts <= l.ts AND r.ts >= l.ts - INTERVAL 2 SECONDS ORDER BY r.ts DESC, r.n DESC LIMIT 1) q ON true WHERE l.n < 10""",
    "SELECT /*+ BRAIDED('q', 'tolerance=3 seconds') */ l.ts AS at, l.n, q.ts, q.n AS m FROM l ASOF JOIN (SELECT k, g, ts, n FROM r) q MATCH_CONDITION (l.ts < q.ts) ON l.g = q.g AND q.k = 3": """
        SELECT l.ts AS at, l.n, q.ts, q.n AS m FROM l, LATERAL (SELECT * FROM r WHERE r.g = l.g AND r.k = 3
        AND r.ts > l.ts AND r.ts <= l.ts + INTERVAL 3 SECONDS ORDER BY r.ts, r.n DESC LIMIT 1) q""",
}  # fmt: skip


@pytest.mark.parametrize("text", some(ASOF, quick=1))
def test_asof_joins_give_the_oracles_rows(
    spark: SparkSession,
    tables: tuple[Path, dict[str, pa.Table]],
    streams: dict[str, DataFrame],
    tmp_path: Path,
    text: str,
) -> None:
    batches = {name: spark.read.parquet(str(tables[0] / name)) for name in NAMES}
    wanted = oracle(ASOF[text], tables[1])
    assert len(wanted) > 20
    with tables_as_streams():
        assert in_order(braided.sql(spark, text, batches).collect()) == wanted
    frame = braided.sql(spark, text, streams, lateness="20 seconds")
    assert run_all({text: frame}, tmp_path) == {text: certain(wanted)}


def test_explain_shows_computed_keys_as_in_the_text(streams: dict[str, DataFrame], spark: SparkSession) -> None:
    frame = braided.sql(spark, QUERIES["left, by computed keys"], streams)
    shown = explain_frame(frame)
    assert "joins on l.UPPER(g) = r.UPPER(g), l.k + 1 = r.k" in shown
    assert "is computed: upper(g)" in shown


NUMBER = "CAST(concat(r.k, CASE WHEN r.g = 'g1' THEN 'x' ELSE '' END) AS INT)"
WITHIN = "r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts + INTERVAL 2 SECONDS"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT l.ts AS at, l.n, r.n AS m FROM l LEFT JOIN r ON r.g <> 'g1' AND {NUMBER} = l.k AND {WITHIN}",
        f"SELECT l.ts AS at, l.n, r.n AS m FROM l LEFT JOIN r ON {NEAR} AND r.g <> 'g1' AND {NUMBER} > 3",
        f"SELECT l.ts AS at, l.n FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.g <> 'g1' AND {NUMBER} = l.k AND {WITHIN})",
        f"SELECT l.ts AS at, l.n, r.n AS m FROM l JOIN r ON r.g <> 'g1' AND {NUMBER} = l.k AND {WITHIN}",
    ],
)
def test_conditions_of_one_stream_protect_values_that_are_computed_before_the_join(
    spark: SparkSession,
    tables: tuple[Path, dict[str, pa.Table]],
    streams: dict[str, DataFrame],
    tmp_path: Path,
    text: str,
) -> None:
    from pyspark.errors import NumberFormatException

    for name in "lr":
        spark.read.parquet(str(tables[0] / name)).createOrReplaceTempView(name)
    with pytest.raises(NumberFormatException, match="CAST_INVALID_INPUT"):
        spark.sql(f"SELECT {NUMBER} FROM r").collect()
    wanted = certain(in_order(spark.sql(text).collect()))
    assert len(wanted) > 10
    assert run_all({text: braided.sql(spark, text, streams, lateness="20 seconds")}, tmp_path) == {text: wanted}


@pytest.mark.parametrize(
    ("how", "condition"),
    [
        ("FULL", "l.k + 1 = ceil(r.x * 2)"),
        ("RIGHT", "CAST(l.k AS DECIMAL(9, 2)) = r.k + 1"),
        ("LEFT", "array(l.k, 1) = array(r.k, 1)"),
        ("LEFT ANTI", "struct(l.k, l.g) = struct(r.k, upper(lower(r.g)))"),
        ("INNER", "l.g COLLATE UTF8_LCASE = upper(r.g)"),
    ],
)
def test_computed_keys_of_every_type_give_sparks_rows(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], how: str, condition: str
) -> None:
    batches = {name: spark.read.parquet(str(tables[0] / name)) for name in "lr"}
    for name, frame in batches.items():
        frame.createOrReplaceTempView(name)
    columns = "l.n, l.ts" if how == "LEFT ANTI" else "l.n, l.ts, r.n AS m, r.ts AS seen"
    text = f"SELECT {columns} FROM l {how} JOIN r ON {condition} AND {WITHIN}"
    wanted = sorted(map(str, spark.sql(text).collect()))
    assert len(wanted) > 10
    with tables_as_streams():
        assert sorted(map(str, braided.sql(spark, text, batches).collect())) == wanted


def test_an_equality_of_times_or_with_a_table_leaves_a_computed_key_its_place(
    streams: dict[str, DataFrame], labels: pa.Table, spark: SparkSession
) -> None:
    for text in (
        f"SELECT l.k, t.label FROM l, r, t WHERE lower(l.g) = lower(r.g) AND t.k = r.k AND {WITHIN}",
        "SELECT l.k FROM l, r WHERE lower(l.g) = lower(r.g) AND l.ts = r.ts",
    ):
        assert "joins on l.LOWER(g) = r.LOWER(g)" in explain_frame(braided.sql(spark, text, streams))


@pytest.mark.parametrize("kind", ["LEFT SEMI", "LEFT ANTI", "LEFT"])
def test_fields_of_structs_are_keys_of_every_join(
    streams: dict[str, DataFrame], spark: SparkSession, kind: str
) -> None:
    nested = {
        name: frame.selectExpr("ts", "struct(k, struct(n AS m) AS inner) AS st") for name, frame in streams.items()
    }
    text = f"SELECT l.ts FROM l {kind} JOIN r ON l.st.k = r.st.k AND r.st.inner.m = l.st.inner.m AND {WITHIN}"
    assert "joins on l.st.k = r.st.k, " in explain_frame(braided.sql(spark, text, nested))


def marked(streams: dict[str, DataFrame]) -> dict[str, DataFrame]:
    return {name: frame.withWatermark("ts", "3 seconds") for name, frame in streams.items()}


WINDOWS = f"SELECT window.start AS at, l.g, count(*) AS c, count(r.n) AS m, sum(r.n) AS s FROM l LEFT JOIN r ON {NEAR} GROUP BY window(l.ts, '2 seconds'), l.g"
BY_SPARK = WINDOWS.replace("l.g,", "max(l.g) AS g,", 1)


def test_windows_after_a_left_join_are_all_there(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path
) -> None:
    """Also where the other stream is far behind: rows that match nothing wait for it, and Spark's watermark too."""
    streams = marked({
        "l": braided.files(spark, str(tables[0] / "l"), max_files=4),
        "r": braided.files(spark, str(tables[0] / "r"), max_files=1),
    })  # fmt: skip
    frames = {"merged": braided.sql(spark, WINDOWS, streams), "native": braided.sql(spark, BY_SPARK, streams)}
    assert "the aggregate after it begins in its workers" in explain_frame(frames["merged"])
    assert "only Spark can compute max of string" in explain_frame(frames["native"])
    bucket = "time_bucket(INTERVAL 2 SECONDS, l.ts)"
    text = WINDOWS.replace("window.start", bucket).replace("window(l.ts, '2 seconds')", bucket)
    wanted = certain(oracle(text.replace(" GROUP BY", " WHERE l.ts IS NOT NULL GROUP BY"), tables[1]))
    assert len(wanted) > 20
    assert run_all(frames, tmp_path) == {"merged": wanted, "native": wanted}


def test_windows_that_would_lose_rows_are_refused(spark: SparkSession, streams: dict[str, DataFrame]) -> None:
    both = marked(streams)
    with pytest.raises(
        OptionError, match=r"r\.ts: rows that match nothing wait for this time, and it has no watermark"
    ):
        braided.sql(spark, BY_SPARK, {**both, "r": streams["r"]})
    with pytest.raises(OptionError, match=r"r\.ts: .* its lateness is learned, and may grow beyond its watermark"):
        braided.sql(spark, BY_SPARK, both, lateness="auto")
    text = BY_SPARK.replace("LEFT JOIN r", "LEFT JOIN (SELECT * FROM r WHERE second(ts) < 10) r")
    with pytest.raises(OptionError, match=r"a condition on the time itself drops rows after its watermark"):
        braided.sql(spark, text, both)
    # Spark moves this one below the watermark, and a semi join waits for nothing.
    braided.sql(spark, text.replace("second(ts) < 10", "n > 3"), both)
    semi = WINDOWS.replace("LEFT JOIN", "LEFT SEMI JOIN").replace(", count(r.n) AS m, sum(r.n) AS s", "")
    braided.sql(spark, semi, {**both, "r": streams["r"]})


BAD = {
    f"SELECT l.n FROM l LEFT JOIN r ON {NEAR} AND l.g < reverse(r.g)": r"where=.*how='left' must itself find which rows match",
    "SELECT l.n FROM l FULL JOIN r ON l.k = r.n AND l.ts = r.ts": r"line 1, column 42: .* are of types int and bigint; for a FULL JOIN of streams cast one",
    "SELECT l.n FROM l LEFT ASOF JOIN r MATCH_CONDITION (l.ts <= r.ts) ON l.k = r.k": r"tolerance=None: with direction='forward' a left row could wait for ever",
    "SELECT l.n FROM l WHERE k NOT IN (SELECT k FROM r WHERE r.ts = l.ts)": r"line 1, column \d+: NOT IN over a stream is not supported, .*; write NOT EXISTS",
    "SELECT l.nope FROM l WHERE k IN (SELECT k FROM r WHERE r.ts = l.ts)": r"UNRESOLVED_COLUMN.*nope",
    f"SELECT /*+ BRAIDED('r', 'tolerance=1 second') */ l.n FROM l LEFT JOIN r ON {NEAR}": r"r is not joined by an ASOF JOIN; omit the hint",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_be_done_is_refused(spark: SparkSession, streams: dict[str, DataFrame], text: str) -> None:
    with pytest.raises(OptionError, match=BAD[text]):
        braided.sql(spark, text, streams)
