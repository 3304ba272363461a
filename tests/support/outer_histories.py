"""Random histories of the real outer, semi and anti joins while the routing changes, judged as those of the model are.

Streams, and the judge, are the model's (`support.outer_model`). Operator, routing tables, clocks, quarantine and the bounds
of old assignments are the package's own. The controller has no judgement at all: it changes what may be changed.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from braided.balance.observation import Observation
from braided.local.runtime import LocalRuntime
from braided.operators.join.outer_join import OuterJoin, OuterState
from braided.operators.join.spec import JoinSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.edit import Full
from braided.routing.grid import Grid
from braided.routing.home_edit import HomeEdit
from braided.routing.key_hashes import KeyHasher
from braided.routing.start import first_table
from braided.routing.table import BUCKETS, GRIDS, RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.bookkeeping import read_bookkeeping
from braided.time.lateness import Lateness
from braided.time.quarantine import Quarantine
from support.outer_model import Judge, Result
from support.outer_streams import Batch, Row, Setting, Streams, random_batches
from support.two_streams import SCHEMA, rows_of

READINGS = {"left": "outer", "right": "outer", "left_semi": "semi", "left_anti": "anti"}


@cache
def keys_by_bucket() -> list[list[int]]:
    """Return a few integers of each of two hash buckets."""
    numbers = np.arange(60_000)
    buckets = KeyHasher((pa.int64(),)).hash([pa.array(numbers)], len(numbers)) & np.uint64(BUCKETS - 1)
    return [numbers[buckets == bucket][:4].tolist() for bucket in (17, 2000)]


def key_of(setting: Setting, key: int) -> int:
    """Return the integer that stands for a key: keys of one bucket share a hash bucket."""
    return keys_by_bucket()[key % setting.buckets][key // setting.buckets]


@contextmanager
def small_numbers(setting: Setting) -> Iterator[None]:
    """Let clocks doubt, vote and learn by as few rows as a small history has."""
    numbers = {
        "braided.time.stream_clock.JUMP": setting.jump,
        "braided.time.stream_clock.QUORUM": setting.quorum,
        "braided.time.trust.QUORUM": setting.quorum,
        "braided.time.trust.VOTERS": setting.voters,
        "braided.time.quarantine.VOTERS": setting.voters,
        "braided.time.learning.learner.SLICE_ROWS": 4,
    }
    with ExitStack() as stack:
        for name, number in numbers.items():
            stack.enter_context(patch(name, number))
        # What takes longest of a small batch, and tells the tables of one history apart no better than their version.
        stack.enter_context(patch.object(RoutingTable, "digest", property(lambda table: str(table.version))))
        stack.enter_context(patch.object(RoutingTable, "most_copies", (1, 1)))
        yield


class RandomHomes:
    """Changes the routing at random, within the rules that `HomeEdit` and `AssignmentExpiry` keep."""

    def __init__(self, join: OuterJoin, setting: Setting, chance: random.Random) -> None:
        self._join, self._setting, self._chance = join, setting, chance
        self._restless = chance.choice((0.1, 0.3, 0.6))
        self._hashes = [self._hash(key_of(setting, key)) for key in range(setting.keys)]
        self.table = first_table("auto", setting.workers, keyed=True, version=1)
        self.events: Counter[str] = Counter()
        self.queue: list[Observation] = []
        self._wait = chance.choice((0.0, 0.3, 0.7)), chance.choice((0.0, 0.1, 0.4))
        self.restart()

    @staticmethod
    def _hash(key: int) -> int:
        return int(KeyHasher((pa.int64(),)).hash([pa.array([key])], 1)[0])

    def restart(self) -> None:
        """Forget everything but the newest table."""
        self._expiry = AssignmentExpiry(self._join.window, self._join.home)

    def step(self, seen: Observation, _wanted: Any) -> list[Any]:
        """Take a report that no controller has seen yet."""
        self.queue.append(seen)
        return []

    def decide(self) -> None:
        """Look at the reports, or miss some, or restart."""
        luck = self._chance.random()
        if luck < 0.02:
            self.events["restart"] += 1
            self.restart()
            self.queue.clear()
        if luck >= self._wait[0] and self.queue:
            for seen in self.queue:
                if self._chance.random() >= self._wait[1]:
                    self._decide(seen)
            self.queue.clear()

    def _decide(self, seen: Observation) -> None:
        self._expiry.window = replace(self._join.window, lateness=seen.lateness)
        self._expiry.observe(seen.batch, seen.version, seen.clocks, seen.ahead)
        edit = HomeEdit(self.table)
        dead = self._expiry.dead(self.table)
        self.events["dead"] += int(dead.sum())
        edit.drop(dead)
        settled = edit.settle(self._expiry.ready(self.table))
        self.events["settle"] += settled
        if self._chance.random() < 0.04:
            self._scale(edit)
        for key in self._hashes:
            bucket = key & (BUCKETS - 1)
            if self._wants(int(self.table.live[bucket, 0]), edit):
                self._try("move", lambda edit=edit, bucket=bucket: edit.assign(np.array([bucket]), self._any(edit)))
            group = edit.group_of_key(key)
            if self._wants(int(self.table.owner[bucket]), edit):
                self._change_key(edit, key, group)
        numbers = [number for number in self.table.grids if self._chance.random() < 0.1]
        for number in numbers:
            self.events["weights"] += 1
            edit.set_weights(number, self._weighted(self.table.grids[number]))
        before = len(self.table.key_hashes)
        self.table = edit.done()
        self.events["merge"] += len(self.table.key_hashes) < before
        self.events["several old"] += bool((self.table.live[:, 2] >= 0).any())

    def _scale(self, edit: HomeEdit) -> None:
        before, edit.in_use = edit.in_use, tuple(range(self._chance.randint(1, self._setting.workers)))
        self.events["scale in"] += len(edit.in_use) < len(before)
        self.events["scale out"] += len(edit.in_use) > len(before)

    def _wants(self, assignment: int, edit: HomeEdit) -> bool:
        grids = self.table.grids
        members = grids[assignment].workers if assignment in grids else (assignment,)
        leaving = not set(members) <= set(edit.in_use)
        return self._chance.random() < (0.8 if leaving else self._restless)

    def _any(self, edit: HomeEdit) -> int:
        """Return a worker on its own, or a new grid."""
        if self._chance.random() < 0.5:
            return self._chance.choice(edit.in_use)
        return edit.add_grid(self._grid(edit))

    def _grid(self, edit: HomeEdit) -> Grid:
        members = self._chance.sample(edit.in_use, self._chance.randint(1, len(edit.in_use)))
        columns = (tuple(members),) if self._join.home == 0 else tuple((member,) for member in members)
        return self._weighted(Grid(columns))

    def _weighted(self, grid: Grid) -> Grid:
        rows = tuple(tuple(self._chance.randint(1, 4) for _ in column) for column in grid.columns)
        return Grid(grid.columns, rows, tuple(self._chance.randint(1, 4) for _ in grid.columns))

    def _change_key(self, edit: HomeEdit, key: int, group: int | None) -> None:
        if group is not None and self._chance.random() < 0.6:
            self._try("demote", lambda: edit.demote(key))
        elif edit.has_room(np.array([key & (BUCKETS - 1) if group is None else group])).all():
            self._try("promote", lambda: edit.promote(key, self._grid(edit)))

    def _try(self, event: str, change: Any) -> None:
        try:
            change()
            self.events[event] += 1
        except Full:
            self.events["full"] += 1


class RealHistory:
    """One join by the real operator, from the first batch to the last."""

    def __init__(self, seed: int, how: str, streams: Streams | None = None) -> None:
        chance = random.Random(seed)
        if streams is None:
            setting = Setting.random(chance, "right" if how == "right" else "left")
            streams = setting, random_batches(chance, setting)
        self.setting, self.batches = streams
        self.result = Result()
        self._how, self._chance = how, chance
        self._learned = chance.random() < 0.5
        self.join = self._operator()
        self.controller = RandomHomes(self.join, self.setting, chance)
        self.runtime = self._runtime(None)
        self._stored: list[set[int]] = [set() for _ in range(self.setting.workers)]
        self._times = {row.number: row.time for batch in self.batches for row in batch.rows}

    def _operator(self) -> OuterJoin:
        setting = self.setting
        lateness: Any = tuple(f"{late} us" for late in setting.floors)
        if self._learned:
            lateness = tuple(
                Lateness(margin=0, floor=late, memory="40 us", ceiling=f"{setting.jump} us", measure="next")
                for late in lateness
            )
        idle = None if setting.idle is None else f"{setting.idle} us"
        between = f"{setting.lo} us", f"{setting.hi} us"
        spec = JoinSpec(on="k", time="t", between=between, how=self._how, lateness=lateness, idle=idle)  # type: ignore[arg-type]
        join = build(spec, [Stream("left", SCHEMA), Stream("right", SCHEMA)]).operator
        assert isinstance(join, OuterJoin)
        return join

    def _runtime(self, stores: Any) -> LocalRuntime:
        return LocalRuntime(self.join, self.setting.workers, stores, controller=self.controller)  # type: ignore[arg-type]

    def run(self) -> RealHistory:
        """Run all batches. A table that is published while a batch runs is used by the next one."""
        with small_numbers(self.setting):
            for number, batch in enumerate(self.batches):
                self.controller.decide()
                self.runtime.table = self.controller.table
                self.controller.decide()
                self.runtime._batch = number
                self._note_late(batch)
                self._collect(self._tasks(batch.rows), moment=batch.moment)
                self._note_discarded()
                if self._chance.random() < 0.1:
                    self.runtime = self._runtime(pickle.loads(pickle.dumps(self.runtime.stores)))
                    self.controller.table = RoutingTable.from_bytes(self.controller.table.to_bytes())
            self._collect([(0, [])], moment=len(self.batches), final=True)
        return self

    def _tasks(self, rows: list[Row]) -> list[tuple[int, list[pa.RecordBatch]]]:
        tasks: list[tuple[int, list[pa.RecordBatch]]] = []
        for side in (0, 1):
            mine = [
                {"k": key_of(self.setting, row.key), "t": row.time, "id": row.number}
                for row in rows
                if row.side == side
            ]
            parts = self._chance.randint(1, 2)
            tasks += [(side, [rows_of(mine[part::parts])]) for part in range(parts)]
        return tasks

    def _collect(self, tasks: Any, *, moment: int, final: bool = False) -> None:
        result = self.result
        for piece in self.runtime.run_batch(tasks, moment=moment, final=final):
            ids = piece["id"].to_pylist()
            if self._how == "left_semi":
                result.matched += ids
            elif self._how == "left_anti":
                result.alone += ids
            else:
                for left, right in zip(ids, piece["id_right"].to_pylist(), strict=True):
                    if left is None or right is None:
                        result.alone.append(right if left is None else left)
                    else:
                        result.pairs.append((left, right))

    def _states(self) -> Iterator[tuple[OuterState, dict[str, Any]]]:
        for worker, store in enumerate(self.runtime.stores):
            content = store.load()
            if content is not None:
                bookkeeping = read_bookkeeping(content)
                blocks = Blocks(store.open(bookkeeping), worker, bookkeeping["blocks"])
                yield OuterState.restore(self.join, bookkeeping["state"], blocks), bookkeeping

    def _note_late(self, batch: Batch) -> None:
        for state, _ in self._states():
            self.result.late |= {row.number for row in batch.rows if row.time < state.safe[row.side]}

    def _note_discarded(self) -> None:
        """Find the rows that a worker no longer has although no stream vouches for them."""
        for worker, (state, _) in enumerate(self._states()):
            now: set[int] = set()
            for side in (0, 1):
                for info in state.infos(side):
                    now |= set(state.load(side, info).rows.column("id").to_pylist())
            limit = Quarantine(state.streams).limit
            self.result.discarded |= {row for row in self._stored[worker] - now if self._times[row] > limit}
            self._stored[worker] = now

    @property
    def events(self) -> Counter[str]:
        """How often what happened."""
        happened = Counter(self.controller.events)
        happened["late"], happened["discarded"] = len(self.result.late), len(self.result.discarded)
        for state, _ in self._states():
            happened["idle"] += sum(stream.idle for stream in state.streams)
            happened["leap"] += sum(stream.progress.leaps for stream in state.streams)
        happened["tagged"] += any(number >= GRIDS for number in self.controller.table.grids)
        return happened


def judge_real_history(seed: int, how: str, streams: Streams | None = None) -> tuple[RealHistory, str | None]:
    """Run one history; return it with what is wrong."""
    history = RealHistory(seed, how, streams).run()
    judged = SimpleNamespace(setting=history.setting, result=history.result, batches=history.batches)
    return history, Judge(judged).wrong.get(READINGS[how])  # type: ignore[arg-type]
