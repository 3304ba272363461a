"""Joins of windows: with an aggregate of the same windows, which needs no join, and by whole windows, which is Spark's."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import braided
from braided.spark.progress import explain_frame

ROWS, FILES, SPAN = 300, 4, 20_000_000
COUNTED = """SELECT window(ts, '10 seconds', '5 seconds') AS w, phone, cell, count(*) AS n FROM calls
    GROUP BY window(ts, '10 seconds', '5 seconds'), phone, cell"""
TEXT = f"""
    SELECT 'most' AS kind, unix_millis(b.w.start) AS s, b.phone, b.cell, b.n FROM ({COUNTED}) b
    JOIN (SELECT w, phone, max(n) AS most FROM ({COUNTED}) GROUP BY w, phone) m
    ON b.w = m.w AND b.phone = m.phone AND b.n >= m.most
    UNION ALL
    SELECT 'both' AS kind, unix_millis(c.w.start) AS s, c.phone, 0 AS cell, c.n + a.n AS n
    FROM (SELECT window AS w, phone, count(*) AS n FROM calls GROUP BY window(ts, '10 seconds'), phone) c
    JOIN (SELECT window AS w, phone, count(*) AS n FROM alerts GROUP BY window(ts, '10 seconds'), phone) a
    ON c.phone = a.phone AND c.w = a.w"""
ORACLE = """
    WITH x AS (SELECT s, phone, cell, count(*) AS n FROM (
        SELECT unnest([(epoch_ms(ts) // 5000 - i) * 5000 for i in range(2)]) AS s, phone, cell FROM calls) GROUP BY ALL),
    c AS (SELECT epoch_ms(ts) // 10000 * 10000 AS s, phone, count(*) AS n FROM calls GROUP BY ALL),
    a AS (SELECT epoch_ms(ts) // 10000 * 10000 AS s, phone, count(*) AS n FROM alerts GROUP BY ALL)
    SELECT 'most', s, phone, cell, n FROM (SELECT *, max(n) OVER (PARTITION BY s, phone) AS most FROM x)
    WHERE n >= most AND phone IS NOT NULL
    UNION ALL SELECT 'both', s, c.phone, 0, c.n + a.n FROM c JOIN a USING (s, phone)"""


@pytest.mark.slow
def test_joins_of_windows_give_the_oracles_rows(spark: SparkSession, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    streams, tables = {}, {}
    for name in ("calls", "alerts"):
        parts = []
        (tmp_path / name).mkdir()
        for number in range(FILES):
            times = np.sort(random.integers(number * SPAN, (number + 1) * SPAN, ROWS))
            phones = [None if phone == 0 else phone for phone in random.integers(0, 6, ROWS).tolist()]
            part = pa.table({
                "phone": pa.array(phones, pa.int64()),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "cell": random.integers(0, 4, ROWS),
            })  # fmt: skip
            parts.append(part)
            path = tmp_path / name / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
        frame = spark.readStream.schema("phone long, ts timestamp, cell long").option("maxFilesPerTrigger", 1)
        streams[name] = frame.parquet(str(tmp_path / name)).withWatermark("ts", "0 seconds")
        tables[name] = pa.concat_tables(parts)
    result = braided.sql(spark, TEXT, streams)
    assert explain_frame(result).splitlines() == [
        "no braided join in this DataFrame",
        "b and m are computed together, without a join: m is an aggregate of the rows of b",
        "a is joined by whole windows, and Spark runs this join",
    ]
    query = result.writeStream.format("memory").queryName("windows").option("checkpointLocation", str(tmp_path / "c"))
    query.trigger(availableNow=True).start().awaitTermination()
    found = sorted(map(tuple, spark.table("windows").collect()))
    closed = max(row[1] for row in found)
    assert closed >= (FILES - 1) * SPAN // 1000 - 20_000
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        truth = sorted(database.sql(ORACLE).fetchall())
    for kind in ("most", "both"):
        last = max(row[1] for row in found if row[0] == kind)
        assert [row for row in found if row[0] == kind] == [row for row in truth if row[0] == kind and row[1] <= last]
