"""The controller of outer, semi and anti joins: a hot key of the preserved stream is spread, and rows stay exact."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.profiles import some

from braided.balance.controller import Controller
from braided.local.runtime import LocalRuntime
from braided.operators.join.outer_join import OuterJoin
from braided.operators.join.spec import JoinSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.start import first_table
from braided.routing.table import RoutingTable

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])
WORKERS = 4
WORDS = {"left": "left", "right": "right", "left_semi": "semi", "left_anti": "anti"}


class Skewed:
    """Two streams, a batch of each a second. Half of the rows of one stream have one key, up to a batch.

    From another one on most rows of the other stream have it.
    """

    def __init__(
        self,
        how: str,
        hot_side: int,
        *,
        batches: int = 24,
        hot: int = 7,
        until: int = 99,
        matches: int = 3,
        turns: int = 99,
    ) -> None:
        rng = np.random.default_rng(3)
        self.how = how
        self.batches: list[list[pa.RecordBatch]] = []
        ids = [0, 0]
        for number in range(batches):
            both = []
            for side in (0, 1):
                rows = 1200 if side == hot_side else 240 if number < turns else 900
                keys = rng.integers(100, 500, rows)
                if side == hot_side and 2 <= number < until:
                    keys[rng.random(rows) < 0.5] = hot
                elif side != hot_side:
                    keys[: matches if number < turns else 800] = hot
                times = np.sort(number * SECOND + rng.integers(0, SECOND, rows))
                columns = [pa.array(keys), pa.array(times, pa.timestamp("us")), pa.array(np.arange(rows) + ids[side])]
                ids[side] += rows
                both.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
            self.batches.append(both)

    def operator(self) -> OuterJoin:
        spec = JoinSpec(on="k", time="t", within="1 second", how=self.how, lateness="0 seconds")  # type: ignore[arg-type]
        join = build(spec, [Stream("left", SCHEMA), Stream("right", SCHEMA)]).operator
        assert isinstance(join, OuterJoin)
        return join

    def wanted(self) -> Counter[Any]:
        left, right = (pa.Table.from_batches([batch[side] for batch in self.batches]) for side in (0, 1))
        columns = "l.id" if self.how in ("left_semi", "left_anti") else "l.id, r.id"
        with duckdb.connect() as db:
            db.register("lefts", left)
            db.register("rights", right)
            return Counter(
                db.execute(
                    f"""select {columns} from lefts l {WORDS[self.how]} join rights r
                    on l.k = r.k and abs(epoch_us(l.t) - epoch_us(r.t)) <= {SECOND}"""
                ).fetchall()
            )


class Run:
    """A run under a controller: what came out, and each worker's rows and results in every batch."""

    def __init__(self, streams: Skewed, *, restart: int | None = None, wanted: dict[int, int] | None = None) -> None:
        join = streams.operator()
        table = first_table("auto", WORKERS, keyed=True, version=1)
        self.runtime = LocalRuntime(join, WORKERS, controller=self._controller(join, table))
        self.found: Counter[Any] = Counter()
        self.work: list[np.ndarray[Any, Any]] = []
        self.tables: list[RoutingTable] = []
        for number, both in enumerate(streams.batches):
            self.runtime.wanted = (wanted or {}).get(number, self.runtime.wanted)
            self.tables.append(self.runtime.table)
            self._take(self.runtime.run_batch([(side, [rows]) for side, rows in enumerate(both)]))
            last = [report["last"] for report in self.runtime.reports]
            self.work.append(np.array([count["rows"] + count["results"] for count in last]))
            if number == restart:
                self._restart(join)
        self._take(self.runtime.run_batch([(0, [])], final=True))

    @staticmethod
    def _controller(join: OuterJoin, table: RoutingTable) -> Controller:
        return Controller(table, join.window, measure="work", home=join.home)

    def _restart(self, join: OuterJoin) -> None:
        """Go on as a new driver with new workers would."""
        table, decisions = RoutingTable.from_bytes(self.runtime.table.to_bytes()), self.runtime.decisions
        stores = pickle.loads(pickle.dumps(self.runtime.stores))
        number = self.runtime._batch
        self.runtime = LocalRuntime(join, stores=stores, controller=self._controller(join, table))
        self.runtime.decisions, self.runtime._batch = decisions, number

    def _take(self, pieces: Any) -> None:
        for piece in pieces:
            names = [name for name in ("id", "id_right") if name in piece.schema.names]
            self.found.update(zip(*(piece[name].to_pylist() for name in names), strict=True))

    def actions(self, *names: str) -> list[Any]:
        return [decision for decision in self.runtime.decisions if decision.action in names]


@pytest.mark.parametrize("how", some(tuple(WORDS), quick=2))
def test_a_hot_key_of_the_preserved_stream_is_spread(how: str) -> None:
    streams = Skewed(how, hot_side=1 if how == "right" else 0)
    run = Run(streams, restart=9 if how == "left" else None)
    assert run.found == streams.wanted()
    (promoted,) = run.actions("promote")
    assert promoted.detail["grid"] == (f"1 x {WORKERS}" if how == "right" else f"{WORKERS} x 1")
    assert run.actions("home"), "the key's home never changed"
    before, after = (np.mean([w.max() / w.mean() for w in part]) for part in (run.work[3:5], run.work[-6:]))
    assert before > 1.6
    assert after <= 1.25
    assert (run.tables[-1].live[:, 1] < 0).all(), "an old home is probed for ever"


def test_a_key_that_cools_down_goes_back_to_its_bucket() -> None:
    streams = Skewed("left", 0, batches=30, until=12)
    run = Run(streams)
    assert run.found == streams.wanted()
    assert len(run.actions("promote")) == len(run.actions("demote")) == 1
    assert run.runtime.table.plain, "the key is still on its own"


def test_a_hot_key_of_the_other_stream_stays_and_that_is_said_once() -> None:
    streams = Skewed("left", hot_side=1, matches=0)
    run = Run(streams)
    assert run.found == streams.wanted()
    assert not run.actions("promote")
    (said,) = run.actions("stay")
    assert "only left rows can be split" in said.reason


def test_workers_that_are_no_longer_wanted_hand_over_and_come_back() -> None:
    streams = Skewed("left", 0, batches=36)
    run = Run(streams, wanted={8: 2, 22: 4})
    assert run.found == streams.wanted()
    assert [decision.detail["workers"] for decision in run.actions("scale")] == [2, 4]
    assert not run.work[20][2:].any(), "workers that are not in use still get rows"
    assert run.work[-1].min() > 0.5 * run.work[-1].mean()


def test_a_key_that_turns_hot_by_the_other_stream_goes_back_to_its_bucket() -> None:
    streams = Skewed("left", 0, batches=26, until=12, turns=12)
    run = Run(streams)
    assert run.found == streams.wanted()
    assert [decision.action for decision in run.actions("promote", "demote", "stay")] == ["promote", "stay"]
    assert run.runtime.table.key_demoted.all(), "each of its workers still gets all rows of the other stream"
