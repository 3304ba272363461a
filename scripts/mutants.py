"""The mutations of `mutations.py`: faults that this project has had or fears, and the tests that notice each."""

from __future__ import annotations

from dataclasses import dataclass

# Other arguments go to pytest as they are: `-k` picks what of the contract suite should notice.
_CONTRACT = "tests/contract/test_contract.py"
_JOIN = (
    "tests/unit/test_routing_exact.py",
    "tests/unit/test_join_time.py",
    _CONTRACT,
    "-k",
    "not multijoin and not order",
)
_STATE = ("tests/unit/test_state.py", *_JOIN)
_BUFFERS = (
    "tests/unit/test_buffers.py",
    "tests/unit/test_byte_budget.py",
    _CONTRACT,
    "-k",
    "not test_contract or budget",
)
_ORDER = ("tests/unit/test_order_local.py", _CONTRACT, "-k", "not test_contract or stream or per")
_HALVES = ("tests/unit/test_routing.py", "tests/unit/test_options.py", "tests/unit/test_multijoin.py", *_STATE)
_CUTS = (_CONTRACT, "-k", "cuts_order and (exact or window)")
_APART = (_CONTRACT, "-k", "far_apart and (exact or one) and not group")
_FIFO = ("tests/unit/test_buffers.py", "-k", "FIFO")
_STAGE = ("tests/unit/test_ordering_stage.py", *_ORDER)
_MATCH = ("tests/unit/test_match_local.py",)
_ASOF = ("tests/unit/test_asof.py", _CONTRACT, "-k", "not test_contract or (asof and (cuts or far))")
_HOMES = ("tests/unit/test_outer_routing.py",)
_ROWS = ("tests/unit/test_rows_join.py", _CONTRACT, "-k", "not test_contract or (last and (cuts or far))")
_KINDS = ("tests/unit/test_sql_kinds.py",)
_DETECT = ("tests/unit/test_detect.py", _CONTRACT, "-k", "not test_contract or (detect and (cuts or far))")

# Where random faults are put, and the tests that ought to notice them.
CORE: dict[str, tuple[str, ...]] = {
    "operators/join/window_join.py": _STATE,
    "operators/join/stored.py": _STATE,
    "operators/join/arrivals.py": _STATE,
    "operators/join/outer_join.py": ("tests/unit/test_outer_join.py", *_HOMES),
    "routing/home_routes.py": _HOMES,
    "routing/home_edit.py": _HOMES,
    "operators/rows_join/rows_join.py": _ROWS,
    "operators/rows_join/last_rows.py": _ROWS,
    "eviction/buffer_kernel.py": _BUFFERS,
    "eviction/heap.py": _BUFFERS,
    "eviction/key_index.py": _BUFFERS,
    "operators/order/order_operator.py": _ORDER,
    "runtime/ordering_stage.py": _STAGE,
    "runtime/waiting_runs.py": _STAGE,
    "runtime/blocks.py": ("tests/unit/test_blocks.py", "tests/unit/test_state.py"),
    "operators/match/search_kernel.py": (*_MATCH, "tests/unit/test_match_search.py"),
    "operators/match/match_operator.py": _MATCH,
    "operators/match/open_rows.py": _MATCH,
    "operators/asof/asof_join.py": _ASOF,
    "operators/asof/closest.py": _ASOF,
    "operators/asof/closest_kernels.py": _ASOF,
    "operators/asof/waiting_rows.py": _ASOF,
    "operators/detect/hierarchy.py": _DETECT,
    "operators/detect/unit.py": _DETECT,
    "operators/detect/keyed_state.py": _DETECT,
    "runtime/router.py": _HALVES,
    "runtime/worker.py": _HALVES,
}


