"""The state of every operator can be read without the operator: the rows that it counts, of each input as they came."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from support.contract.cases import KINDS
from support.contract.checks import lateness_of
from support.contract.driving import can_adapt, drive, plan_of, rows_of
from support.contract.histories import Way, sample
from support.contract.kinds import Case

from braided.inspection.operator_state import KIND, WORKER, OperatorState, WorkerState
from braided.operators.detect.spec import DetectSpec
from braided.runtime.bookkeeping import read_bookkeeping
from braided.runtime.store import MemoryStore

CASES = [pytest.param(case, id=f"{spec.kind}: {case.name}") for spec, kind in KINDS.items() for case in kind.cases]


def state_of(stores: list[MemoryStore]) -> OperatorState:
    """Read what is in stores, as the reader of checkpoints does."""

    def worker(store: MemoryStore) -> WorkerState:
        bookkeeping = read_bookkeeping(store.bookkeeping or b"")
        blocks = store.open(read_bookkeeping(store.bookkeeping or b""))
        return WorkerState(
            bookkeeping, lambda number: blocks.get(number, str(bookkeeping["blocks"][str(number)]), lambda _: ())[0][0]
        )

    return OperatorState(0, "op", [worker(store) for store in stores])


@pytest.mark.parametrize("restart", ["never", "files"])
@pytest.mark.parametrize("case", CASES)
def test_the_rows_in_a_state_are_those_that_the_operator_counts(case: Case, restart: str) -> None:
    spec = case.example
    history = sample(lateness_of(spec), rows=90, lag=30)
    ways = [Way((*range(0, 92, 13), 92), workers=2, restart=restart)]
    if can_adapt(plan_of(spec, adaptive=True)):
        ways.append(Way((*range(0, 92, 13), 92), workers=3, restart=restart, rerouted=True))
    for way in ways:
        runtime = drive(spec, history, way, final=False).runtime
        assert runtime is not None
        found = state_of(runtime.stores)
        assert found.schemas == [schema.remove_metadata() for schema in runtime.operator.inputs]
        summary = found.summary().to_pylist()
        for side, name in enumerate(found.inputs):
            rows = found.rows(name)
            assert rows.num_rows == sum(line["rows"] for line in summary if line["input"] == name)
            plain = Counter(map(_content, rows_of_table(rows)))
            came = set(map(_content, history.streams[side]))
            assert set(plain) <= came, "a row that never came"
            _check_times(rows, [line for line in summary if line["input"] == name], runtime.operator.times[side])
        assert sum(line["rows"] for line in summary), "the history leaves nothing in the state"
        stored = [report["last"]["stored_rows"] for report in runtime.reports]
        if getattr(spec, "memory", None) is not None:  # rows that wait to enter are not among them
            summary = [line for line in summary if line["kind"] == "stored"]
        by_worker = [sum(line["rows"] for line in summary if line["worker"] == at) for at in range(way.workers)]
        if isinstance(spec, DetectSpec):  # detectors have rows of their own
            assert all(rows <= most for rows, most in zip(by_worker, stored, strict=True))
        else:
            assert by_worker == stored


def rows_of_table(table: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in table.drop_columns([WORKER, KIND]).to_batches() for row in rows_of(batch)]


def _content(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted((name, value) for name, value in row.items()))


def _check_times(rows: pa.Table, lines: list[dict[str, Any]], time: str) -> None:
    for line in lines:
        own = rows.filter(
            pa.compute.and_(
                pa.compute.equal(rows.column(WORKER), line["worker"]),
                pa.compute.equal(rows.column(KIND).cast(pa.string()), line["kind"]),
            )
        )
        span = pa.compute.min_max(own.column(time).cast(pa.timestamp("us", tz="UTC"))).as_py()
        assert (own.num_rows, span["min"], span["max"]) == (line["rows"], line["first_time"], line["last_time"])
