"""Generated queries with joins of every kind: whatever chain, conditions and subqueries they have, the rows are DuckDB's."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.sql_streams import (
    certain,
    in_order,
    oracle,
    run_all,
    sql_streams,
    tables_as_streams,
    write_sql_streams,
)

import braided

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NAMES = ("u", "v", "w")
KINDS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
QUERIES = 120
TOGETHER = 12


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    root = tmp_path_factory.mktemp("generated-kinds")
    return root, write_sql_streams(root, NAMES, rows=40, seed=9)


def _one(draw: random.Random, alias: str) -> str:
    return draw.choice([
        f"{alias}.n > -10", f"{alias}.g <> 'g1'", f"{alias}.x BETWEEN 0.5 AND 3", f"{alias}.k IS NOT NULL",
        f"({alias}.n < 5 OR {alias}.g = 'g2')", f"{alias}.n IS NULL", f"length({alias}.g) = 2", f"coalesce({alias}.n, 3) > 0",
    ])  # fmt: skip


def _computed(draw: random.Random, one: str, other: str) -> str:
    """Return an equality of values of which one at least is computed."""
    return draw.choice([
        f"{one}.k + 1 = {other}.k", f"{one}.k = coalesce({other}.k, 3)", f"upper({one}.g) = upper({other}.g)",
        f"{one}.k - 2 = {other}.n", f"date_trunc('second', {one}.ts) = date_trunc('second', {other}.ts)",
        f"coalesce({one}.g, 'g1') = coalesce({other}.g, 'g2')", f"abs({other}.n) = abs({one}.n - 1)",
    ])  # fmt: skip


def _pair(draw: random.Random, one: str, other: str, *, first: bool = False) -> str:
    """Return the condition of a join: bounds, keys, and perhaps more on either side or on both.

    Only the `first` join has computed keys: an earlier outer join may make a value null, which is no key then.
    """
    low, high = draw.choice([(0, 2), (-1, 1), (-2, 0), (1, 3)])
    keys = draw.choice([["k"], ["k"], ["g"], ["k", "g"], ["x"]])
    parts = [f"{one}.{key} = {other}.{key}" for key in keys]
    if first and draw.random() < 0.4:
        parts = [_computed(draw, one, other)]
    parts += [f"{other}.ts >= {one}.ts + INTERVAL '{low}' SECOND", f"{other}.ts <= {one}.ts + INTERVAL '{high}' SECOND"]
    parts += draw.choice([[], [], [_one(draw, one)], [_one(draw, other)], [_one(draw, one), _one(draw, other)]])
    parts += draw.choice([[], [], [f"{one}.n < {other}.n"], [f"({one}.x > {other}.x + 1 OR {one}.n = {other}.n)"]])
    draw.shuffle(parts)
    return " AND ".join(parts)


def _query(seed: int) -> str:
    """Return a query whose first column is a time."""
    draw = random.Random(seed)
    tables = [draw.choice(NAMES) for _ in range(3)]
    seen, text = ["a"], f"{tables[0]} a"
    for alias, table in zip("bc"[: draw.choice([1, 1, 2])], tables[1:], strict=False):
        kind = draw.choice(KINDS)
        source = draw.choice(
            [f"{table} {alias}", f"(SELECT k, g, ts, n + 1 AS n, x FROM {table} WHERE n < 15) {alias}"]
        )
        text += f" {kind} {source} ON {_pair(draw, draw.choice(seen), alias, first=alias == 'b')}"
        if "SEMI" not in kind and "ANTI" not in kind:
            seen.append(alias)
    where = [_one(draw, draw.choice(seen)) for _ in range(draw.choice([0, 0, 1, 2]))]
    if draw.random() < 0.3:
        # A subquery over the name of an input that the query itself has too.
        name = draw.choice(["e", "b"])
        where.append(
            f"{draw.choice(['', 'NOT '])}EXISTS (SELECT 1 FROM {draw.choice(NAMES)} {name} WHERE {_pair(draw, 'a', name)})"
        )
    if where:
        text += " WHERE " + " AND ".join(where)
    at = "coalesce(" + ", ".join(f"{alias}.ts" for alias in seen) + ", NULL)"
    columns = [
        f"{alias}.{name} AS {alias}_{name}" for alias in seen for name in draw.sample(["k", "g", "ts", "n", "x"], 3)
    ]
    return f"SELECT {at} AS at, {', '.join(columns)} FROM {text}"


@pytest.mark.parametrize("first", range(0, QUERIES, TOGETHER))
def test_generated_queries_are_planned_as_the_oracle_reads_them(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], first: int
) -> None:
    batches = {name: spark.read.parquet(str(tables[0] / name)) for name in NAMES}
    for seed in range(first, first + TOGETHER):
        text = _query(seed)
        with tables_as_streams():
            frame = braided.sql(spark, text, batches)
        assert in_order(frame.collect()) == oracle(text, tables[1]), text


@pytest.mark.parametrize("first", range(0, 12, 3))
def test_generated_queries_over_streams_give_the_oracles_rows(
    spark: SparkSession, tables: tuple[Path, dict[str, pa.Table]], tmp_path: Path, first: int
) -> None:
    streams = sql_streams(spark, tables[0], NAMES)
    texts = [_query(seed) for seed in range(first, first + 3)]
    frames = {text: braided.sql(spark, text, streams, lateness="20 seconds") for text in texts}
    found = run_all(frames, tmp_path)
    for text in texts:
        assert found[text] == certain(oracle(text, tables[1])), text


def test_most_generated_queries_have_rows(tables: tuple[Path, dict[str, pa.Table]]) -> None:
    empty = [seed for seed in range(QUERIES) if not oracle(_query(seed), tables[1])]
    assert len(empty) < QUERIES // 8
