"""A pattern of `braided.match` as a detector: its matches are the events that it publishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from braided.operators.detect.event_batches import AT, times_of
from braided.operators.detect.node import Memory, Node, Turn
from braided.operators.match.match_operator import MatchOperator
from braided.operators.match.open_rows import OpenRows
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json
from braided.time.clocks import clamp


@dataclass(frozen=True)
class InPattern:
    """Looks for a pattern among the events.

    A match is certain at the latest when the horizon has passed the time of its first row plus `within`. So `within` is
    the detector's delay, and nothing needs to be learned.
    """

    matching: MatchOperator

    def open(self, node: Node, blocks: Blocks, state: list[Json] | None) -> Memory:
        return OpenRows(blocks, self.matching.schema, state, numbered=self.matching.matcher.numbered)

    def run(self, node: Node, memory: Memory, events: pa.RecordBatch, turn: Turn) -> Iterator[pa.RecordBatch]:
        time = node.keys.time
        oldest = clamp(turn.since - int(cast(int, node.delay)))
        for _, piece in self.matching.find(cast(OpenRows, memory), events, turn.until):
            if piece is None:
                continue
            if piece.column(time).null_count:
                raise node.failed(f"published an event without a {time}", events, turn.batch)
            if int(np.min(times_of(piece, time))) < oldest:
                raise node.failed(
                    f"published an event that is older than its match; let the measure {time!r} be a time of the match",
                    events,
                    turn.batch,
                )
            columns = piece.columns if AT in piece.schema.names else [*piece.columns, piece.column(time)]
            yield pa.RecordBatch.from_arrays(columns, schema=node.schema)
