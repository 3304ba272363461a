"""The tactic of joins: several joins of the same streams under one budget, with each row in the buffer once."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.eviction.group_buffer import GroupBuffer, GroupEvents
from braided.eviction.recall.group_recall import GroupRecall
from braided.eviction.shared_buffer import SharedBuffer
from braided.operators.bounded import driver
from braided.operators.bounded.driver import Batch
from braided.operators.bounded.pairs import met_before
from braided.operators.multijoin.combination_emitter import MultiEmitter, OneRun
from braided.runtime.rows import Index, Rows

if TYPE_CHECKING:
    from braided.operators.bounded.join_group import JoinGroup
    from braided.operators.join.window_join import WindowJoin


class Joins:
    """Pairs of a row that enters and one in the buffer, in every join that has both streams."""

    def __init__(self, group: JoinGroup, batch: Batch, buffer: bytes | None, recall: bytes | None) -> None:
        self._group, self._entering, self._tally = group, batch.entering, batch.tally
        kind = SharedBuffer if group.share == "credits" else GroupBuffer
        self._buffer = kind(group.capacity, group.policy, streams=len(group.inputs), joins=group.windows)
        self._recall = GroupRecall(group.capacity, group.windows)
        if buffer is not None and recall is not None:
            self._buffer.restore(buffer, batch.entering.kept_ids)
            self._recall.restore(recall)
        if batch.sizes is not None and group.most_bytes is not None:
            self._buffer.set_facts(batch.sizes, group.most_bytes)

    def _events(self) -> GroupEvents:
        keys, roles, entering, members = [], [], self._entering, self._group.members
        for side, rows in enumerate(entering.arriving):
            keys.append(np.zeros((len(rows), len(members)), np.uint64))
            roles.append(np.full((len(rows), len(members)), -1, np.int8))
            for number, member in enumerate(members):
                role = member.role(side)
                if role is not None:
                    at = np.flatnonzero(valid_keys(rows.rows, member.join.keys[role]))
                    keys[-1][at, number] = _keys(member.join, role, rows if len(at) == len(rows) else rows.pick(at))
                    roles[-1][at, number] = role
        in_order = entering.in_order(keys), entering.in_order(roles)
        return GroupEvents(*in_order, entering.times, entering.streams, entering.contents, entering.ids)

    def run(self) -> Generator[pa.RecordBatch, None, dict[str, int]]:
        entering, recall, members, tally = self._entering, self._recall, self._group.members, self._tally
        events = self._events()
        probes, arrived, tags = (entering.by_id(name) for name in ("probes", "arrived", "tags"))
        probing, marked = bool(probes.any()), bool(probes.any() or tags.any())
        recall.begin(events, len(probes), entering.starts, probes if probing else None)
        ends = np.append(np.flatnonzero(events.rows >= 0), len(events.rows))
        events = GroupEvents(*(column[ends[:-1]] for column in events))
        emitters = [
            MultiEmitter(m.join, [OneRun(entering.sides[stream].rows) for stream in m.streams]) for m in members
        ]
        fed = 0
        for at, of, join, theirs in self._steps(events):
            if marked:
                mine = events.rows[of]
                met = (tags[mine] == tags[theirs]) & ((probes[mine] == 0) | (probes[theirs] == 0))
                of, join, theirs = of[met], join[met], theirs[met]  # noqa: PLW2901
            recall.feed(fed, int(ends[at]), ends[of], join, theirs)
            fed = int(ends[at])
            if probing:
                met = met_before(events.rows[of], theirs, probes, arrived)
                of, join, theirs = of[met], join[met], theirs[met]  # noqa: PLW2901
            for number in range(len(members)):
                mine = join == number
                if tally is not None:
                    which, counts = np.unique(of[mine], return_counts=True)
                    tally.results(events.keys[which, number], tags[events.rows[which]], counts)
                places = self._places(number, events, of[mine], theirs[mine])
                yield from self._tagged(number, emitters[number].emit(places))
        none = np.zeros(0, np.int64)
        recall.feed(fed, len(entering.ids), none, none.view(np.int8), none)
        for number, emitter in enumerate(emitters):
            yield from self._tagged(number, emitter.flush())
        results = {f"results_{m.name}": emitter.results for m, emitter in zip(members, emitters, strict=True)}
        return {"results": sum(results.values()), **results}

    def _steps(self, events: GroupEvents) -> Iterator[tuple[int, Index, npt.NDArray[np.int8], Index]]:
        """Yield how many events the buffer has processed, and event, join and row of each pair since the last step."""
        pair_event, pair_row = (np.empty(driver.PAIRS_AT_ONCE, np.int64) for _ in range(2))
        pair_join = np.empty(driver.PAIRS_AT_ONCE, np.int8)
        at = 0
        while at < len(events.rows):
            at, pairs = self._buffer.step(events, at, pair_event=pair_event, pair_join=pair_join, pair_row=pair_row)
            yield at, pair_event[:pairs], pair_join[:pairs], pair_row[:pairs]

    def _places(self, number: int, events: GroupEvents, of: Index, theirs: Index) -> list[Index]:
        streams = self._group.members[number].streams
        mine, from_left = events.rows[of], events.streams[of] == streams[0]
        ids = np.where(from_left, mine, theirs), np.where(from_left, theirs, mine)
        return [rows - self._entering.starts[stream] for stream, rows in zip(streams, ids, strict=True)]

    def _tagged(self, number: int, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            columns = [pa.array([self._group.members[number].name] * piece.num_rows, pa.string())]
            for other, field in enumerate(list(self._group.output)[1:]):
                mine = other == number
                columns.append(
                    pa.StructArray.from_arrays(piece.columns, fields=list(piece.schema))
                    if mine
                    else pa.nulls(piece.num_rows, field.type)
                )
            yield pa.RecordBatch.from_arrays(columns, schema=self._group.output)

    def kept_ids(self) -> Index:
        return self._buffer.ids

    def move(self, positions: Index) -> None:
        self._recall.moved(positions)

    def counts(self) -> dict[str, int]:
        counts = self._buffer.counts
        return {"stored_rows": self._buffer.rows, **{name: counts[name] for name in ("evicted", "refused")}}

    def recall(self) -> list[list[float]]:
        return self._recall.sums()

    def to_bytes(self) -> dict[str, bytes]:
        return {"buffer": self._buffer.to_bytes(), "recall": self._recall.to_bytes()}


def _keys(join: WindowJoin, role: int, rows: Rows) -> npt.NDArray[np.uint64]:
    return join.hashes(role, rows.rows, rows.tags if rows.tags.any() else None)


def valid_keys(rows: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which rows have no null in any of these columns."""
    valid = np.ones(rows.num_rows, np.bool_)
    for name in names:
        if rows.column(name).null_count:
            valid &= rows.column(name).is_valid().to_numpy(zero_copy_only=False)
    return valid
