"""Routing in the model of outer joins: groups that change their home in two phases, and a controller that changes them.

```
 a change of a group     home   opening   old        preserved row         row of the other side
 before                  A                           stored in A           stored in A
 phase 1: B is open      A      B                    stored in A           stored in A and in B
 phase 2: B is the home  B                A          stored in B           stored in B, probes A
 A is dead               B                           stored in B           stored in B
```

A number below 1000 is the worker of that number on its own, and comes back; other numbers are grids, each new for ever.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from support.outer_rules import Rules
from support.outer_streams import LEFT, NEVER, PRESERVED, RIGHT, Progress, Row, Setting

MOST_ALIVE = 4
_GRIDS = 1000


@dataclass
class Group:
    """The assignments of a bucket or of a hot key. `opened` and the values of `old` are versions of the table."""

    home: int
    opening: int | None = None
    opened: int = 0
    old: dict[int, int] = field(default_factory=dict)
    demoted: bool = False

    def copy(self) -> Group:
        """Return a group that may be changed."""
        return Group(self.home, self.opening, self.opened, dict(self.old), self.demoted)

    @property
    def alive(self) -> set[int]:
        """All assignments that get copies."""
        return {self.home, *self.old} | ({self.opening} if self.opening is not None else set())

    def open(self, assignment: int, version: int) -> None:
        """Begin phase 1."""
        self.opening, self.opened = assignment, version

    def settle(self, assignment: int, replaced: int) -> None:
        """Begin phase 2: the assignment becomes the home."""
        self.opening = None
        if assignment != self.home:
            self.old[self.home] = replaced
            self.old.pop(assignment, None)
            self.home = assignment


class Table:
    """One version of the routing."""

    def __init__(self, version: int, in_use: tuple[int, ...], buckets: list[Group]) -> None:
        self.version, self.in_use, self.buckets = version, in_use, buckets
        self.keys: dict[int, Group] = {}
        self.grids: dict[int, tuple[int, ...]] = {}

    def next(self) -> Table:
        """Return the next version, to be changed."""
        table = Table(self.version + 1, self.in_use, [group.copy() for group in self.buckets])
        table.keys = {key: group.copy() for key, group in self.keys.items()}
        table.grids = dict(self.grids)
        return table

    def bucket(self, key: int) -> Group:
        """Return the bucket of a key."""
        return self.buckets[key % len(self.buckets)]

    def group(self, key: int) -> Group:
        """Return what routes a key: its own group, or its bucket."""
        return self.keys.get(key) or self.bucket(key)

    def keys_of(self, bucket: int) -> list[Group]:
        """Return the groups of hot keys of a bucket."""
        return [group for key, group in self.keys.items() if key % len(self.buckets) == bucket]

    def workers(self, assignment: int) -> tuple[int, ...]:
        """Return the workers of an assignment."""
        return (assignment,) if assignment < _GRIDS else self.grids[assignment]


class Route(NamedTuple):
    """Where a copy of a row goes. `home` tells that the row is decided there."""

    worker: int
    assignment: int
    stored: bool
    home: bool


class Router:
    """Routes rows by a table alone."""

    def __init__(self, setting: Setting, rules: Rules) -> None:
        self._rules = rules
        self._split = () if setting.kind == "full" else PRESERVED[setting.kind]
        if "split" not in rules:
            self._split = tuple({LEFT, RIGHT} - {*self._split})

    def routes(self, row: Row, table: Table) -> list[Route]:
        """Return the copies of a row."""
        group, rules = table.group(row.key), self._rules
        if row.side in self._split:
            routes = [self._one_worker(row, table, group.home, stored=True)]
            if "home" not in rules:
                routes += [self._one_worker(row, table, assignment, stored=False) for assignment in group.old]
        else:
            stored = [group.home] if group.opening is None else [group.home, group.opening]
            probed = [assignment for assignment in group.old if assignment not in stored or "one copy" not in rules]
            routes = [
                Route(worker, assignment, place < len(stored), place == 0)
                for place, assignment in enumerate((*stored, *probed))
                for worker in table.workers(assignment)
            ]
        return routes if "scale in" in rules else [route for route in routes if route.worker in table.in_use]

    def _one_worker(self, row: Row, table: Table, assignment: int, *, stored: bool) -> Route:
        workers = table.workers(assignment)
        return Route(workers[(row.number * 31 + 7) % len(workers)], assignment, stored, stored)


class Report(NamedTuple):
    """What a batch tells the controller, by side where it is a list.

    tops : the largest times of all rows so far. highest : the highest horizons ever committed.
    oldest : the earliest first mark of a row that is in quarantine in any worker.
    keys_stored : keys of which any row is stored.
    """

    batch: int
    version: int
    tops: list[int]
    clocks: list[int]
    progress: list[Progress]
    patience: list[int]
    oldest: list[Progress | None]
    limit: int
    highest: list[int]
    keys_stored: set[int]


@dataclass
class End:
    """What bounds the rows of a stream up to a batch: the largest time, and how far the stream had gone on."""

    top: int
    progress: Progress


class Bounds:
    """What the controller knows of the rows that were stored before a version of the table was first used."""

    def __init__(self, setting: Setting, rules: Rules, known: int | None = None) -> None:
        self._setting, self._rules = setting, rules
        self._ends: dict[int, list[End]] = {}
        self._last: tuple[Report, list[End]] | None = None
        if known is not None and "restart" not in rules:
            self._ends[known] = [End(NEVER, Progress()), End(NEVER, Progress())]

    def publish(self, version: int) -> None:
        """Take note of a new table. No bound follows: batches pinned to the older one may still be running."""
        if "first pin" not in self._rules and self._last is not None:
            self._ends[version] = _copy(self._last[1])

    def observe(self, report: Report) -> None:
        """Take note of a batch that ran under a version."""
        now = [self._end(report, side) for side in (LEFT, RIGHT)]
        if self._last is None:
            self._ends.setdefault(report.version, _copy(now))
        else:
            last, before = self._last
            missing = last.batch < report.batch - 1 and "missed" in self._rules
            for version in range(last.version + 1, report.version + 1):
                self._ends.setdefault(version, _copy(now if missing else before))
        self._last = report, now
        if max(report.tops) > report.limit:
            for ends in self._ends.values():
                for side, end in enumerate(ends):
                    if end.top > report.limit and self._all_decided(report, side, end):
                        end.top = report.limit

    def _end(self, report: Report, side: int) -> End:
        rule = "own doubted" if side in PRESERVED[self._setting.kind] else "other doubted"
        top = report.tops[side] if rule in self._rules else report.clocks[side]
        return End(top, report.progress[side])

    def _all_decided(self, report: Report, side: int, end: End) -> bool:
        """Whether every row that came before is believed or discarded."""
        if "oldest doubted" in self._rules:
            oldest = report.oldest[side]
            return oldest is None or oldest > end.progress
        return report.progress[side].on_for(end.progress, report.patience[side], self._setting.voters)

    def passed(self, sides: tuple[int, ...], version: int) -> bool:
        """Whether all rows of these sides that were stored before this version have left."""
        used = min((known for known in self._ends if known >= version), default=None)
        if self._last is None or used is None:
            return False
        highest, ends = self._last[0].highest, self._ends[used]
        return all(
            ends[side].top == NEVER or ends[side].top + self._setting.stays(side) < highest[1 - side] for side in sides
        )


def _copy(ends: list[End]) -> list[End]:
    return [replace(end) for end in ends]


class Controller:
    """Changes the routing at random, within the rules."""

    def __init__(self, setting: Setting, rules: Rules, chance: random.Random) -> None:
        self._setting, self._rules, self._chance = setting, rules, chance
        self._restless = chance.choice((0.1, 0.3, 0.6))
        self._next_grid = _GRIDS
        self._kept = PRESERVED[setting.kind]
        self._others = self._kept if setting.kind == "full" else (1 - self._kept[0],)
        self._moves_empty = setting.kind == "full" and "both copied" not in rules
        self._bounds = Bounds(setting, rules)
        homes = [chance.randrange(setting.workers) for _ in range(setting.buckets)]
        self.table = Table(1, tuple(range(setting.workers)), [Group(home) for home in homes])
        self.events: Counter[str] = Counter()

    def restart(self) -> None:
        """Forget everything but the newest table."""
        self.events["restart"] += 1
        self._bounds = Bounds(self._setting, self._rules, self.table.version)

    def step(self, report: Report) -> None:
        """Take a report, and publish at most one table."""
        self._bounds.observe(report)
        table = self.table.next()
        steps = (self._bury(table), self._settle(table), self._scale(table), self._change(table, report))
        if any(steps):
            self._merge(table)
            self._bounds.publish(table.version)
            self.table = table

    def _bury(self, table: Table) -> bool:
        """Forget old homes without a preserved row that can still match."""
        changed = False
        for group in (*table.buckets, *table.keys.values()):
            for assignment, replaced in list(group.old.items()):
                if "death" not in self._rules or self._bounds.passed(self._kept, replaced):
                    del group.old[assignment]
                    changed = True
        return changed

    def _settle(self, table: Table) -> bool:
        """Let openings become homes."""
        ready = [group for group in self._changing(table) if self._may_settle(group[0])]
        for first, *followers in ready:
            assignment = first.opening
            assert assignment is not None
            for group in (first, *followers):
                group.settle(assignment, table.version if "replaced" in self._rules else first.opened)
                self.events["several old"] += len(group.old) > 1
        self.events["settle"] += len(ready)
        return bool(ready)

    def _changing(self, table: Table) -> Iterator[list[Group]]:
        """Yield the groups with a change under way, each with those that follow it."""
        for number, bucket in enumerate(table.buckets):
            if bucket.opening is not None:
                yield [bucket, *self._followers(table, number)]
        for key, group in table.keys.items():
            if group.opening is not None and not (group.demoted and table.bucket(key).opening is not None):
                yield [group]

    def _may_settle(self, group: Group) -> bool:
        if "wait" not in self._rules or "home" not in self._rules:
            return True
        if "return" not in self._rules and group.opening in group.old:
            return True
        return self._bounds.passed(self._others, group.opened)

    def _followers(self, table: Table, bucket: int) -> list[Group]:
        """Return the demoted keys of a bucket."""
        return [group for group in table.keys_of(bucket) if group.demoted and "follow" in self._rules]

    def _scale(self, table: Table) -> bool:
        if self._chance.random() > 0.04:
            return False
        before, table.in_use = table.in_use, tuple(range(self._chance.randint(1, self._setting.workers)))
        self.events["scale in"] += len(table.in_use) < len(before)
        self.events["scale out"] += len(table.in_use) > len(before)
        return table.in_use != before

    def _change(self, table: Table, report: Report) -> bool:
        """Begin a few changes. A group that uses a worker which is to leave changes soon."""
        changed = False
        for number, bucket in enumerate(table.buckets):
            if self._wants_change(table, bucket):
                changed |= self._move_bucket(table, number, report)
        for key in range(self._setting.keys):
            if self._wants_change(table, table.group(key)):
                changed |= self._change_key(table, key)
        return changed

    def _wants_change(self, table: Table, group: Group) -> bool:
        leaving = any(worker not in table.in_use for worker in table.workers(group.home))
        return self._chance.random() < (0.8 if leaving else self._restless)

    def _free(self, group: Group) -> bool:
        return group.opening is None or "one change" not in self._rules

    def _assignment(self, table: Table) -> int:
        """Return a worker on its own, or a new grid."""
        if self._setting.kind == "full" or self._chance.random() < 0.5:
            return self._chance.choice(table.in_use)
        self._next_grid += 1
        members = self._chance.sample(table.in_use, self._chance.randint(1, len(table.in_use)))
        table.grids[self._next_grid] = tuple(members)
        return self._next_grid

    def _move_bucket(self, table: Table, number: int, report: Report) -> bool:
        bucket, groups = table.buckets[number], [table.buckets[number], *self._followers(table, number)]
        if self._moves_empty:
            return self._move_empty(table, number, report)
        if bucket.opening is not None:
            return self._cancel(groups)
        if not all(map(self._free, table.keys_of(number))) or any(len(group.alive) >= MOST_ALIVE for group in groups):
            return False
        assignment = self._assignment(table)
        if assignment == bucket.home:
            return False
        self.events["move"] += 1
        self.events["return"] += assignment in bucket.old
        for group in groups:
            if group.opening is None:
                group.open(assignment, table.version)
        self.events["follow"] += len(groups) - 1
        return True

    def _cancel(self, groups: list[Group]) -> bool:
        """Close an opening now and then: no row is decided by what was stored under it."""
        if self._chance.random() > 0.03:
            return False
        self.events["cancel"] += 1
        for group in groups:
            group.opening = None
        return True

    def _move_empty(self, table: Table, number: int, report: Report) -> bool:
        """Move a group at once if the report shows no row of it."""
        if any(key % len(table.buckets) == number for key in report.keys_stored):
            return False
        home = self._chance.choice(table.in_use)
        changed, table.buckets[number].home = home != table.buckets[number].home, home
        return changed

    def _change_key(self, table: Table, key: int) -> bool:
        """Promote a key, lay it over another grid, or demote it."""
        bucket, group = table.bucket(key), table.keys.get(key)
        busy = not self._free(bucket) or (group is not None and group.opening is not None)
        if busy or self._moves_empty or len((group or bucket).alive) >= MOST_ALIVE:
            return False
        demote = group is not None and not group.demoted and self._chance.random() < 0.6
        assignment = bucket.home if demote else self._assignment(table)
        if group is None:
            group = table.keys[key] = Group(bucket.home, old=dict(bucket.old))
        self.events["demote" if demote else "promote"] += 1
        group.demoted = demote
        if assignment != group.home:
            group.open(assignment, table.version)
        return True

    def _merge(self, table: Table) -> None:
        """Forget demoted keys whose bucket has all their assignments."""
        for key, group in list(table.keys.items()):
            bucket = table.bucket(key)
            same = (group.home, group.opening) == (bucket.home, bucket.opening) and set(group.old) <= set(bucket.old)
            if "follow" not in self._rules:
                same = group.opening is None and not group.old
            if group.demoted and same:
                self.events["merge"] += 1
                for assignment, replaced in group.old.items():
                    bucket.old[assignment] = max(replaced, bucket.old.get(assignment, 0))
                del table.keys[key]
