"""Find the rows of each input in a worker's state: which blocks have them, and how a block is read.

Blocks without rows of an input (bits, buffers of policies, the state of detectors) are not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from braided.operators.asof.waiting_rows import RowFormat
from braided.operators.bounded.kept_rows import Entry
from braided.operators.join.runs import RunInfo
from braided.operators.match.open_rows import Leaf, decoded_rows
from braided.operators.multijoin.stamps import stamped_schema
from braided.routing.routes import tagged_schema
from braided.runtime.contract import Json
from braided.runtime.rows import Mask, Rows
from braided.runtime.waiting_runs import WaitingRun
from braided.time.quarantine import StreamProgress

Kind = Literal["stored", "waiting", "quarantined"]
"""Stored for matches with later rows; waiting for earlier rows; or with a doubted time."""
Read = Callable[[int], pa.Buffer]
Schemas = Sequence[pa.Schema]


class Extent(NamedTuple):
    """The number of rows of an input in a block, and their first and last time in microseconds."""

    side: int
    rows: int
    first: int
    last: int


@dataclass(frozen=True)
class Part:
    """A block with rows: its number and size, a function that decodes its rows, and their extent if that is known."""

    kind: Kind
    block: int
    bytes: int
    decode: Callable[[pa.Buffer], dict[int, pa.RecordBatch]]
    extent: Extent | None = None


def find_parts(state: Json | None, options: Json, inputs: Schemas, read: Read) -> Iterator[Part]:
    """Yield the blocks with rows of a worker, by the state of its operator."""
    if state is None:
        return
    if "inner" in state:  # partial aggregates over a join
        yield from find_parts(state["inner"], options, inputs, read)
    if "sides" in state:
        yield from _runs(state, inputs, stamped=bool(options.get("adaptive")))
    if "stage" in state:
        yield from _waiting(state["stage"], inputs)
    if "open" in state:
        yield from _leaves(state["open"] or (), lambda content: {0: decoded_rows(content, inputs[0]).rows})
    if "kept" in state:
        yield from _leaves(state["kept"] or (), partial(_asof_rows, _asof_format(options, inputs)))
    if "last" in state:
        stored = RowFormat(inputs[0], inputs[1], True)
        yield from _leaves(state["last"] or (), partial(_asof_rows, stored))
    if "keyless" in state:
        by_side = state["keyless"] if "sides" in state else [state["keyless"]]
        for side, runs in enumerate(by_side):
            yield from _waiting_runs("waiting", side, inputs[side], runs)
    if "rows" in state:
        yield from _budget(state["rows"], inputs, read)


def _runs(state: Json, inputs: Schemas, *, stamped: bool) -> Iterator[Part]:
    for side, schema in enumerate(inputs):
        groups: list[tuple[Kind, list[list[int]]]] = [("stored", infos) for infos in state["sides"][side]]
        groups += [("quarantined", infos) for _, infos in state["apart"][side]]
        for kind, infos in groups:
            for info in (RunInfo(*fields) for fields in infos):  # type: ignore[arg-type]
                extent = Extent(side, info.rows, info.first_time, info.last_time)
                decode = partial(_run_rows, side, schema, stamped, info.tagged)
                yield Part(kind, info.number, info.bytes, decode, extent)


def _run_rows(
    side: int, schema: pa.Schema, stamped: bool, tagged: bool, content: pa.Buffer
) -> dict[int, pa.RecordBatch]:
    stored = stamped_schema(schema) if stamped else schema
    rows = pa.ipc.read_record_batch(content, tagged_schema(stored) if tagged else stored)
    return {side: pa.RecordBatch.from_arrays(rows.columns[: len(schema)], schema=schema)}


def _waiting(stage: Json | None, inputs: Schemas) -> Iterator[Part]:
    if stage is None:
        return
    for side, schema in enumerate(inputs):
        kinds: tuple[tuple[Kind, str], ...] = (("waiting", "waiting"), ("quarantined", "apart"))
        for kind, name in kinds:
            yield from _waiting_runs(kind, side, schema, stage[name][side])


def _waiting_runs(kind: Kind, side: int, schema: pa.Schema, runs: Sequence[Sequence[Any]]) -> Iterator[Part]:
    for fields in runs:
        run = WaitingRun(*fields[:-1], since=StreamProgress(*fields[-1]))  # type: ignore[misc]
        if run.waiting:
            extent = Extent(side, run.waiting, run.first, run.last)
            yield Part(kind, run.number, run.bytes, partial(_waiting_rows, side, schema, run), extent)


def _waiting_rows(side: int, schema: pa.Schema, run: WaitingRun, content: pa.Buffer) -> dict[int, pa.RecordBatch]:
    return {side: Rows.decoded(content, schema, marked=run.marked).rows.slice(run.left, run.waiting)}


def _leaves(leaves: Sequence[Json], decode: Callable[[pa.Buffer], dict[int, pa.RecordBatch]]) -> Iterator[Part]:
    for leaf in leaves:
        for number, size in Leaf(**leaf).blocks:
            yield Part("stored", number, size, decode)


def _asof_format(options: Json, inputs: Schemas) -> RowFormat:
    return RowFormat(inputs[0], inputs[1], options["direction"] != "backward")


def _asof_rows(stored: RowFormat, content: pa.Buffer) -> dict[int, pa.RecordBatch]:
    sides = stored.decode([decoded_rows(content, stored.schema)])
    return {side: keyed.rows for side, parts in enumerate(sides) for keyed in parts}


def _budget(state: Json | None, inputs: Schemas, read: Read) -> Iterator[Part]:
    """Yield the blocks of the stored rows of a join with a budget, and of its waiting rows."""
    if state is None:
        return
    yield from _waiting(state["stage"], inputs)
    entries = [
        (side, Entry(*fields)) for side, entries_of_side in enumerate(state["kept"]) for fields in entries_of_side
    ]
    if not entries:
        return
    ends = np.cumsum([entry.rows for _, entry in entries])
    packed = np.frombuffer(read(state["alive"][0]), np.uint8)
    alive = np.split(np.unpackbits(packed, count=int(ends[-1])).view(np.bool_), ends[:-1])
    for (side, entry), mask in zip(entries, alive, strict=True):
        yield Part("stored", entry.number, entry.bytes, partial(_kept_rows, side, inputs[side], entry, mask))


def _kept_rows(side: int, schema: pa.Schema, entry: Entry, mask: Mask, content: pa.Buffer) -> dict[int, pa.RecordBatch]:
    return {side: Rows.decoded(content, schema, marked=entry.marked).pick(mask).rows}
