"""The promises that every operator keeps, one function each; `test_contract.py` tries them on all there are."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from braided.errors import StateError
from braided.local.runtime import LocalRuntime
from braided.operators.spec import Spec
from braided.runtime.store import MemoryStore
from braided.time.resolve import least
from support.contract.cases import KINDS
from support.contract.driving import FINAL, Host, Ran, drive, plan_of, reloaded, rows_of, steps, stored_bytes, traced
from support.contract.histories import SCHEMA, History, Row, Tasks, Way, batches, record_batch, sample
from support.contract.kinds import Bag, Change, Kind, fixed

YEARS = 3 * 365 * 86_400_000_000
MOST_ROWS = 1 << 18
MOST_BYTES = 16 << 20
"""What a piece of results may have at most."""


def kind_of(spec: Spec) -> Kind:
    """Return what is known of a spec's kind."""
    return KINDS[type(spec)]


def bag_of(spec: Spec, ran: Ran) -> Bag:
    """Return the results as the oracle has them."""
    kind = kind_of(spec)
    return Counter(kind.content(spec, row) for row in ran.rows)


def lines_of(spec: Spec, ran: Ran) -> dict[Any, list[Any]]:
    """Return the results of each group within which order counts, in their order; nothing where none counts."""
    kind = kind_of(spec)
    out: dict[Any, list[Any]] = {}
    for row in ran.rows:
        if kind.line is not None:
            out.setdefault(kind.line(spec, row), []).append(row)
    return out


def lateness_of(spec: Spec) -> list[int]:
    """Return the lateness of each input that rows may count on."""
    return [least(rule) for rule in plan_of(spec).operator.lateness]


def check_result(spec: Spec, history: History, way: Way) -> Ran:
    """All rows are in time: the result is the oracle's, or a part of it, in order, and the report is right."""
    kind, streams = kind_of(spec), history.streams
    ran = drive(spec, history, way)
    found, wanted = bag_of(spec, ran), kind.wanted(spec, streams)
    assert not found - wanted, "a wrong or double row"
    if kind.whole(spec, history):
        assert not wanted - found, "a row is missing"
    for line in lines_of(spec, ran).values():
        _check_order(spec, line)
        assert not any(row.get("late") for row in line), "a row in time is called late"
    memory = getattr(spec, "memory", None)
    assert not isinstance(memory, int) or ran.most_stored <= memory, "more rows than the budget has room for"
    _check_report(spec, history, way, ran)
    return ran


def _check_order(spec: Any, line: list[Any]) -> None:
    """Rows that are not late come in order of time, and are numbered without gaps where they have numbers."""
    times = [row[spec.time] for row in line if not row.get("late")]
    assert times == sorted(times), "out of order"
    if line and "seq" in line[0]:
        assert [row["seq"] for row in line] == list(range(len(line)))


def _check_report(spec: Any, history: History, way: Way, ran: Ran) -> None:
    report = ran.report
    assert report["query"]["results"] == len(ran.rows), "the report counts other results"
    for side, (rows, told) in enumerate(zip(history.streams, report["streams"], strict=True)):
        timed = [row for row in rows if row[spec.time_of(side)] is not None]
        assert told["rows"] == len(rows)
        assert told["null_times"] == len(rows) - len(timed)
        if hasattr(spec, "lateness") and fixed(spec):  # else some rows may set no clock
            times = [row[spec.time_of(side)] for row in timed]
            assert told["clock"] == max(times, default=None), "the clock is not the largest time"
        if getattr(spec, "shed", None) is None:
            kind = kind_of(spec)
            assert told["null_keys"] == sum(kind.null_key(spec, side, row) for row in timed)
        if way.shuffle is None and way.tasks == 1:
            assert told["late"] == 0, "a row in time is counted as late"


def check_cuts(spec: Spec, history: History, way: Way, other: Way) -> None:
    """Two ways to run a history with as many workers give the same rows, and the same order where order counts."""
    ran, again = check_result(spec, history, way), check_result(spec, history, other)
    assert bag_of(spec, ran) == bag_of(spec, again), "the result depends on how the stream is cut"
    assert lines_of(spec, ran) == lines_of(spec, again), "the order depends on how the stream is cut"


def check_late(spec: Spec, history: History, way: Way) -> None:
    """Some rows come too late: the result is a part of the oracle's, what is in order stays so, and loss is counted."""
    kind = kind_of(spec)
    ran = drive(spec, history, way)
    found, wanted = bag_of(spec, ran), kind.wanted(spec, history.streams)
    if kind.of_parts(spec):
        assert not found - wanted, "a wrong or double row"
    for line in lines_of(spec, ran).values():
        _check_order(spec, line)
    if kind.keeps_late(spec):
        assert found == wanted, "a row is missing"
    if kind.whole(spec, history) and found != wanted:
        assert sum(stream["late"] for stream in ran.report["streams"]) > 0, "rows were lost in silence"


