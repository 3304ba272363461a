"""A model of outer, semi and anti joins while the routing changes, judged by a nested loop over the finished streams.

Nothing here is the package's own code. Workers, clocks, tables and the controller are there in small, and a history is a
function of its seed. `RULES` (`support.outer_rules`) lists what must hold. Each rule can be left out; then some
histories are wrong, which shows that the model would notice.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from support.outer_routing import Controller, Report, Router, Table
from support.outer_rules import Rules
from support.outer_streams import (
    LEFT,
    NEVER,
    PRESERVED,
    RIGHT,
    Batch,
    Horizons,
    Progress,
    Row,
    Setting,
    Streams,
    random_batches,
)

_PARTS = 2


class Copy:
    """A row in a worker, under an assignment. The row is decided where `home` is true.

    `doubted_since` is the mark from which it is waited for; `first_mark` is not after the mark of its own batch.
    """

    __slots__ = ("assignment", "batch", "doubted_since", "first_mark", "home", "late", "matched", "row")

    def __init__(self, row: Row, assignment: int, home: bool, late: bool, batch: int) -> None:
        self.row, self.assignment, self.home, self.late, self.batch = row, assignment, home, late, batch
        self.matched = False
        self.doubted_since: Progress | None = None
        self.first_mark = Progress()


class Result:
    """What has come out: pairs, preserved rows when they met their first match, preserved rows alone.

    An outer join is the pairs and the rows alone, a semi join the matched rows, an anti join the rows alone.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        self.matched: list[int] = []
        self.alone: list[int] = []
        self.late: set[int] = set()
        self.discarded: set[int] = set()


class Place(NamedTuple):
    """Where copies meet: those of one assignment and key."""

    assignment: int
    key: int


