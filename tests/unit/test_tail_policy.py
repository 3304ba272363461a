"""TAIL against plain lists: a full buffer stores nothing until the window takes rows out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import braided

ROWS, CAPACITY, WINDOW = 2000, 30, 200


def table(side: int) -> pa.Table:
    rng = np.random.default_rng(side)
    return pa.table(
        {
            "k": rng.integers(0, 6, ROWS),
            "ts": pa.array(2 * np.arange(ROWS) + side, pa.timestamp("us")),
            "id": np.arange(ROWS),
        }
    )


def expected(left: pa.Table, right: pa.Table) -> list[tuple[int, int]]:
    keys = [left["k"].to_pylist(), right["k"].to_pylist()]
    stored: list[tuple[int, int, int]] = []
    pairs = []
    for number in range(2 * ROWS):
        side, at = number % 2, number // 2
        stored = [row for row in stored if number - row[0] <= WINDOW]
        for _, other, row in stored:
            if other != side and keys[other][row] == keys[side][at]:
                pairs.append((at, row) if side == 0 else (row, at))
        if len(stored) < CAPACITY:
            stored.append((number, side, at))
    return sorted(pairs)


@pytest.mark.parametrize("batch_rows", [100_000, 313])
def test_a_full_buffer_refuses_newcomers_whatever_the_batches(batch_rows: int) -> None:
    left, right = table(0), table(1)
    joined = braided.local.join(
        left, right, on="k", time="ts", within=f"{WINDOW} us", lateness="0 seconds", memory=CAPACITY, evict="tail",
        batch_rows=batch_rows,
    ).table  # fmt: skip
    assert sorted(zip(joined["id"].to_pylist(), joined["id_right"].to_pylist(), strict=True)) == expected(left, right)


def test_a_group_of_joins_takes_it() -> None:
    left, right = table(0), table(1)
    joins = [braided.Join("one", left="a", right="b", on="k", within=f"{WINDOW} us")]
    one = braided.local.join_group(joins, streams={"a": left, "b": right}, time="ts", memory=CAPACITY, evict="tail")
    pairs = one.tables["one"]
    assert sorted(zip(pairs["id"].to_pylist(), pairs["id_right"].to_pylist(), strict=True)) == expected(left, right)
