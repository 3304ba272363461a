"""The ordering stage by itself: any order in, event order out, however batches are cut; late and doubted rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.runtime import rows as rows_module
from braided.runtime import waiting_runs as waiting_module
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Block, Json, StreamTime, Work
from braided.runtime.ordering_stage import OrderingStage, merged_order
from braided.runtime.rows import in_order, together
from braided.runtime.store import MemoryStore
from braided.time.stream_clock import jump_of
from braided.time.trust import clusters_of

NESTED = pa.schema([("ts", pa.timestamp("us")), ("k", pa.int64()), ("at", pa.list_(pa.int64()))])
HOUR = 3_600_000_000


@dataclass
class Stage:
    """One worker's stage over batches: every batch restores it from what the last one left."""

    lateness: tuple[int, ...]
    agreed: bool = False
    lead: int | None = None
    idle: int | None = None
    times: tuple[str, ...] = ("ts", "ts")
    state: Json | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    known: dict[str, int | str] = field(default_factory=dict)
    late: list[tuple[int, ...]] = field(default_factory=list)
    discarded: list[tuple[int, ...]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[pa.Schema, ...]:
        return (NESTED,) * len(self.lateness)

    def run(self, sides: Sequence[Sequence[tuple[int, int, int]]], *, final: bool = False) -> Iterator[tuple[int, ...]]:
        """Yield (side, time, k, number) of what leaves."""
        blocks, streams = [], []
        for side, rows in enumerate(sides):
            times, keys, numbers = zip(*rows, strict=True) if rows else ((), (), ())
            columns = [
                pa.array(times, pa.timestamp("us")),
                pa.array(keys, pa.int64()),
                pa.array([[number] for number in numbers], pa.list_(pa.int64())),
            ]
            blocks.append(Block(side, pa.RecordBatch.from_arrays(columns, schema=NESTED), 0))
            clusters = clusters_of(np.array(times, np.int64), jump_of(self.lateness[side]))
            streams.append(StreamTime(rows=len(rows), clusters=clusters))
        stage = OrderingStage(self, self.state, Blocks(self.store, 0, self.known), agreed=self.agreed, lead=self.lead)
        aside = stage.take(Work(0, blocks, streams, final=final))
        self.late += [row for side in range(len(sides)) for row in listed(side, aside.late[side].rows)]
        self.discarded += [row for side in range(len(sides)) for row in listed(side, aside.discarded[side].rows)]
        for piece in stage.release():
            rows_ = [row for side, rows in enumerate(piece) for row in listed(side, rows.rows)]
            order = merged_order([rows.times("ts") for rows in piece])
            yield from rows_ if order is None else [rows_[at] for at in order]
        self.state = stage.to_json()
        labels = [str(side) for side in range(len(sides))]
        for name, count in stage.counts(labels).items():
            self.counts[name] = self.counts.get(name, 0) + count
        self.counts |= stage.levels(labels)


def listed(side: int, rows: pa.RecordBatch) -> list[tuple[int, ...]]:
    times = rows.column("ts").view(pa.int64()).to_pylist()
    return [(side, time, row["k"], row["at"][0]) for time, row in zip(times, rows.to_pylist(), strict=True)]


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_rows_leave_in_event_order_however_they_are_cut(data: st.DataObject, seed: int) -> None:
    """By (time, stream, content); rows that only nested columns tell apart leave as they came."""
    rng = np.random.default_rng(seed)
    count, late = 120, 9
    times = np.arange(count) // 3 + 1000
    arrival = np.argsort(times + rng.integers(0, late, count), kind="stable")
    rows = [(int(rng.integers(2)), int(times[at]), int(rng.integers(2)), number) for number, at in enumerate(arrival)]
    results = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "BLOCK_BYTES", data.draw(st.sampled_from([500, 1 << 20])))
        patch.setattr(waiting_module, "_FANOUT", 2)
        for size in (count, data.draw(st.integers(1, 30))):
            stage, out = Stage((late, late), agreed=data.draw(st.booleans())), []
            for start in range(0, count, size):
                part = rows[start : start + size]
                sides = [[row[1:] for row in part if row[0] == side] for side in (0, 1)]
                out += list(stage.run(sides))
            out += list(stage.run([[], []], final=True))
            assert stage.late == stage.discarded == []
            assert not stage.store.blocks
            results.append(out)
    assert results[0] == results[1]
    assert sorted(results[0]) == sorted(rows)
    assert [row[1::-1] for row in results[0]] == sorted(row[1::-1] for row in rows)
    same: dict[tuple[int, ...], int] = {}
    for *row, number in results[0]:
        assert same.get(tuple(row), -1) < number
        same[tuple(row)] = number


def test_few_blocks_are_stored_and_each_row_seldom_written_again() -> None:
    written = []

    class Noting(MemoryStore):
        def write_block(self, number: int, content: bytes) -> None:
            written.append(len(content))
            super().write_block(number, content)

    stage = Stage((HOUR,), store=Noting(), times=("ts",))
    for batch in range(300):
        assert not list(stage.run([[(batch * 10 + row, row, row) for row in range(10)]]))
        assert len(stage.store.blocks) <= 24
    assert sum(written) <= 4 * 300 * max(written[:1])
    assert len(list(stage.run([[]], final=True))) == 3000