class Worker:
    """Stores copies, lets new ones meet them, and decides about preserved rows at their home."""

    def __init__(self, setting: Setting, rules: Rules, result: Result) -> None:
        self._setting, self._rules, self._result = setting, rules, result
        self._kept = PRESERVED[setting.kind]
        self._own = "own" in rules
        self.stored: tuple[dict[Place, list[Copy]], ...] = ({}, {})
        self._doubting = [False, False]

    def process(self, new: list[Copy], probing: list[Copy]) -> None:
        """Let copies meet what is stored and each other; then store the new ones."""
        for copy in (*new, *probing):
            for earlier in self._found(copy):
                self._meet(earlier, copy)
        rights = [copy for copy in new if copy.row.side == RIGHT]
        for left in new if rights else ():
            if left.row.side == LEFT:
                for right in rights:
                    if left.assignment == right.assignment or not self._own:
                        self._meet(left, right)
        for copy in new:
            self.stored[copy.row.side].setdefault(Place(copy.assignment, copy.row.key), []).append(copy)

    def _found(self, copy: Copy) -> list[Copy]:
        stored = self.stored[1 - copy.row.side]
        if self._own:
            return stored.get(Place(copy.assignment, copy.row.key), [])
        return [other for place, copies in stored.items() if place.key == copy.row.key for other in copies]

    def _meet(self, one: Copy, other: Copy) -> None:
        left, right = (one, other) if one.row.side == LEFT else (other, one)
        if not self._setting.match(left.row, right.row):
            return
        result = self._result
        if self._setting.kind != "full" or left.home or "one place" not in self._rules:
            result.pairs.append((left.row.number, right.row.number))
        for copy in (left, right):
            if copy.home and copy.row.side in self._kept and not copy.matched:
                copy.matched = True
                result.matched.append(copy.row.number)

    def expire(self, horizons: Horizons, batch: int) -> None:
        """Judge doubted rows, and let rows leave that can match nothing on time any more."""
        for side, stored in enumerate(self.stored):
            if not stored:
                continue
            stream, patience = horizons.streams[side], horizons.patience[side]
            if stream.top > horizons.limit or self._doubting[side]:
                width = max(1, patience // _PARTS)
                self._doubting[side] = self._doubt(stored, horizons.limit, stream.progress, width, batch)
            oldest = horizons.highest[1 - side] - self._setting.stays(side)
            for place, copies in list(stored.items()):
                staying = []
                for copy in copies:
                    if copy.doubted_since is not None:
                        if stream.progress.on_for(copy.doubted_since, patience, self._setting.voters):
                            self._discard(copy)
                        else:
                            staying.append(copy)
                    elif copy.row.time >= oldest:
                        staying.append(copy)
                    else:
                        self._leave(copy)
                if staying:
                    stored[place] = staying
                else:
                    del stored[place]

    def _doubt(self, stored: dict[Place, list[Copy]], limit: int, now: Progress, width: int, batch: int) -> bool:
        """Mark doubted rows; return whether there are any.

        Those that came while the stream went on little are discarded together, by the later mark. Which these are must
        not depend on what else a worker stores: another worker may have a copy of the same row.
        """
        ahead, fresh = [], False
        for copies in stored.values():
            for copy in copies:
                if copy.row.time <= limit:
                    copy.doubted_since = None
                else:
                    ahead.append(copy)
                    fresh |= copy.doubted_since is None
        for copy in ahead if fresh or "same verdict" in self._rules else ():
            since = copy.doubted_since
            if since is None:
                # A row may be doubted later than in its own batch, after its clock was taken back.
                copy.first_mark = now if copy.batch == batch else Progress()
            if since is None or (since.leaps == now.leaps and since.moved // width == now.moved // width):
                copy.doubted_since = now
        return bool(ahead)

    def _discard(self, copy: Copy) -> None:
        self._result.discarded.add(copy.row.number)
        if "discarded" not in self._rules:
            self._leave(copy)

    def _leave(self, copy: Copy) -> None:
        if copy.home and copy.row.side in self._kept and not copy.matched and not (copy.late and "late" in self._rules):
            self._result.alone.append(copy.row.number)

    def finish(self) -> None:
        """Decide about all that is left: nothing comes any more."""
        for stored in self.stored:
            for copies in stored.values():
                for copy in copies:
                    self._leave(copy)

    def doubted(self, side: int) -> list[Copy]:
        """Return the rows in quarantine."""
        copies = (copy for group in self.stored[side].values() for copy in group)
        return [copy for copy in copies if copy.doubted_since is not None] if self._doubting[side] else []


class History:
    """One join from the first batch to the last, with a controller that is a few batches behind.

    The controller is random, and so are the streams unless they are given.
    """

    def __init__(self, seed: int, kind: str, without: str | None = None, streams: Streams | None = None) -> None:
        rules, self._chance = Rules(without), random.Random(seed)
        if streams is None:
            setting = Setting.random(self._chance, kind)
            streams = setting, random_batches(self._chance, setting)
        self.setting, self.batches = streams
        self.result = Result()
        self._rules = rules
        self._controller = Controller(self.setting, rules, self._chance)
        self._horizons = Horizons(self.setting, rules)
        self._router = Router(self.setting, rules)
        self._workers = [Worker(self.setting, rules, self.result) for _ in range(self.setting.workers)]
        self._reports: list[Report] = []
        self._slow, self._lossy = self._chance.choice((0.0, 0.3, 0.7)), self._chance.choice((0.0, 0.1, 0.4))
        self._sees_keys = kind == "full" and "both copied" not in rules

    def run(self) -> History:
        """Run all batches. A table that is published while a batch runs is used by the next one."""
        for number, batch in enumerate(self.batches):
            self._control()
            pinned = self._controller.table
            self._control()
            self._run(number, batch, pinned)
        for worker in self._workers:
            worker.finish()
        return self

    @property
    def events(self) -> Counter[str]:
        """How often what happened."""
        happened = Counter(self._controller.events)
        happened["late"], happened["discarded"] = len(self.result.late), len(self.result.discarded)
        happened["leap"] = sum(stream.progress.leaps for stream in self._horizons.streams)
        happened["idle"] = sum(stream.idle for stream in self._horizons.streams)
        return happened

    def _control(self) -> None:
        """Let the controller take its reports, or miss some, or restart."""
        luck = self._chance.random()
        if luck < 0.02:
            self._controller.restart()
            self._reports.clear()
        if luck >= self._slow and self._reports:
            for report in self._reports:
                if self._chance.random() >= self._lossy:
                    self._controller.step(report)
            self._reports.clear()

    def _run(self, number: int, batch: Batch, pinned: Table) -> None:
        new: list[list[Copy]] = [[] for _ in self._workers]
        probing: list[list[Copy]] = [[] for _ in self._workers]
        for row in batch.rows:
            late = self._horizons.late(row)
            if late:
                self.result.late.add(row.number)
            table = pinned if "pin" in self._rules or row.number % 2 else self._controller.table
            for route in self._router.routes(row, table):
                copy = Copy(row, route.assignment, route.home, late, number)
                (new if route.stored else probing)[route.worker].append(copy)
        if "expiry" not in self._rules:
            self._advance(number, batch)
        for worker, mine, probes in zip(self._workers, new, probing, strict=True):
            if mine or probes:
                worker.process(mine, probes)
        if "expiry" in self._rules:
            self._advance(number, batch)
        self._reports.append(self._report(number, pinned.version))

    def _advance(self, number: int, batch: Batch) -> None:
        self._horizons.advance(batch)
        for worker in self._workers:
            worker.expire(self._horizons, number)

    def _report(self, number: int, version: int) -> Report:
        streams, horizons = self._horizons.streams, self._horizons
        oldest = [
            min((copy.first_mark for worker in self._workers for copy in worker.doubted(side)), default=None)
            for side in (LEFT, RIGHT)
        ]
        stored = (place.key for worker in self._workers for places in worker.stored for place in places)
        return Report(
            number,
            version,
            [stream.top for stream in streams],
            [NEVER if stream.clock is None else stream.clock for stream in streams],
            [stream.progress for stream in streams],
            horizons.patience,
            oldest,
            horizons.limit,
            list(horizons.highest),
            set(stored) if self._sees_keys else set(),
        )


class Judge:
    """Compares a result, read as an outer, a semi and an anti join, with the nested loop over all rows.

    A row is *sure* if it is neither late nor discarded. Of sure rows the result is exact. A row that is not sure gives
    some of its pairs, each once, and never comes out alone.
    """

    def __init__(self, history: History) -> None:
        self._setting, self._result = history.setting, history.result
        self._rows = [row for batch in history.batches for row in batch.rows]
        self._unsure = self._result.late | self._result.discarded
        self.wrong: dict[str, str] = {}
        """What is wrong, by reading."""
        self._check()

    def _check(self) -> None:
        result = self._result
        self._ensure("outer", _once(result.pairs) and _once(result.alone), "comes out twice")
        self._ensure("semi", _once(result.matched), "comes out twice")
        self._ensure("anti", _once(result.alone), "comes out twice")
        partners = self._neighbours(self._matches())
        met = self._neighbours(result.pairs)
        matched, alone = set(result.matched), set(result.alone)
        for row in self._rows:
            if row.side in PRESERVED[self._setting.kind]:
                number, mine = row.number, partners[row.number]
                sure = mine - self._unsure
                self._outer(row, mine, sure, met[number], number in alone)
                self._semi(row, mine, sure, number in matched)
                self._anti(row, mine, sure, number in alone)

    def _matches(self) -> list[tuple[int, int]]:
        rights = [row for row in self._rows if row.side == RIGHT]
        lefts = [row for row in self._rows if row.side == LEFT]
        match = self._setting.match
        return [(left.number, right.number) for left in lefts for right in rights if match(left, right)]

    def _neighbours(self, pairs: list[tuple[int, int]]) -> dict[int, set[int]]:
        neighbours: dict[int, set[int]] = {row.number: set() for row in self._rows}
        for left, right in pairs:
            neighbours[left].add(right)
            neighbours[right].add(left)
        return neighbours

    def _outer(self, row: Row, partners: set[int], sure: set[int], met: set[int], out: bool) -> None:
        self._ensure("outer", met <= partners, "no such pair", row)
        if row.number in self._unsure:
            self._ensure("outer", not out, "a late or discarded row alone", row)
            return
        self._ensure("outer", met >= sure, "a lost pair", row)
        self._ensure("outer", not (out and met), "a matched row alone", row)
        self._ensure("outer", out or bool(met), "a lost row", row)

    def _semi(self, row: Row, partners: set[int], sure: set[int], out: bool) -> None:
        self._ensure("semi", bool(partners) or not out, "a row without a match", row)
        self._ensure("semi", out or row.number in self._unsure or not sure, "a lost row", row)

    def _anti(self, row: Row, partners: set[int], sure: set[int], out: bool) -> None:
        if row.number in self._unsure:
            self._ensure("anti", not out, "a late or discarded row", row)
        else:
            self._ensure("anti", not (out and sure), "a row with a match", row)
            self._ensure("anti", out or bool(partners), "a lost row", row)

    def _ensure(self, reading: str, fine: bool, what: str, row: Row | None = None) -> None:
        if not fine:
            self.wrong.setdefault(reading, f"{what}: {row}" if row else what)


def _once(rows: list[int] | list[tuple[int, int]]) -> bool:
    return len(rows) == len(set(rows))


def judge_history(
    seed: int, kind: str, without: str | None = None, streams: Streams | None = None
) -> tuple[History, dict[str, str]]:
    """Run one history, by all rules or all but one; return it with what is wrong, by reading."""
    history = History(seed, kind, without, streams).run()
    return history, Judge(history).wrong
