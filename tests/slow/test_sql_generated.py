"""Generated queries: whatever joins, filters, projections and groups they have, the rows are DuckDB's."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import braided

ROWS = 120
TABLES = ("calls", "alerts", "cells")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    root = tmp_path_factory.mktemp("generated")
    numbers = np.random.default_rng(5)
    found = {}
    for name in TABLES:
        (root / name).mkdir()
        parts = []
        for number in range(4):
            start = number * 6_000_000 + (200_000_000 if number >= 2 else 0)
            times = start + numbers.integers(0, 8_000_000, ROWS)
            part = pa.table({
                "k": pa.array([None if n == 0 else int(n) for n in numbers.integers(0, 12, ROWS)], pa.int32()),
                "g": pa.array([None if n == 3 else f"g{n}" for n in numbers.integers(0, 5, ROWS)]),
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "n": numbers.integers(-20, 20, ROWS),
                "x": numbers.integers(0, 64, ROWS) / 4,
            })  # fmt: skip
            path = root / name / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
            parts.append(part)
        found[name] = pa.concat_tables(parts)
    return root, found


def _query(seed: int) -> tuple[str, str, bool]:
    """Return a query for Spark and for DuckDB, and whether it groups."""
    draw = random.Random(seed)
    count = draw.choice([2, 2, 2, 3])
    inputs, aliases = [], "abc"[:count]
    for alias in aliases:
        table = draw.choice(TABLES)
        if draw.random() < 0.3:
            inputs.append(f"(SELECT k, g, ts, n + 1 AS n, x FROM {table} WHERE {_filter(draw, '')}) {alias}")
        else:
            inputs.append(f"{table} {alias}")
    text = inputs[0]
    for number in range(1, count):
        partner = aliases[draw.randrange(number)]
        text += f" JOIN {inputs[number]} ON {_condition(draw, partner, aliases[number])}"
    where = [_filter(draw, f"{draw.choice(aliases)}.") for _ in range(draw.choice([0, 0, 1, 2]))]
    if where:
        text += " WHERE " + " AND ".join(where)
    if draw.random() < 0.4:
        # Windows are over a time of the last join: others lose their watermark there.
        alias, size = draw.choice([partner, aliases[-1]]), draw.choice([1, 2, 5])
        keys = [f"{draw.choice(aliases)}.{name}" for name in draw.sample(["g", "k"], draw.choice([0, 1, 2]))]
        keys += draw.choice([[], [], [f"coalesce({draw.choice(aliases)}.g, 'none')"]])
        values = [
            "count(*) AS v0", f"sum({draw.choice(aliases)}.n) AS v1", f"count({draw.choice(aliases)}.g) AS v2",
            f"max({draw.choice(aliases)}.n) AS v3", f"avg({draw.choice(aliases)}.k) AS v4", f"sum({draw.choice(aliases)}.x) AS v5",
            f"sum({aliases[-2]}.n * {aliases[-1]}.n) AS v6", f"count(*) FILTER (WHERE {draw.choice(aliases)}.n > 0) AS v7",
            f"bool_and({draw.choice(aliases)}.n < 15) AS v8", f"max(CASE WHEN {draw.choice(aliases)}.g = 'g2' THEN 2 ELSE 1 END) AS v9",
        ]  # fmt: skip
        chosen = draw.sample(values, draw.randint(1, 5))
        named = [f"{key} AS key{at}" for at, key in enumerate(keys)]
        having = draw.choice(["", "", " HAVING count(*) > 2"])
        ours = f"SELECT {', '.join(['window.start AS s', *named, *chosen])} FROM {text} GROUP BY {', '.join([f'''window({alias}.ts, '{size} seconds')''', *keys])}{having}"
        theirs = f"SELECT {', '.join([f'time_bucket(INTERVAL {size} SECONDS, {alias}.ts) AS s', *named, *chosen])} FROM {text} GROUP BY {', '.join([f'time_bucket(INTERVAL {size} SECONDS, {alias}.ts)', *keys])}{having}"
        return ours, theirs, True
    columns = [
        f"{draw.choice(aliases)}.{name} AS c{at}"
        for at, name in enumerate(draw.choices(["k", "g", "ts", "n", "x"], k=draw.randint(1, 4)))
    ]
    extra = draw.choice(
        [
            [],
            [f"CASE WHEN {aliases[0]}.n > {aliases[1]}.n THEN 'more' ELSE {aliases[0]}.g END AS e"],
            [f"{aliases[0]}.n * 2 + {aliases[1]}.n AS e"],
        ]
    )
    both = f"SELECT {', '.join([*columns, *extra])} FROM {text}"
    return both, both, False


def _filter(draw: random.Random, prefix: str) -> str:
    return draw.choice([
        f"{prefix}n > -10", f"{prefix}g <> 'g1'", f"{prefix}x BETWEEN 2 AND 14", f"{prefix}k IS NOT NULL",
        f"({prefix}n < 5 OR {prefix}g = 'g2')", f"{prefix}k IN (1, 2, 3, 4, 5, 6, 7)", f"NOT {prefix}n = 3", f"{prefix}g LIKE 'g%'",
    ])  # fmt: skip


def _condition(draw: random.Random, one: str, other: str) -> str:
    low, high = draw.choice([(0, 2), (-1, 1), (-2, 0), (1, 2)])
    bounds = draw.choice([
        f"{other}.ts BETWEEN {one}.ts + INTERVAL '{low}' SECOND AND {one}.ts + INTERVAL '{high}' SECOND",
        f"{other}.ts >= {one}.ts + INTERVAL '{low}' SECOND AND {other}.ts - INTERVAL '{high}' SECOND < {one}.ts",
        f"{one}.ts + INTERVAL '{high}' SECOND >= {other}.ts AND {one}.ts <= {other}.ts - INTERVAL '{low}' SECOND",
    ])  # fmt: skip
    keys = draw.choice(["k", "k", "g", "both", "none"])
    parts = [bounds]
    if keys in ("k", "both"):
        parts.insert(draw.randrange(2), f"{one}.k = {other}.k")
    if keys in ("g", "both"):
        parts.insert(draw.randrange(2), f"{other}.g = {one}.g")
    if keys == "none" or draw.random() < 0.4:
        parts.append(draw.choice([f"{one}.n < {other}.n - 12", f"{one}.x > {other}.x + 6", f"{one}.n + {other}.n = 3"]))
    return " AND ".join(parts)


QUERIES = 60
TOGETHER = 5


@pytest.mark.parametrize("first", range(0, QUERIES, TOGETHER))
def test_generated_queries_give_the_oracles_rows(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path, first: int
) -> None:
    """Several queries run at a time: most of a small batch is waiting, for Spark's planning and commits."""
    running = []
    for seed in range(first, first + TOGETHER):
        ours, theirs, groups = _query(seed)
        frame = _made(spark, tables[0], seed, ours, groups)
        folder = tmp_path / str(seed)
        query = braided.write_files(frame, folder / "out", checkpoint=folder / "c", trigger="available now")
        running.append((query, folder / "out", ours, theirs, groups))
    for query, out, ours, theirs, groups in running:
        query.awaitTermination()
        wanted, found = _oracle(theirs, tables[1]), _read(out)
        if groups:  # the last windows close with rows that never come
            wanted, found = ([row for row in rows if row[0].timestamp() < 100] for rows in (wanted, found))
        assert found == wanted, ours
    shutil.rmtree(tmp_path)


