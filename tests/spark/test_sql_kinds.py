"""Outer, semi, anti and as-of joins in SQL: DuckDB's rows over the finished streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.profiles import some
from support.sql_streams import certain, in_order, oracle, run_all, sql_streams, tables_as_streams, write_sql_streams

import braided

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("l", "r", "s")
NEAR = "l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL 1 SECOND AND l.ts + INTERVAL 2 SECONDS"

QUERIES = {
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