@pytest.mark.parametrize("agreed", [False, True])
def test_late_rows_are_put_aside_and_counted(agreed: bool) -> None:
    """After what has left here; or, where all copies must agree, after what may have left on any worker."""
    stage = Stage((10,), agreed=agreed, times=("ts",))
    assert len(list(stage.run([[(row, 0, row) for row in range(101)] + [(130, 0, 1)]]))) == 101
    out = list(stage.run([[(99, 0, 2), (110, 0, 3)]]))
    assert out == ([] if agreed else [(0, 110, 0, 3)])
    assert stage.late == [(0, 99, 0, 2), *([(0, 110, 0, 3)] if agreed else [])]
    expected = (2, 21 + 10, 21) if agreed else (1, 1, 1)
    assert tuple(stage.counts[name] for name in ("late:0", "late_us:0", "most_late:0")) == expected
    assert (stage.counts["waiting:0"], stage.counts["quarantined:0"]) == (1, 0)


def test_doubted_rows_are_believed_or_discarded() -> None:
    stage = Stage((10,), times=("ts",))
    list(stage.run([[(row, 0, row) for row in range(100)]]))
    ahead = [(2 * HOUR, 1, 1000), (10 * HOUR, 2, 1001)]
    list(stage.run([[(100, 0, 100), *ahead]]))
    assert (stage.counts["quarantined:0"], stage.counts["waiting:0"]) == (2, 11)
    seen = []
    for batch in range(1, 40):
        start = batch * HOUR // 10
        seen += list(stage.run([[(start + row, 0, 2000 + row) for row in range(100)]]))
    assert (0, *ahead[0]) in seen
    assert seen == sorted(seen, key=lambda row: row[1])
    assert stage.discarded == [(0, *ahead[1])]
    assert (stage.counts["discarded:0"], stage.counts["quarantined:0"]) == (1, 0)


def test_a_device_that_is_always_years_ahead_leaves_a_bounded_quarantine() -> None:
    """Its rows are stored together, yet none is discarded much later than its own patience of an hour says."""
    stage, most = Stage((10,), times=("ts",)), 0
    for batch in range(400):
        start = batch * HOUR // 100
        list(stage.run([[*((start + row, 0, row) for row in range(20)), (10_000 * HOUR, 9, batch)]]))
        most = max(most, stage.counts["quarantined:0"])
    assert 100 <= most <= 120
    assert stage.discarded == sorted(stage.discarded, key=lambda row: row[3])
    assert stage.counts["discarded:0"] + stage.counts["quarantined:0"] == 400


def test_a_row_that_was_believed_for_want_of_others_is_doubted_again() -> None:
    """The clock starts with a row years ahead and is taken back: that row holds up nothing, and is discarded in time."""
    stage = Stage((10,), times=("ts",))
    wrong = (10_000 * HOUR, 9, 9)
    out: list[Any] = list(stage.run([[wrong]]))
    for batch in range(30):
        start = batch * HOUR // 10
        out += list(stage.run([[(start + row, 0, row) for row in range(100)]]))
    assert stage.discarded == [(0, *wrong)]
    assert len(out) >= 2900
    assert not any(row[1] == wrong[0] for row in out)
    assert stage.counts["waiting:0"] <= 100


def test_rows_of_one_time_are_in_order_of_their_content() -> None:
    columns = [pa.array([5] * 50, pa.timestamp("us")), pa.array(range(50)), pa.array([[0]] * 50)]
    rows = rows_module.Rows(pa.RecordBatch.from_arrays(columns, schema=NESTED))
    turned = rows.pick(np.arange(50)[::-1])
    assert in_order(rows, rows.times("ts"))[0].rows.equals(in_order(turned, turned.times("ts"))[0].rows)
    assert len(together([], NESTED)) == 0


def test_rows_leave_by_the_horizon_of_the_stream_that_leads() -> None:
    """Rows of the other one leave at once where the lead is past them, and are late only behind both."""
    stage = Stage(lateness=(5, 3), agreed=True, lead=1)
    many = [(100, 0, n) for n in range(70)]
    assert list(stage.run([many, many])) == []
    assert len(list(stage.run([[], [(113, 1, 0)]]))) == 140  # all that are before 110
    assert list(stage.run([[(95, 1, 1), (109, 1, 2), (110, 1, 3)], []])) == [(0, 95, 1, 1), (0, 109, 1, 2)]
    assert stage.late == []  # the left horizon was at 95 until then
    assert list(stage.run([[(104, 1, 4), (105, 1, 5)], [(109, 1, 6), (110, 1, 7)]])) == [(0, 105, 1, 5)]
    assert stage.late == [(0, 104, 1, 4), (1, 109, 1, 6)]
    assert list(stage.run([[], []], final=True)) == [(0, 110, 1, 3), (1, 110, 1, 7), (1, 113, 1, 0)]