def check_again(spec: Spec, history: History, way: Way) -> None:
    """A batch that runs again, with packets in another order and without a cache, repeats itself to the byte."""
    for host, tasks, final in steps(history, way, spec):
        traces = []
        for plan, backwards in zip(host.plans, (False, True), strict=True):
            runtime = LocalRuntime(plan.operator, stores=reloaded(host.runtime.stores))
            runtime.table = host.runtime.table
            traces.append(traced(runtime, tasks, final=final, moment=host.moment, backwards=backwards))
        for part in ("packets", "results", "state"):
            assert getattr(traces[0], part) == getattr(traces[1], part), f"a batch that runs again has other {part}"


def trace_of(spec: Spec) -> str:
    """Return a digest of all that a history which is always the same leaves behind."""
    history = sample(lateness_of(spec))
    host = Host(spec, Way((0, 25, 45, 62), tasks=2, workers=2))
    todo = [*batches(history, host.way, host.plans[0].operator.inputs), FINAL]
    traces = [traced(host.runtime, tasks, final=tasks is FINAL, moment=host.moment) for tasks in todo]
    return hashlib.sha256(repr(traces).encode()).hexdigest()


def check_damage(spec: Spec, tries: int) -> int:
    """Damaged state gives an error that says so, or the right result where it is not read; return how many errors."""
    way = Way((0, 25, 45, 62), workers=2)
    history = sample(lateness_of(spec))
    host = Host(spec, way)
    todo = [*batches(history, way, host.plans[0].operator.inputs), FINAL]
    for tasks in todo[:2]:
        host.run(tasks)

    def rest(stores: list[MemoryStore]) -> list[Row]:
        runtime = LocalRuntime(host.plans[1].operator, stores=stores)
        runtime.table = host.runtime.table
        return [
            row
            for tasks in todo[2:]
            for piece in runtime.run_batch(tasks, final=tasks is FINAL, moment=host.moment)
            for row in rows_of(piece)
        ]

    right = rest(reloaded(host.runtime.stores))
    errors = []
    for what, stores in _damaged(host.runtime.stores, tries):
        try:
            assert rest(stores) == right, f"a wrong result: {what}"
        except StateError as error:
            errors.append(str(error))
    for said in errors:
        assert re.search("is (damaged|missing); restore the checkpoint", said)
    return len(errors)