@dataclass(frozen=True)
class Mutation:
    """A way to break the code, and the tests that must turn red."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ("tests/unit/test_routing_exact.py",)


MUTATIONS = (
    Mutation(
        "no probe-only copies to older assignments",
        "routing/routes.py",
        "for place in range(MAX_LIVE):",
        "for place in range(1):",
    ),
    Mutation(
        "one shared clock for both streams",
        "operators/join/window_join.py",
        "        kept.advance(work)\n",
        "        kept.advance(work)\n"
        "        for stream in kept.streams:\n"
        "            stream.trust.clock = max((c for c in kept.clocks if c is not None), default=stream.clock)\n",
        _APART,
    ),
    Mutation(
        "expiry before probing",
        "operators/join/window_join.py",
        "        for left in new[0]:\n            for right in (*kept.runs_for",
        "        kept.advance(work)\n"
        "        for side in (0, 1):\n"
        "            kept.absorb(side, [])\n"
        "        for left in new[0]:\n            for right in (*kept.runs_for",
        _CUTS,
    ),
    Mutation(
        "routers that ignore the pin",
        "spark/routing.py",
        "table = control.pin(batch, query, self.first(workers))",
        "table = control.newest(self.first(workers))",
        ("tests/unit/test_routing.py",),
    ),
    Mutation(
        "a returning assignment keeps its old place",
        "routing/edit.py",
        "np.where(live == assignment, -1, live)",
        "live",
    ),
    Mutation(
        "a promoted key forgets where its bucket stored it",
        "routing/edit.py",
        "        self.assign(np.array([group]), self.add_grid(grid))",
        "        self.assign(np.array([group]), self.add_grid(grid))\n        self._live[group, 1:] = -1",
    ),
    Mutation(
        "a left row in one column of a grid only",
        "routing/grid.py",
        "for column, bounds in zip(self.columns, self._row_bounds, strict=True):",
        "for column, bounds in list(zip(self.columns, self._row_bounds, strict=True))[:1]:",
    ),
    Mutation(
        "every time moves a clock",
        "time/trust.py",
        "ahead = [cluster for cluster in clusters if cluster.first - clock > jump]",
        "ahead: list[Cluster] = []",
        ("tests/unit/test_trust.py",),
    ),
    Mutation(
        "a leap of the clock counts as going on",
        "time/quarantine.py",
        "(since.moved, since.rows) if since.leaps == self.leaps else (0, 0)",
        "since.moved, since.rows",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "rows are given up before anybody asks whether their time has come",
        "time/quarantine.py",
        "if first <= self.limit:",
        "if first <= self.limit and not self._gone[side].on_for(since, patience):",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "the first row of a stream is its clock",
        "time/trust.py",
        "settled: bool = False",
        "settled: bool = True",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "an assignment dies by clocks alone",
        "balance/controller.py",
        "seen.clocks, seen.ahead",
        "seen.clocks",
        ("tests/unit/test_silences.py",),
    ),
    Mutation(
        "quarantined rows are not met",
        "operators/join/stored.py",
        "groups = [*self.sides[side], *(infos for _, infos in self.apart[side])]",
        "groups = [*self.sides[side]]",
        ("tests/unit/test_join_time.py",),
    ),
    Mutation(
        "a row of several streams stored under its newest assignment only",
        "operators/multijoin/stamps.py",
        "batch if block.stored else -batch",
        "batch",
        ("tests/unit/test_multijoin_routing.py",),
    ),
    Mutation(
        "an upper detector does not wait for events that are dated earlier",
        "operators/detect/hierarchy.py",
        "clamp(unit.until - delay.now)",
        "clamp(unit.until)",
        _DETECT,
    ),
    Mutation(
        "a rise of a detector's delay is handed up a batch later",
        "operators/detect/hierarchy.py",
        "comes = MAX_TIME if final else clamp(unit.until - delay.now)",
        "comes = MAX_TIME if final else clamp(unit.until - (0 if of_type else delay.now))",
        _DETECT,
    ),
    Mutation(
        "events of one time are in any order of their types",
        "operators/detect/event_batches.py",
        "return together if order is None else together.take(pa.array(order))",
        "return together",
        _DETECT,
    ),
    Mutation(
        "a late event is seen out of order",
        "operators/detect/unit.py",
        "                batch = batch.filter(pa.array(~late))  # noqa: PLW2901\n",
        "",
        _DETECT,
    ),
    Mutation(
        "a key is forgotten at the end of a batch only",
        "operators/detect/event_batches.py",
        "later(times[1:], times[:-1]) > gap",
        "False",
        _DETECT,
    ),
    Mutation(
        "a key that has been silent for too long finds its state",
        "operators/detect/keyed_state.py",
        "known = known[later(begins[of[known]], last[known]) <= self._forget]",
        "pass",
        _DETECT,
    ),
    Mutation(
        "states of silent keys are never forgotten",
        "operators/detect/keyed_state.py",
        "(of < 0) & (last >= expired)",
        "of < 0",
        (_CONTRACT, "-k", "detect and grow"),
    ),
    Mutation(
        "a match ends a moment before its time has run out",
        "operators/match/search_kernel.py",
        "deadline < horizon, limit",
        "deadline <= horizon, limit",
        _MATCH,
    ),
    Mutation(
        "an open match whose key has nothing new is never decided",
        "operators/match/search_kernel.py",
        "and deadline_of(times[start], keeping.longest) >= horizon:",
        "and within < horizon:",
        _MATCH,
    ),
    Mutation(
        "a negation is decided by the rows that are there",
        "operators/match/search_kernel.py",
        "return _FOUND if closed else _WAITS",
        "return _FOUND",
        ("tests/unit/test_match_search.py",),
    ),
    Mutation(
        "what failed for one start fails for the next",
        "operators/match/search_kernel.py",
        "    space.numbers[_STAMP] += 1\n",
        "    space.numbers[_STAMP] = 1\n",
        ("tests/unit/test_match_search.py",),
    ),
    Mutation(
        "a row behind the horizon is taken where no later one has left",
        "operators/match/match_operator.py",
        "blocks, agreed=True)",
        "blocks)",
        _MATCH,
    ),
    Mutation(
        "open rows of a leaf wait for its next row",
        "operators/match/open_rows.py",
        "leaf.oldest < expired",
        "leaf.oldest < expired - 1",
        _MATCH,
    ),
    Mutation(
        "an as-of answer comes out before a row of the same time can come",
        "runtime/ordering_stage.py",
        "stop = len(times) if self._final else int(np.searchsorted(times, self.ahead))",
        'stop = len(times) if self._final else int(np.searchsorted(times, self.ahead, side="right"))',
        _ASOF,
    ),
    Mutation(
        "right rows expire although left rows to come may need them",
        "operators/asof/asof_join.py",
        "yield Moments(left, right, stage.ahead, stage.until, final)",
        "yield Moments(left, right, stage.ahead, stage.ahead, final)",
        _ASOF,
    ),
    Mutation(
        "the answer of a left row that waits expires",
        "operators/asof/closest.py",
        "needed[waiting[waiting >= 0]] = True",
        "needed[waiting[waiting >= 0]] |= False",
        _ASOF,
    ),
    Mutation(
        "a late left row comes out with nulls",
        "operators/asof/asof_join.py",
        "decided &= ~lost",
        "decided &= True",
        _ASOF,
    ),
    Mutation(
        "of right rows of one time the last to come answers",
        "operators/asof/ties.py",
        "order = np.lexsort((*reversed(keys), group))",
        "order = np.lexsort((group,))",
        _ASOF,
    ),
    Mutation(
        "nearest is decided although a closer row can come",
        "operators/asof/closest.py",
        "np.minimum((back - 1).view(np.int64), _room(times))",
        "np.minimum((back - 2).view(np.int64), _room(times))",
        _ASOF,
    ),
    Mutation(
        "reluctant quantifiers are greedy",
        "operators/match/automaton.py",
        "if greedy else [_DONE, *begin]",
        "if greedy else [*begin, _DONE]",
        _MATCH,
    ),
    Mutation(
        "the row before is the row itself",
        "operators/match/navigation.py",
        "places = np.arange(len(self.times)) + offset",
        "places = np.arange(len(self.times)) + max(0, offset)",
        _MATCH,
    ),
    Mutation(
        "new rows of the right stream meet nothing that is stored",
        "operators/join/window_join.py",
        "for left in kept.runs_for(right, 0):",
        "for left in list(kept.runs_for(right, 0))[:0]:",
        _CUTS,
    ),
    Mutation(
        "rows at the horizon itself expire",
        "operators/join/runs.py",
        "return run.take(np.flatnonzero(run.times >= horizon))",
        "return run.take(np.flatnonzero(run.times > horizon))",
        ("tests/unit/test_state.py", "-k", "expiry"),
    ),
    Mutation(
        "a stored run is passed over by its last time",
        "operators/join/runs.py",
        "and self.last_time >= times[0]",
        "and self.last_time > times[0]",
        _CUTS,
    ),
    Mutation(
        "numbers of blocks start again after a restart",
        "runtime/blocks.py",
        'number = int(self._known.get("next", 0))',
        "number = len(self._known)",
        _CUTS,
    ),
    Mutation(
        "merged runs stay in the store",
        "operators/join/stored.py",
        "                if isinstance(item, list):\n                    self._delete(item)\n",
        "                pass\n",
        ("tests/unit/test_state.py", "-k", "few_runs"),
    ),
    Mutation(
        "of equal credits the youngest goes",
        "eviction/heap.py",
        "if p.credit < credit or (p.credit == credit and p.seq < seq):",
        "if p.credit < credit or (p.credit == credit and p.seq > seq):",
        _FIFO,
    ),
    Mutation(
        "a key that leaves hides another",
        "eviction/key_index.py",
        "& (size - 1)) >= ((at - hole)",
        "& (size - 1)) > ((at - hole)",
        ("tests/unit/test_buffers.py", "-k", "many_keys"),
    ),
    Mutation(
        "rows as old as the window is long are out of it",
        "eviction/buffer_kernel.py",
        "if time - rows[slot].time <= streams[q].retention:",
        "if time - rows[slot].time < streams[q].retention:",
        _FIFO,
    ),
    Mutation(
        "a full output makes a chain start again",
        "eviction/buffer_kernel.py",
        "slot = totals[0].at_slot if q == resumed else int(chains[entry, q].first)",
        "slot = int(chains[entry, q].first)",
        ("tests/unit/test_buffers.py", "-k", "chain_longer"),
    ),
    Mutation(
        "a budget in bytes forgets the newcomer",
        "eviction/buffer_kernel.py",
        "or totals[0].bytes + size > most",
        "or totals[0].bytes > most",
        ("tests/unit/test_byte_budget.py", "-k", "fifo_is_what"),
    ),
    Mutation(
        "rows leave as soon as the clock has passed them",
        "time/stream_clock.py",
        "clamp(self.counted - self.lateness)",
        "clamp(self.counted)",
        _APART,
    ),
    Mutation(
        "clocks are lost in a restart",
        "time/stream_clock.py",
        '        self.trust = Trust.from_json(state["trust"])\n',
        "",
        _APART,
    ),
    Mutation(
        "no stream is ever idle",
        "time/stream_clock.py",
        "self._idle_after is not None and self.silent >= self._idle_after",
        "False",
        ("tests/unit/test_order_local.py", "-k", "idle"),
    ),
    Mutation(
        "packets are taken as they come",
        "runtime/worker.py",
        "key=lambda packet: (packet.side, packet.task, packet.seq, packet.kind)",
        "key=lambda packet: packet.side",
        (_CONTRACT, "-k", "repeats_itself and exact"),
    ),
    Mutation(
        "the report forgets earlier batches",
        "runtime/worker.py",
        'book["counts"].get(name, 0) + count',
        "count",
        _CUTS,
    ),
    Mutation(
        "another table of the same version is not noticed",
        "runtime/worker.py",
        "if table[0] == version and table[1] != digest:",
        "if table[0] == version and table[1] == version:",
        ("tests/unit/test_state.py", "-k", "table"),
    ),
    Mutation(
        "a checkpoint of another worker is taken",
        "runtime/worker.py",
        'if book["worker"] != task.worker:',
        'if book["worker"] > task.workers:',
        (_CONTRACT, "-k", "columns_or_workers and exact"),
    ),
    Mutation(
        "rows without a key are not counted",
        "runtime/router.py",
        "seen.null_keys += admitted.null_keys",
        "seen.null_keys += 0",
        _CUTS,
    ),
    Mutation(
        "a task of one row loses it",
        "runtime/router.py",
        "    if waiting:\n        yield pa.concat_batches(waiting)",
        "    if rows > 1:\n        yield pa.concat_batches(waiting)",
        _CUTS,
    ),
    Mutation(
        "copies that only probe are stored",
        "runtime/router.py",
        "(stored_end, ends[-1], PROBE, (0, 0)),",
        "(stored_end, ends[-1], 0, (0, 0)),",
    ),
    Mutation(
        "an assignment declared dead one window early",
        "routing/assignment_expiry.py",
        "end.top < self.window.horizon(side, self._last[2])",
        "end.top < self.window.horizon(side, self._last[2]) + self.window.hi - self.window.lo",
        _APART,
    ),
    Mutation(
        "new rows stored under every live assignment",
        "routing/routes.py",
        "stored=place == 0, primary=place == 0",
        "stored=True, primary=place == 0",
    ),
    Mutation(
        "a demoted key does not follow its bucket",
        "routing/edit.py",
        "follow = BUCKETS + np.flatnonzero(self._demoted & np.isin(self._buckets_of_keys, buckets))",
        "follow = np.zeros(0, np.int64)",
        ("tests/unit/test_table_edit.py",),
    ),
    Mutation(
        "homes: a preserved row is stored under the opening",
        "routing/home_routes.py",
        "table.home[groups]",
        "table.live[groups, 0]",
        _HOMES,
    ),
    Mutation(
        "homes: a preserved row probes old homes",
        "routing/home_routes.py",
        "        if sum(len(rows)",
        "        parts += copies(table, side, table.live[groups, 1], content, stored=False, primary=False)\n"
        "        if False and sum(len(rows)",
        _HOMES,
    ),
    Mutation(
        "homes: a row of the other side is not stored under the opening",
        "routing/home_routes.py",
        "is_open = place <= home_place",
        "is_open = place == home_place",
        _HOMES,
    ),
    Mutation(
        "homes: no probes to old homes",
        "routing/home_routes.py",
        "for stored in (True, False):",
        "for stored in (True,):",
        _HOMES,
    ),
    Mutation(
        "homes: copies of one worker meet whatever their assignment",
        "routing/routes.py",
        "            yield at, workers, number, stored,",
        "            yield at, workers, 0, stored,",
        _HOMES,
    ),
    Mutation(
        "homes: the home changes at once",
        "routing/assignment_expiry.py",
        "if self._passed(version, 1 - self.home):",
        "if self._passed(version, 1 - self.home) or version:",
        _HOMES,
    ),
    Mutation(
        "homes: an opening begins when its table is published",
        "routing/assignment_expiry.py",
        "known for known in self._ends if known >= version",
        "known for known in self._ends if known >= version - 1",
        _HOMES,
    ),
    Mutation(
        "homes: a missing report is not noticed",
        "routing/assignment_expiry.py",
        "end = self._last[3] if self._last[0] == batch - 1 else now",
        "end = self._last[3]",
        _HOMES,
    ),
    Mutation(
        "homes: a restarted controller thinks that nothing was stored before",
        "routing/assignment_expiry.py",
        "            self._ends[version] = now\n",
        "            self._ends[version] = [_End(None) for _ in now]\n",
        _HOMES,
    ),
    Mutation(
        "homes: an assignment that comes back is the home at once",
        "routing/home_edit.py",
        "        super()._put_first(groups, assignment)\n",
        "        back = (self._live[groups] == assignment).any(axis=1)\n"
        "        super()._put_first(groups, assignment)\n"
        "        groups = groups[~back]\n",
        _HOMES,
    ),
    Mutation(
        "homes: rows in quarantine hold nothing back",
        "routing/assignment_expiry.py",
        "now = [_End(clock) for clock in clocks] if ahead is None else",
        "now = [_End(clock) for clock in clocks] if ahead is None or self.home is not None else",
        _HOMES,
    ),
    Mutation(
        "homes: an old home is dead at once",
        "routing/assignment_expiry.py",
        "if self._passed(version, self.home):",
        "if self._passed(version, self.home) or self.home is not None:",
        _HOMES,
    ),
    Mutation(
        "homes: an old home is bound by the opening",
        "routing/home_edit.py",
        "            self._since[groups, 0] = 0\n            self._since[groups, 1] = self._version\n",
        "            self._since[groups, 1] = self._since[groups, 0]\n            self._since[groups, 0] = 0\n",
        _HOMES,
    ),
    Mutation(
        "homes: doubted rows are taken for discarded",
        "routing/assignment_expiry.py",
        "gone = over and seen.gone.on_for(end.gone, self.window.patience(side))",
        "gone = over and seen.gone != end.gone",
        _HOMES,
    ),
    Mutation(
        "homes: horizons go back",
        "operators/join/outer_join.py",
        "self.safe[side] = max(self.safe[side], clamp(clock - stream.lateness))",
        "self.safe[side] = clamp(clock - stream.lateness)",
        _HOMES,
    ),
    Mutation(
        "homes: a row behind an idle stream's horizon is not late",
        "operators/join/outer_join.py",
        "new = [self._settled(side, self.new_runs(side, keyed, stored=True), kept.safe[side]) for side in (0, 1)]",
        "new = [self._settled(s, self.new_runs(s, keyed, stored=True), kept.streams[s].safe) for s in (0, 1)]",
        _HOMES,
    ),
    Mutation(
        "homes: rows leave before the batch has probed",
        "operators/join/outer_join.py",
        "        emitter = OuterEmitter(self, tally)\n",
        "        emitter = OuterEmitter(self, tally)\n"
        "        kept.advance(work)\n"
        "        for side in self.untimed:\n"
        "            for run, at in kept.leaving(side, (), final=work.final):\n"
        "                yield from emitter.alone(side, run.rows.take(pa.array(at)))\n",
        _HOMES,
    ),
    Mutation(
        "homes: a late row comes out alone",
        "operators/join/outer_join.py",
        'if self.how == "left_semi" else is_late',
        "if self.preserved else is_late",
        _HOMES,
    ),
    Mutation(
        "homes: a row in quarantine comes out alone",
        "operators/join/outer_join.py",
        "believed = horizon if final else min(horizon, clamp(self._quarantine.limit + 1))",
        "believed = MAX_TIME",
        _HOMES,
    ),
    Mutation(
        "homes: a row that is believed and passed at once is lost",
        "operators/join/outer_join.py",
        "        groups += [(believed, infos) for _, infos in self.apart[side]]\n",
        "        groups += [(believed, infos) for _, infos in self.apart[side] if final]\n",
        ("tests/unit/test_outer_join.py", "-k", "doubted"),
    ),
    Mutation(
        "homes: doubted rows are judged by the first of them",
        "operators/join/stored.py",
        'if rule.judge(side, limit + 1, since, patience) == "given up":',
        'if rule.judge(side, limit, since, patience) == "given up":',
        ("tests/unit/test_outer_join.py", "-k", "doubted"),
    ),
    Mutation(
        "homes: a key changes while its bucket does",
        "routing/home_edit.py",
        "        free[BUCKETS:] &= ~changing[buckets]\n",
        "",
        _HOMES,
    ),
    Mutation(
        "homes: a bucket changes while a key of it does",
        "routing/home_edit.py",
        "buckets[changing[BUCKETS:] | (self._demoted & ~room[BUCKETS:])]",
        "buckets[self._demoted & ~room[BUCKETS:]]",
        _HOMES,
    ),
    Mutation(
        "homes: a demoted key is forgotten while its old homes are alive",
        "routing/edit.py",
        "not changing and mine <= its and",
        "not changing and",
        _HOMES,
    ),
    Mutation(
        "homes: rows without a key keep the tags of others",
        "operators/join/outer_join.py",
        "tags = None if block.tags is None else block.tags[valid]",
        "tags = None if block.tags is None else block.tags[: int(valid.sum())]",
        _HOMES,
    ),
    Mutation(
        "homes: a key that is hot by the other stream is split",
        "balance/shapes.py",
        "if size * copied <= own + rates.results:",
        "if size * copied >= 0:",
        ("tests/unit/test_outer_controller.py", "-k", "other_stream"),
    ),
    Mutation(
        "a join with the last rows keeps one row too few",
        "operators/rows_join/last_rows.py",
        "if rights < last_right and",
        "if rights < last_right - 1 and",
        _ROWS,
    ),
    Mutation(
        "a join with the last rows counts rows of the key before",
        "operators/rows_join/last_rows.py",
        "start, stop = max(first_left, lefts - last_left), lefts",
        "start, stop = max(0, lefts - last_left), lefts",
        _ROWS,
    ),
    Mutation(
        "a join with the last rows forgets a key between rows that it has stored",
        "operators/rows_join/rows_join.py",
        "gaps = is_new[1:] & (",
        "gaps = (True) & (",
        _ROWS,
    ),
    Mutation(
        "a join with the last rows does not store the row that keeps a key alive",
        "operators/rows_join/rows_join.py",
        "            self.forget is not None,\n            stays,",
        "            False,\n            stays,",
        _ROWS,
    ),
    Mutation(
        "a join with the last rows meets stored rows again",
        "operators/rows_join/rows_join.py",
        "is_new = order >= np.where(is_left, old_left, among + old_right)",
        "is_new = order >= np.where(is_left, 0, among + old_right)",
        _ROWS,
    ),
    Mutation(
        "a condition of ON on the stream that is kept filters it",
        "sqltext/kinds.py",
        """is_right = used == {alias} and how in ("inner", "left", "left_semi")""",
        """is_right = how in ("inner", "left", "left_semi") and len(used) == 1""",
        _KINDS,
    ),
    Mutation(
        "WHERE on the side of nulls goes before a left join",
        "sqltext/kinds.py",
        """is_whole = home == 0 or self._kinds[home] in ("inner", "right")""",
        """is_whole = True""",
        _KINDS,
    ),
    Mutation(
        "WHERE goes down past a right join",
        "sqltext/kinds.py",
        """_KEEP_LEFT = ("inner", "left", "left_semi", "left_anti")""",
        """_KEEP_LEFT = ("inner", "left", "right", "left_semi", "left_anti")""",
        _KINDS,
    ),
    Mutation(
        "WHERE chooses among the rows of an as-of join",
        "sqltext/kinds.py",
        """is_whole and not self._is_asof(home):""",
        """is_whole:""",
        _KINDS,
    ),
    Mutation(
        "NOT EXISTS is EXISTS",
        "sqltext/subqueries.py",
        'kind = "ANTI" if is_not else "SEMI"',
        'kind = "SEMI"',
        _KINDS,
    ),
    Mutation(
        "NOT IN is an anti join",
        "sqltext/subqueries.py",
        """if is_not and isinstance(node, exp.In):""",
        """if is_not and node is None:""",
        _KINDS,
    ),
    Mutation(
        "a column of USING is the left one also after a right join",
        "sqltext/shared_columns.py",
        """            if kind == "right":
                column = part.copy()
            elif""",
        """            if""",
        _KINDS,
    ),
    Mutation(
        "a condition after a left join moves into the other stream",
        "plan/rules/push_filter.py",
        """if spec.join_kind != "inner" and sides != {1 if spec.join_kind == "right" else 0}:""",
        """if spec.join_kind != "inner" and len(sides) != 1:""",
        ("tests/unit/test_plan.py",),
    ),
    Mutation(
        "the fastest of several streams decides what may leave",
        "time/stream_clock.py",
        "return min(clock.safe for clock in clocks if not clock.idle)",
        "return max(clock.safe for clock in clocks if not clock.idle)",
        (_CONTRACT, "-k", "far_apart and several and streams"),
    ),
    Mutation(
        "a silence releases nothing of an outer join",
        "operators/join/outer_join.py",
        "return MAX_TIME if final or self.silent else self.horizon(side)",
        "return MAX_TIME if final else self.horizon(side)",
        ("tests/unit/test_idle_release.py", "-k", "met_nothing"),
    ),
    Mutation(
        "a silent query asks for batches for ever",
        "operators/join/outer_join.py",
        "self.silent, self.fresh = came and idle, came and not idle",
        "self.silent, self.fresh = came and idle, came",
        ("tests/unit/test_idle_release.py", "-k", "met_nothing"),
    ),
    Mutation(
        "copies of a late row leave too",
        "operators/late_rows.py",
        "np.flatnonzero((late & has_key)[: block.rows.num_rows - block.copies])",
        "np.flatnonzero(late & has_key)",
        ("tests/unit/test_late_rows.py", "-k", "inner_join"),
    ),
)
