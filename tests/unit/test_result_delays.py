"""Rows that leave an outer or as-of join early must not make those late that still wait, for an operator after it."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from braided.local.runtime import LocalRuntime
from braided.operators.asof.spec import AsofSpec
from braided.operators.join.spec import JoinSpec
from braided.operators.registry import build
from braided.operators.spec import Spec
from braided.operators.stream import Stream

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.string()), ("j", pa.string()), ("ts", pa.timestamp("us")), ("id", pa.int64())])
FIRST: dict[str, Spec] = {
    "left": JoinSpec(on="k", time="ts", within="2 seconds", how="left", lateness="3 seconds"),
    "left_anti": JoinSpec(on="k", time="ts", within="2 seconds", how="left_anti", lateness="3 seconds"),
    "asof": AsofSpec(on="k", time="ts", tolerance="2 seconds", lateness="3 seconds"),
}


def batch(rows: list[tuple[str | None, str, float, int]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    columns[2] = tuple(int(at * SECOND) for at in columns[2])
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )


@pytest.mark.parametrize("kind", FIRST)
def test_rows_without_a_key_do_not_overtake_those_that_wait(kind: str) -> None:
    """The right stream is minutes behind, so most left rows wait for it. No row of any stream is late."""
    first = build(FIRST[kind], [Stream("left", SCHEMA), Stream("right", SCHEMA)])
    middle = first.as_stream("left")
    second = build(
        JoinSpec(on="j", time="ts", within="1 second", suffixes=("", "_3")), [middle, Stream("right", SCHEMA)]
    )
    runtimes = LocalRuntime(first.operator, 2), LocalRuntime(second.operator, 2)
    found: Counter[tuple[int, int]] = Counter()
    for number in range(12):
        seconds = range(60 * number, 60 * number + 60)
        left = [(None if at % 5 == 4 else f"k{at % 7}", f"j{at % 7}", at, at) for at in seconds]
        behind = 360 * (number // 6) + number % 6 if number < 9 else 400 + 150 * (number - 9)
        right = [("none", "x", behind + at * (0.01 if number < 9 else 1), at) for at in range(60)]
        third = [("t", f"j{at % 7}", at, at) for at in seconds]
        final = number == 11
        results = runtimes[0].run_batch([(0, [batch(left)]), (1, [batch(right)])], final=final)
        pieces = [pa.RecordBatch.from_arrays(piece.columns, schema=middle.schema) for piece in results]
        for piece in runtimes[1].run_batch([(0, pieces), (1, [batch(third)])], final=final):
            found.update(zip(piece["id"].to_pylist(), piece["id_3"].to_pylist(), strict=True))
    assert found == Counter({(at, at): 1 for at in range(720)})
