"""One batch of a hierarchy of detectors, from the lowest detector up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from braided.operators.detect.detector_delay import DetectionDelay
from braided.operators.detect.event_batches import AT, later, times_of
from braided.operators.detect.node import Node, Turn
from braided.operators.detect.unit import OrderingUnit
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json
from braided.time.clocks import MAX_TIME, clamp


@dataclass(frozen=True)
class Published:
    """Events that a detector published, with their type."""

    type: str
    rows: pa.RecordBatch


class Hierarchy:
    """The detectors of one worker between load and save of one batch.

    streams : the columns of each input. nodes : the detectors, each after those below it.
    """

    def __init__(
        self, streams: Mapping[str, pa.Schema], nodes: Sequence[Node], blocks: Blocks, state: Json | None, batch: int
    ) -> None:
        types = {**streams, **{node.publishes: node.schema for node in nodes}}
        states: Sequence[Json | None] = [None] * len(nodes) if state is None else state["nodes"]
        self._streams, self._nodes, self._batch = streams, nodes, batch
        self._units = [
            OrderingUnit(
                {name: types[name] for name in node.subscribes},
                node.keys.time,
                blocks,
                None if s is None else s["unit"],
            )
            for node, s in zip(nodes, states, strict=True)
        ]
        self._memories = [
            node.tactic.open(node, blocks, None if s is None else s["memory"])
            for node, s in zip(nodes, states, strict=True)
        ]
        self._delays = [
            DetectionDelay(node.delay, None if s is None else s["delay"]) for node, s in zip(nodes, states, strict=True)
        ]
        self.least: dict[str, int] = {}
        """For every type, the time before which any further event is late."""
        self._events = [0 if s is None else s["events"] for s in states]

    def advance(self, sides: Sequence[pa.RecordBatch], horizon: int) -> Iterator[Published]:
        """Run all detectors on new events of the streams, complete up to a horizon, and yield what they publish.

        D of a detector is updated before the detectors above it read it: they see a rise at once.
        """
        final = horizon == MAX_TIME
        # Events of this type that are still to come are at this time or later.
        self.least = least = dict.fromkeys(self._streams, horizon)
        new: dict[str, list[pa.RecordBatch]] = {
            name: [rows] if rows.num_rows else [] for name, rows in zip(self._streams, sides, strict=True)
        }
        for number, node in enumerate(self._nodes):
            unit, delay, since = self._units[number], self._delays[number], self._units[number].until
            for type_ in node.subscribes:
                unit.take(type_, new[type_])
            events = unit.release(min(least[type_] for type_ in node.subscribes), final=final, schema=node.events)
            unit.note(horizon)
            of_type = new.setdefault(node.publishes, [])
            turn = Turn(since, unit.until, self._batch)
            for rows in node.tactic.run(node, self._memories[number], events, turn):
                time, at = times_of(rows, node.keys.time), times_of(rows, AT)
                delay.take(later(at, time), int(at.max()))
                self._events[number] += rows.num_rows
                of_type.append(rows)
                yield Published(node.publishes, rows)
            comes = MAX_TIME if final else clamp(unit.until - delay.now)
            least[node.publishes] = min(comes, least.get(node.publishes, MAX_TIME))

    def tidy(self) -> None:
        """Tidy up the stored events, at the end of a batch."""
        for unit in self._units:
            unit.tidy()

    def levels(self) -> dict[str, int]:
        parts = [unit.levels() for unit in self._units] + [memory.levels() for memory in self._memories]
        return {name: sum(part[name] for part in parts) for name in ("stored_rows", "stored_bytes", "runs")}

    def report(self, *, history: bool) -> list[Json]:
        """Return the report fields of each detector: its events, D, its ordering unit, and how both changed."""
        parts = zip(self._nodes, self._events, self._delays, self._units, strict=True)
        return [
            {"name": node.name, "type": node.publishes, "events": events, "delay": delay.now, **unit.report()}
            | ({"delay_history": delay.history, "behind_history": unit.history} if history else {})
            for node, events, delay, unit in parts
        ]

    def to_json(self) -> Json:
        parts = zip(self._units, self._memories, self._delays, self._events, strict=True)
        return {
            "nodes": [
                {"unit": unit.to_json(), "memory": memory.to_json(), "delay": delay.to_json(), "events": events}
                for unit, memory, delay, events in parts
            ]
        }