def _made(spark: SparkSession, root: Path, seed: int, text: str, groups: bool) -> DataFrame:
    """Return a query's rows; the lateness of its streams is an option in one half, and their watermark in the other."""
    # Windows close batch by batch; rows alone need only meet what is stored.
    streams = {name: braided.files(spark, str(root / name), max_files=1 if groups else 2) for name in TABLES}
    delay = "3 seconds" if groups else "20 seconds"
    if seed % 2:
        return braided.sql(spark, text, {name: each.withWatermark("ts", delay) for name, each in streams.items()})
    return braided.sql(spark, text, streams, lateness=delay)


def test_most_generated_queries_have_rows(tables: tuple[Path, dict[str, pa.Table]]) -> None:
    """Two empty results are equal too, and show little."""
    empty = [seed for seed in range(QUERIES) if not _oracle(_query(seed)[1], tables[1])]
    assert len(empty) < QUERIES // 10
    assert sum(_query(seed)[2] for seed in range(QUERIES)) > QUERIES // 4


def _oracle(text: str, tables: dict[str, pa.Table]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, table in tables.items():
            database.register(name, table)
        return _normal(database.sql(text).fetchall())


def _read(out: Path) -> list[tuple[Any, ...]]:
    files = braided.topic(out).files()
    if not files:
        return []
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        return _normal(database.execute("from read_parquet(?)", [files]).fetchall())


def _normal(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    plain = [
        tuple(round(v, 6) if isinstance(v, float) else int(v) if type(v).__name__ == "Decimal" else v for v in row)
        for row in rows
    ]
    return sorted(plain, key=repr)
