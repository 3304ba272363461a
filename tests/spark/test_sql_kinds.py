"""Outer, semi, anti and as-of joins in SQL: DuckDB's rows over the finished streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.sql_streams import oracle, run_all, sql_streams, write_sql_streams

import braided
from braided.errors import OptionError
from braided.spark.progress import explain_frame

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
        SELECT l.ts AS at, l.k, l.n FROM l WHERE (k, g) IN (SELECT k, g FROM r WHERE r.ts BETWEEN l.ts AND l.ts + INTERVAL 3 SECONDS)
        AND NOT EXISTS (SELECT 1 FROM l AS o WHERE o.k = l.k AND o.n > l.n AND o.ts > l.ts - INTERVAL 1 SECOND AND o.ts <= l.ts)""",
    "a left join after an inner join, of a subquery and a common table expression": """
        WITH few AS (SELECT k AS key, ts AS t, n FROM s WHERE n < 10)
        SELECT * FROM (SELECT ts AS at, k, n FROM l WHERE n > -15) p
        JOIN r ON p.k = r.k AND r.ts BETWEEN p.at AND p.at + INTERVAL 1 SECOND
        LEFT JOIN few ON few.key = r.k AND few.t BETWEEN r.ts - INTERVAL 1 SECOND AND r.ts AND few.n > p.n""",
    "two left joins, the second by the nulls of the first, and a table": f"""
        SELECT l.ts AS at, l.k, r.k AS rk, s.k AS sk, s.n, t.label FROM l LEFT JOIN r ON {NEAR} AND r.n > 5
        LEFT JOIN s ON s.k = r.k AND s.ts BETWEEN r.ts AND r.ts + INTERVAL 1 SECOND
        LEFT JOIN t ON t.k = s.k WHERE s.n IS NULL OR s.n > 0""",
    "an inner join after a left join": f"""
        SELECT l.ts AS at, l.n, r.n AS m, s.n AS o FROM l LEFT JOIN r ON {NEAR} AND r.n > 5
        JOIN s ON s.k = l.k AND s.ts BETWEEN l.ts AND l.ts + INTERVAL 1 SECOND AND coalesce(r.n, 0) < s.n""",
}  # fmt: skip
LABELS = {"k": list(range(1, 8)), "label": list("abcdefg")}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    root = tmp_path_factory.mktemp("kinds")
    return root, write_sql_streams(root, NAMES, rows=60, seed=3)


@pytest.fixture
def streams(spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]]) -> dict[str, DataFrame]:
    return sql_streams(spark, tables[0], NAMES)


def test_every_kind_of_join_gives_the_oracles_rows(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], streams: dict[str, DataFrame], tmp_path: Path
) -> None:
    import pyarrow as pa

    labels = pa.table({"k": pa.array(LABELS["k"], pa.int32()), "label": LABELS["label"]})
    spark.createDataFrame(labels.to_pylist(), "k int, label string").createOrReplaceTempView("t")
    frames = {what: braided.sql(spark, text, streams, lateness="20 seconds") for what, text in QUERIES.items()}
    for what, rows in run_all(frames, tmp_path).items():
        wanted = oracle(QUERIES[what], {**tables[1], "t": labels})
        assert len(wanted) > 20, what
        assert rows == wanted, what