def _damaged(stores: list[MemoryStore], tries: int) -> Iterator[tuple[str, list[MemoryStore]]]:
    """Yield the state with one thing wrong at a time."""
    rng = np.random.default_rng(0)
    for worker, store in enumerate(stores):
        assert store.bookkeeping is not None
        for what, content in _spoiled(store.bookkeeping, 3 * tries, rng):
            bad = reloaded(stores)
            bad[worker].bookkeeping = content
            yield f"book of worker {worker} {what}", bad
        others = list(store.blocks.values())
        for block, whole in list(store.blocks.items())[:: 1 + len(others) // (8 * tries)]:
            swapped = [("swapped", other) for other in others if other != whole][:tries]
            for what, content in (*_spoiled(whole, tries, rng), *swapped):
                bad = reloaded(stores)
                bad[worker].blocks[block] = content
                yield f"block {block} of worker {worker} {what}", bad
            bad = reloaded(stores)
            del bad[worker].blocks[block]
            yield f"block {block} of worker {worker} missing", bad


def _spoiled(whole: bytes, tries: int, rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    for _ in range(tries if whole else 0):
        at, bit = int(rng.integers(len(whole))), int(rng.integers(8))
        yield f"with bit {bit} of byte {at} flipped", whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :]
        length = int(rng.integers(len(whole)))
        yield f"cut to {length} bytes", whole[:length]
    yield "and more after it", whole + b"\0"


def check_change(spec: Spec, change: Change) -> None:
    """A changed option is refused by its name before a row leaves, or accepted and the result is right."""
    way = Way((0, 25, 62), workers=2)
    history = sample(lateness_of(spec))
    host, changed = Host(spec, way), change.apply(spec)
    todo = [*batches(history, way, host.plans[0].operator.inputs), FINAL]
    rows = [row for piece in host.run(todo[0]) for row in rows_of(piece)]
    after = Host(changed, way)
    after.runtime.stores = reloaded(host.runtime.stores)
    after.batch = 1
    before = [(store.bookkeeping, dict(store.blocks)) for store in after.runtime.stores]
    if change.refused is not None:
        with pytest.raises(
            StateError,
            match=rf"\b{change.refused} was .* and is .*; restore|restore the old values of {change.refused}=",
        ):
            next(after.runtime.run_batch(todo[1], moment=after.moment))
        assert [(store.bookkeeping, dict(store.blocks)) for store in after.runtime.stores] == before, (
            "state was written"
        )
        return
    kind = kind_of(spec)
    bag = Counter(kind.content(spec, row) for row in rows)
    for tasks in todo[1:]:
        for piece in after.run(tasks, final=tasks is FINAL):
            bag.update(kind.content(changed, row) for row in rows_of(piece))
    wanted = kind.wanted(spec, history.streams)
    assert not bag - wanted, "a wrong or double row"
    if kind.whole(spec, history):
        assert bag == wanted, "a row is missing"


def check_other_columns(spec: Spec) -> None:
    """State of other columns is refused."""
    host = Host(spec, Way((0, 0), workers=2))
    host.run(FINAL)
    other = SCHEMA.set(SCHEMA.get_field_index("id"), pa.field("id", pa.int32()))
    after = Host(spec, Way((0, 0), workers=2), schema=other)
    after.runtime.stores = host.runtime.stores
    with pytest.raises(StateError, match=r"other options: .* was .*id int64.* and is .*id int32.*; restore them"):
        after.run(FINAL)


def check_other_workers(spec: Spec) -> None:
    """State of another number of workers, or of another worker, is refused."""
    host = Host(spec, Way((0, 0), workers=2))
    host.run(FINAL)
    more = Host(spec, Way((0, 0), workers=3))
    more.runtime.stores[:2] = host.runtime.stores
    with pytest.raises(
        StateError, match=r"written with 2 workers, but this query has 3; set spark\.sql\.shuffle\.partitions=2"
    ):
        more.run(FINAL)
    host.runtime.stores.reverse()
    with pytest.raises(StateError, match="worker 0 has the state of worker 1; restore"):
        host.run(FINAL)


def check_bounded_state(spec: Spec, batches_: int, pace: int, *, broken: bool = False) -> None:
    """State stops growing once time has passed the window, whatever keys come, and with a device years ahead.

    pace : how far time goes on in a batch, in microseconds. broken : whether a row in each batch is years ahead.
    """
    operator = plan_of(spec).operator
    host = Host(spec, Way((), workers=1 if broken else 2, restart="lost"))
    levels: list[tuple[int, ...]] = []
    for number in range(batches_):
        host.run(_steady(number, operator.inputs, pace, broken=broken))
        stores = host.runtime.stores
        rows = sum(report["last"]["stored_rows"] for report in host.runtime.reports)
        records = sum(len(store.bookkeeping or b"") for store in stores)
        levels.append((rows, sum(len(store.blocks) for store in stores), records, stored_bytes(host.runtime)))
    third = batches_ // 3
    rows_, blocks, books_, sizes = zip(*levels, strict=True)
    for what, values, room in (("rows", rows_, 0.2), ("blocks", blocks, 0.2), ("bytes of bookkeeping", books_, 0.2)):
        before, after = max(values[third : 2 * third]), max(values[2 * third :])
        assert after <= before * (1 + room) + 2, f"{what} of state grow: {values}"
    # What a policy has learned takes more bytes with time, up to a limit, and another policy takes more at once.
    assert max(sizes[2 * third :]) < 2.5 * max(sizes[:third]), f"bytes of state grow: {sizes}"


def _steady(number: int, schemas: tuple[pa.Schema, ...], pace: int, *, broken: bool, rows: int = 12) -> Tasks:
    """Return a batch of streams that go on for ever; half of their keys never come again."""
    out = []
    for at in range(rows):
        key = at % 5 if at % 2 else 100 + number * rows + at
        time = number * pace + at * pace // rows + (YEARS if broken and at == 7 else 0)
        out.append({"k": key, "s": f"text {key}", "t": time, "u": time, "id": number * rows + at})
    return [(side, [record_batch(out, schema)]) for side, schema in enumerate(schemas)]


def check_pieces(spec: Spec, *, wide: bool) -> None:
    """Results leave in pieces of bounded size, however many there are in a batch and however large rows are."""
    crowded, many, few = kind_of(spec).crowded(spec)
    count = few if wide else many
    moment = pa.array(np.zeros(count, np.int64), pa.timestamp("us"))
    texts = pa.array(["x" * 20_000 if wide else "x"] * count)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(np.zeros(count, np.int64)), texts, moment, moment, pa.array(np.arange(count) % 8)], schema=SCHEMA
    )
    host = Host(crowded, Way(()))
    rows = size = 0
    everything = [(side, [batch]) for side in range(len(host.plans[0].operator.inputs))]
    for tasks in (everything, FINAL):
        for piece in host.runtime.run_batch(tasks, final=tasks is FINAL, moment=host.moment):
            assert piece.num_rows <= MOST_ROWS, "a piece of too many rows"
            assert piece.nbytes <= MOST_BYTES, "a piece of too many bytes"
            rows, size = rows + piece.num_rows, size + piece.nbytes
    assert size > 2 * MOST_BYTES if wide else rows > MOST_ROWS, "too few results to say"
