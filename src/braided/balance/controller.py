"""The controller: from each batch's reports it makes at most one new routing table, with the reasons.

It uses no clock and no files: its caller (a listener on the driver, the local runtime, a simulation) passes the
observations in order and publishes its table. After a restart it has no averages yet, so it waits for some batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from braided.balance.bucket_moves import choose_moves
from braided.balance.hot_keys import HotKeys
from braided.balance.hot_spots import HotSpotRule
from braided.balance.levels import OverlappingLevels
from braided.balance.load_averages import HORIZONS, LoadAverages, worker_loads
from braided.balance.migrations import Migrations
from braided.balance.observation import Loads, Observation
from braided.balance.reshape import SAMPLES, ReshapeRule, Windows
from braided.balance.scale import ScaleRule
from braided.balance.shapes import Rates, expected_loads, home_grid, key_grid, level_weights
from braided.balance.weights import weigh_by_load
from braided.routing.assignment_expiry import AssignmentExpiry
from braided.routing.edit import TableEdit
from braided.routing.grid import Grid
from braided.routing.home_edit import HomeEdit
from braided.routing.table import BUCKETS, GRIDS, RoutingTable
from braided.time.clocks import GroupSpan, Span, Window

# A hot key's grid has at most this share of a worker's load, so that weights can balance the rest.
_KEY_SHARE = 0.5
# A key outgrows its grid when its busiest worker has this multiple of that share, and another grid has a third less.
_OUTGROWN = 1.5
_RELAY = 0.67
# Weights change when the busiest worker of a grid exceeds the mean by a tenth; then they stay for a few batches.
_UNEVEN = 1.1
_WEIGHTS_REST = 3
# Weights by measured loads change only when all batches of the longer average ran with the current weights.
_LOADS_REST = 5
# A bucket's load is averaged over the batches that make a hot spot: in one batch a bucket may be large by chance.
_BUCKET_SAMPLES = 3
# In the first batches, CPU time is mostly for starting processes and compiling.
_WARMING = 5
# Loads are judged again when old assignments of hot keys have less than this share of a worker's load.
_DRAINED = 0.1


@dataclass(frozen=True)
class Decision:
    """One decision: what was done and why, and the version of the table that does it."""

    action: str
    reason: str
    batch: int
    version: int
    detail: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch, "version": self.version, "action": self.action, "reason": self.reason, **self.detail
        }  # fmt: skip


class Controller:
    """Watches one join. `table` is the newest table; `step` replaces it.

    scheme: ``auto`` (hash buckets, grids for hot keys, moves away from hot workers), ``hash`` (only requests to scale),
    ``ssp`` (one stream split, the other copied), ``grid`` (one grid for everything).
    slots: how many workers run at the same time. measure: how load is measured: ``cpu`` time, or ``work``, which is the
    same in every run. home: the side whose rows have one home; then only this side is split, and changes have two
    phases (`braided.routing.home_routes`).
    """

    def __init__(
        self,
        table: RoutingTable,
        window: Window | Span | GroupSpan,
        *,
        slots: int | None = None,
        measure: str = "cpu",
        most_columns: int | None = None,
        home: int | None = None,
    ) -> None:
        self.table = table
        self.labels: dict[int, str] = {}
        self._window = window
        self._home = home
        self._deaths = AssignmentExpiry(window, home)
        self._slots = slots or table.workers
        self._measure = measure
        self._most_columns = most_columns
        self._averages = LoadAverages(table.workers)
        self._levels = OverlappingLevels()
        self._level: list[int | None] = [None] * table.workers
        self._hot_spots = HotSpotRule()
        self._migrations = Migrations(BUCKETS)
        self._scale = ScaleRule()
        self._keys = HotKeys()
        for key, demoted in zip(table.key_hashes.tolist(), table.key_demoted.tolist(), strict=True):
            if not demoted:
                self._keys.promoted(key)
        self._windows = Windows(window)
        self._shape = ReshapeRule(self._slots)
        self._outgrown: dict[int, int] = {}
        self._unsplittable: set[int] = set()
        self._rest = 0
        self._moving = False
        self._batches = 0
        self._buckets: list[Loads] = []

    def step(self, seen: Observation, wanted: int | str | None = None) -> list[Decision]:
        """Take one batch; `wanted` is a request for a number of workers in use, or "auto"."""
        self._deaths.window = self._windows.window = replace(self._window, lateness=seen.lateness)
        self._deaths.observe(seen.batch, seen.version, seen.clocks, seen.ahead)
        self._windows.add(seen)
        self.labels.update(seen.labels)
        self._averages.add(self._loads(seen))
        recent = self._averages.over(5).tolist()
        self._level = [self._levels.level(load, old) for load, old in zip(recent, self._level, strict=True)]
        edit = TableEdit(self.table) if self._home is None else HomeEdit(self.table)
        edit.drop(self._deaths.dead(self.table))
        decisions = list(self._settle(seen, edit))
        self._buckets = [*self._buckets, self._bucket_loads(seen)][-_BUCKET_SAMPLES:]
        self._moving = bool(self._migrations.busy)
        self._forget_ended(edit)
        decisions += self._decide(seen, edit, wanted)
        self.table = edit.done()
        return decisions

    def loads(self) -> list[dict[str, Any]]:
        """Return each worker's load over 1, 5 and 15 batches, and its level, which small changes do not affect."""
        spans = zip(*(self._averages.over(horizon).round(3).tolist() for horizon in HORIZONS), strict=True)
        return [{"load": list(load), "level": level} for load, level in zip(spans, self._level, strict=True)]

    def _decide(self, seen: Observation, edit: TableEdit, wanted: int | str | None) -> Iterator[Decision]:
        yield from self._rescale(seen, edit, wanted)
        if self.table.scheme == "auto":
            yield from self._promote(seen, edit)
            yield from self._weigh(seen, edit)
            yield from self._move(seen, edit)
        elif self.table.scheme in ("ssp", "grid"):
            reshaped = list(self._reshape(seen, edit))
            yield from reshaped
            if not reshaped:
                yield from self._weigh_by_load(seen, edit)

    def _decision(self, seen: Observation, action: str, reason: str, **detail: Any) -> Decision:
        return Decision(action, reason, seen.batch, self.table.version + 1, detail)

    def _loads(self, seen: Observation) -> Loads:
        in_use = len(self.table.in_use)
        if self._measure == "cpu":
            return worker_loads(seen.cpu_ms, seen.batch_ms, self._slots, in_use)
        return seen.work * in_use / max(1.0, float(seen.work.sum()))

    def _forget_ended(self, edit: TableEdit) -> None:
        """End the migrations whose replaced assignments are not in the list of any bucket any more."""
        table = edit.done()
        alive = set(np.unique(table.since[:BUCKETS, 1:]).tolist())
        moving = self._home is not None and bool((table.live[:BUCKETS, 1] >= 0).any())
        for version in self._migrations.under_way:
            # With two phases, a later version replaces them, so a migration lasts until no bucket is changing.
            if version not in alive and not moving:
                self._migrations.end(version)

    def _settle(self, seen: Observation, edit: TableEdit) -> Iterator[Decision]:
        """Make openings homes when they are ready."""
        if isinstance(edit, HomeEdit):
            groups = edit.settle(self._deaths.ready(self.table))
            if groups:
                other = ("left", "right")[1 - (self._home or 0)]
                reason = f"no {other} row from before the opening can match any more"
                yield self._decision(seen, "home", reason, groups=groups)

    # Scale in and out.

    def _rescale(self, seen: Observation, edit: TableEdit, wanted: int | str | None) -> Iterator[Decision]:
        now = list(self.table.in_use)
        count = len(now)
        if wanted == "auto":
            count = self._scale.judge(self._averages, now, self.table.workers, self._slots)
        elif isinstance(wanted, int):
            count = max(1, min(wanted, self.table.workers))
        target = tuple(range(count))
        if target != self.table.in_use:
            edit.in_use = target
            yield self._decision(seen, "scale", f"{len(now)} workers in use, {count} wanted", workers=count)
        if self.table.scheme in ("ssp", "grid"):
            return
        owner = self.table.owner
        outside = ~np.isin(owner, target) & (owner < GRIDS)
        spread = len(target) > len(now)
        laid_outside = [key for key in self._grid_keys() if not set(self._grid_of(key).workers) <= set(target)]
        if outside.any() or spread:
            groups = np.arange(BUCKETS)
            movable = edit.has_room(groups) & (owner < GRIDS)
            plain = np.where(owner < GRIDS, owner, target[0]).astype(np.int32)
            loads = np.mean(self._buckets, axis=0) + 1e-9
            if spread:
                # No worker has room for a bucket above the fair share; the other buckets must not wait for it.
                loads[(loads > loads.sum() / len(target)) & ~outside] = 0.0
            moves = choose_moves(plain, loads, np.zeros(self.table.workers), list(target), movable)
            self._assign(edit, moves)
            self._migrations.begin(self.table.version + 1, moves)
        for key in self._grid_keys() if spread else laid_outside:
            group = edit.group_of_key(key)
            # A key with too many live assignments waits until one is dead.
            if group is not None and edit.has_room(np.array([group])).all() and not self._lay(seen, edit, key, target):
                edit.demote(key)
                self._keys.demoted(key)

    # Hot keys.

    def _grid_keys(self) -> list[int]:
        table = self.table
        keys = zip(table.key_hashes.tolist(), table.key_demoted.tolist(), strict=True)
        return [key for key, demoted in keys if not demoted]

    def _grid_of(self, key: int) -> Grid:
        return self.table.grids[int(self.table.live[edit_group(self.table, key), 0])]

    def _promote(self, seen: Observation, edit: TableEdit) -> Iterator[Decision]:
        total = float(seen.work.sum())
        in_use = edit.in_use
        if len(in_use) < 2 or not total:
            return
        fair = total / len(in_use)
        hot, cold = self._keys.add(seen.keys, fair)
        for key in cold:
            group = edit.group_of_key(key)
            if group is None or not edit.has_room(np.array([group])).all():
                continue
            share = sum(self._keys.counts(key)) / fair
            edit.demote(key)
            self._keys.demoted(key)
            yield self._decision(seen, "demote", f"{share:.2f} of a worker's fair share", key=f"{key:016x}")
        for key in hot:
            group = edit.group_of_key(key)
            if not edit.has_room(np.array([key & (BUCKETS - 1) if group is None else group])).all():
                continue
            counts = self._keys.counts(key)
            grid = self._lay(seen, edit, key, in_use)
            if grid is None:
                yield from self._stay(seen, key, fair)
                continue
            self._keys.promoted(key)
            reason = f"{sum(counts) / fair:.2f} of a worker's fair share: {counts[0]:.0f} left rows, " + (
                f"{counts[1]:.0f} right rows and {counts[2]:.0f} results per batch"
            )
            yield self._decision(seen, "promote", reason, key=f"{key:016x}", grid=grid.shape)
        self._unsplittable &= set(hot)
        yield from self._relay(seen, edit, fair)

    def _stay(self, seen: Observation, key: int, fair: float) -> Iterator[Decision]:
        """Report a key once that is hot because of rows that cannot be split."""
        if key not in self._unsplittable:
            self._unsplittable.add(key)
            counts, split = self._keys.counts(key), self._home or 0
            names = ("left", "right")
            reason = (
                f"{sum(counts) / fair:.2f} of a worker's fair share, but only {names[split]} rows can be split: "
                + (f"{counts[1 - split]:.0f} {names[1 - split]} rows per batch would be copied to every worker")
            )
            yield replace(self._decision(seen, "stay", reason, key=f"{key:016x}"), version=self.table.version)

    def _relay(self, seen: Observation, edit: TableEdit, fair: float) -> Iterator[Decision]:
        """Give a key another grid when it has outgrown its own, or when the rates of the streams have reversed."""
        outgrown: dict[int, int] = {}
        for key in self._grid_keys():
            group = edit.group_of_key(key)
            if group is None or edit.is_draining(group) or self._keys.is_cooling(key):
                continue
            if not edit.has_room(np.array([group])).all():  # its bucket is changing
                continue
            counts, grid = self._keys.counts(key), self._grid_of(key)
            rates = self._key_rates(seen, key)
            best = self._key_grid(seen, key, edit.in_use)
            if best is None:
                split = self._home or 0
                turned = counts[1 - split] > counts[split] + counts[2]  # a stricter limit than for splitting a key
                outgrown[key] = self._outgrown.get(key, 0) + 1 if turned else 0
                if outgrown[key] >= SAMPLES:
                    edit.demote(key)
                    self._keys.demoted(key)
                    yield from self._stay(seen, key, fair)
                continue
            busiest = [float(expected_loads(g, rates, self.table.workers).max()) for g in (grid, best)]
            fits = busiest[1] <= _KEY_SHARE * fair
            grown = busiest[0] > _OUTGROWN * _KEY_SHARE * fair and busiest[1] < _RELAY * busiest[0]
            cheaper = fits and rates.cost(best) < _RELAY * rates.cost(grid)
            if not grown and not cheaper:
                continue
            outgrown[key] = self._outgrown.get(key, 0) + 1
            if outgrown[key] >= SAMPLES:
                edit.promote(key, best)
                reason = (
                    f"{sum(counts) / fair:.2f} of a worker's fair share, its busiest worker {busiest[0] / fair:.2f}"
                )
                yield self._decision(seen, "reshape", reason, key=f"{key:016x}", grid=best.shape)
        self._outgrown = outgrown

    def _key_rates(self, seen: Observation, key: int) -> Rates:
        counts = self._keys.counts(key)
        return Rates.of(counts[:2], seen.row_bytes, self._windows.batches(), counts[2])

    def _lay(self, seen: Observation, edit: TableEdit, key: int, in_use: tuple[int, ...]) -> Grid | None:
        """Give a key a grid on the least loaded workers in use; return None if no grid would help."""
        grid = self._key_grid(seen, key, in_use)
        if grid is not None:
            edit.promote(key, grid)
        return grid

    def _key_grid(self, seen: Observation, key: int, in_use: tuple[int, ...]) -> Grid | None:
        counts = self._keys.counts(key)
        others = self._bucket_work(seen)
        home = int(self.table.owner[key & (BUCKETS - 1)])
        if home < GRIDS and key not in self._grid_keys():
            others[home] = max(0.0, others[home] - sum(counts))
        order = sorted(in_use, key=lambda worker: (others[worker], worker))
        fair = float(seen.work.sum()) / len(in_use)
        rates = self._key_rates(seen, key)
        if self._home is None:
            grid: Grid | None = key_grid(order, rates, _KEY_SHARE * fair, self._most_columns)
        else:
            grid = home_grid(order, rates, _KEY_SHARE * fair, self._home)
        return None if grid is None else level_weights(grid, others, sum(counts))

    # Weights: least loaded first.

    def _weigh(self, seen: Observation, edit: TableEdit) -> Iterator[Decision]:
        self._rest = max(0, self._rest - 1)
        if self._rest or seen.version < self.table.version or self._draining(seen):
            return
        workers = self.table.workers
        newest = {int(number) for number in np.unique(self.table.live[:, 0]) if number >= GRIDS}
        loads = {n: self._grid_load(seen, n) for n in newest if n in seen.grids}
        buckets = self._bucket_work(seen)
        buckets[list(set(range(workers)) - set(self.table.in_use))] = 0.0
        for number in sorted(loads, key=lambda n: -float(loads[n].sum())):
            grid = self.table.grids[number]
            others = buckets + sum((loads[n] for n in loads if n != number), np.zeros(workers))
            members = np.array(grid.workers)
            now = (others + loads[number])[members]
            if now.max() <= _UNEVEN * now.mean():
                continue
            weighed = level_weights(grid, others, float(loads[number].sum()))
            if weighed == grid:
                continue
            edit.set_weights(number, weighed)
            self._rest = _WEIGHTS_REST
            ratio = now.max() / now.mean()
            yield self._decision(
                seen, "weights", f"the busiest worker of grid {number - GRIDS} had {ratio:.2f} of the mean",
                grid=grid.shape,
            )  # fmt: skip
            return

    def _weigh_by_load(self, seen: Observation, edit: TableEdit) -> Iterator[Decision]:
        """Reduce the weight of a hot worker of the single grid: the rows are even, so their cost per worker differs."""
        self._batches += 1
        table = self.table
        if seen.version < table.version or (table.live[:, 1] >= 0).any():
            # Loads that were measured while old assignments were still probed do not show the effect of the weights.
            self._hot_spots, self._rest = HotSpotRule(), _LOADS_REST
            return
        self._rest = max(0, self._rest - 1)
        number = int(table.live[0, 0])
        grid = table.grids[number]
        hot = self._hot_spots.judge(self._averages, grid.workers)
        if hot is None or self._rest or (self._measure == "cpu" and self._batches <= _WARMING):
            return
        rates = Rates(float(seen.rows[0]), float(seen.rows[1]), 0.0, 0.0, float(seen.results))
        weighed = weigh_by_load(grid, rates, self._averages.over(5))
        if weighed is not None:
            edit.set_weights(number, weighed)
            self._rest = _LOADS_REST
            yield self._decision(seen, "weights", hot.reason, grid=grid.shape)

    def _grid_load(self, seen: Observation, number: int) -> Loads:
        grid = self.table.grids[number]
        left, right, results = seen.grids[number]
        copies = grid.copies
        return expected_loads(grid, Rates(left / copies[0], right / copies[1], 0.0, 0.0, results), self.table.workers)

    # Hot workers.

    def _bucket_loads(self, seen: Observation) -> Loads:
        return seen.buckets if len(seen.buckets) else np.zeros(BUCKETS)

    def _draining(self, seen: Observation) -> bool:
        """Whether old assignments of hot keys still have much work: this ends by itself, so nothing should move yet."""
        table = self.table
        moved = np.flatnonzero((table.live[BUCKETS:, 0] >= GRIDS) & (table.live[BUCKETS:, 1] >= 0))
        homes = (table.key_hashes[moved] & np.uint64(BUCKETS - 1)).astype(np.int64)
        fair = float(seen.work.sum()) / len(table.in_use)
        return float(self._bucket_loads(seen)[np.unique(homes)].sum()) > _DRAINED * fair

    def _bucket_work(self, seen: Observation) -> Loads:
        owner = self.table.owner
        alone = owner < GRIDS
        work: Loads = np.bincount(owner[alone], self._bucket_loads(seen)[alone], minlength=self.table.workers).astype(
            np.float64
        )
        return work

    def _move(self, seen: Observation, edit: TableEdit) -> Iterator[Decision]:
        self._batches += 1
        changing = self._moving or self._migrations.busy or seen.version < self.table.version
        if changing or (self._measure == "cpu" and self._batches <= _WARMING) or self._draining(seen):
            # Loads that were measured while old assignments were still probed are no reason for more moves.
            self._hot_spots = HotSpotRule()
            return
        hot = self._hot_spots.judge(self._averages, self.table.in_use)
        if hot is None:
            return
        table = self.table
        fixed = np.zeros(table.workers)
        for number in np.unique(table.live[:, 0]).tolist():
            if number >= GRIDS and number in seen.grids:
                fixed += self._grid_load(seen, number)
        buckets = np.mean(self._buckets, axis=0)
        if self._measure == "cpu":
            # Buckets are counted in rows and results. A worker's CPU time gives the cost of each of them there.
            scale = seen.cpu_ms / np.maximum(1.0, seen.work)
            buckets, fixed = buckets * scale[table.owner % GRIDS % table.workers], fixed * scale
        movable = edit.has_room(np.arange(BUCKETS)) & (table.owner < GRIDS)
        barred = self._migrations.barred(table.owner % GRIDS, self._averages.over(1), self._averages.over(5))
        moves = choose_moves(
            (table.owner % GRIDS).astype(np.int32), buckets, fixed, list(table.in_use), movable, barred=barred
        )
        if not moves:
            return
        self._assign(edit, moves)
        self._migrations.begin(table.version + 1, moves)
        yield self._decision(
            seen, "move", hot.reason, buckets=len(moves),
            workers=sorted({worker for _, *pair in moves for worker in pair}),
        )  # fmt: skip

    def _assign(self, edit: TableEdit, moves: list[tuple[int, int, int]]) -> None:
        by_target: dict[int, list[int]] = {}
        for bucket, _, target in moves:
            by_target.setdefault(target, []).append(bucket)
        for target, buckets in sorted(by_target.items()):
            edit.assign(np.array(buckets), target)

    # One grid for everything.

    def _reshape(self, seen: Observation, edit: TableEdit) -> Iterator[Decision]:
        wanted = self._shape.judge(seen, self._windows.batches(), self.table, edit.in_use)
        groups = np.arange(BUCKETS)
        if wanted is None or not edit.has_room(groups).all():
            return
        grid, reason = wanted
        edit.assign(groups, edit.add_grid(grid))
        self._shape.changed()
        yield self._decision(seen, "master" if self.table.scheme == "ssp" else "reshape", reason, grid=grid.shape)


def edit_group(table: RoutingTable, key: int) -> int:
    return BUCKETS + int(np.searchsorted(table.key_hashes, np.uint64(key)))
