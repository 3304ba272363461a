"""Calling a user's detector: a copy for each key, or one call for many, with their states."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from braided.operators.detect.declared_columns import fits, schema_text
from braided.operators.detect.detector import Detector, KeyedDetector
from braided.operators.detect.event_batches import AT, GROUP, Grouped, Int64s, group, later, times_of
from braided.operators.detect.keyed_state import KeyedState
from braided.operators.detect.node import Memory, Node, Turn, first_row
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json

_STATE = "state"
_STATES = pa.schema([(_STATE, pa.binary())])
_GROUP_FIELD = pa.field(GROUP, pa.int32())

Groups = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PerKey:
    """Runs a copy of the detector for each key that has events."""

    detector: Detector

    def open(self, node: Node, blocks: Blocks, state: list[Json] | None) -> Memory:
        return KeyedState(blocks, node.keys, _key_fields(node), _STATES, node.forget, state)

    def run(self, node: Node, memory: Memory, events: pa.RecordBatch, turn: Turn) -> Iterator[pa.RecordBatch]:
        batch = turn.batch

        def call(part: Grouped, states: pa.RecordBatch, of: Int64s) -> tuple[list[pa.RecordBatch], pa.RecordBatch]:
            known = dict(zip(of.tolist(), states.column(0), strict=True))
            published: list[pa.RecordBatch] = []
            groups: list[Groups] = []
            new_states: list[tuple[int, bytes]] = []
            for number in range(part.size):
                first, end = int(part.bounds[number]), int(part.bounds[number + 1])
                key_events = part.rows.slice(first, end - first)
                rows, state = self._one(node, key_events, known.get(number), batch)
                if rows is not None and rows.num_rows:
                    published.append(rows)
                    groups.append(np.full(rows.num_rows, number, np.int32))
                if state is not None:
                    new_states.append((number, state))
            numbers = pa.array([number for number, _ in new_states], pa.int32())
            contents = pa.array([state for _, state in new_states], pa.binary())
            new = pa.RecordBatch.from_arrays([numbers, contents], schema=pa.schema([_GROUP_FIELD, *_STATES]))
            if not published:
                return [], new
            return [_with_keys(node, part, pa.concat_batches(published), np.concatenate(groups), batch)], new

        yield from cast(KeyedState, memory).update(group(events, node.keys), turn.until, call)

    def _one(
        self, node: Node, events: pa.RecordBatch, state: Any, batch: int
    ) -> tuple[pa.RecordBatch | None, bytes | None]:
        """Call the copy of one key; return what it publishes and its new state."""
        try:
            detector = copy.deepcopy(self.detector)
            if state is not None:
                detector.load(decoded(state.as_py()))
            result = detector.on_events(events)
            new_state = detector.save()
        except (Exception, SystemExit) as error:  # an exit would end the worker without a message
            raise node.failed(f"raised {_error_text(error)}", events, batch, error) from error
        try:
            content = encoded(new_state)
        except (TypeError, ValueError) as error:
            what = f"saved a state that is neither JSON nor Arrow ({error}); return plain values, a batch or a table"
            raise node.failed(what, events, batch, error) from error
        return (None if result is None else _conformed(node, result, events, batch, grouped=False)), content


@dataclass(frozen=True)
class ManyKeys:
    """Runs the detector once for many keys.

    state : the columns of the state of a key.
    """

    detector: KeyedDetector
    state: pa.Schema

    def open(self, node: Node, blocks: Blocks, state: list[Json] | None) -> Memory:
        return KeyedState(blocks, node.keys, _key_fields(node), self.state, node.forget, state)

    def run(self, node: Node, memory: Memory, events: pa.RecordBatch, turn: Turn) -> Iterator[pa.RecordBatch]:
        batch = turn.batch

        def call(part: Grouped, states: pa.RecordBatch, of: Int64s) -> tuple[list[pa.RecordBatch], pa.RecordBatch]:
            groups = part.groups
            numbered_events = _with_group(groups, part.rows)
            order = np.argsort(of, kind="stable")
            known = _with_group(of[order].astype(np.int32), states.take(pa.array(order)))
            try:
                result = copy.deepcopy(self.detector).on_events(numbered_events, known)
            except (Exception, SystemExit) as error:
                raise node.failed(f"raised {_error_text(error)}", numbered_events, batch, error) from error
            if not isinstance(result, tuple) or len(result) != 2:
                what = f"returned {type(result).__name__}; return what is published and the new state, or None for each"
                raise node.failed(what, numbered_events, batch)
            rows, new_states = result
            new = self._states(node, new_states, numbered_events, part.size, batch)
            if rows is None or not rows.num_rows:
                return [], new
            rows = _conformed(node, rows, numbered_events, batch, grouped=True)
            of_rows = _checked_groups(node, rows.column(0), numbered_events, part.size, batch)
            return [_with_keys(node, part, rows.drop_columns([GROUP]), of_rows, batch)], new

        yield from cast(KeyedState, memory).update(group(events, node.keys), turn.until, call)

    def _states(
        self, node: Node, states: pa.RecordBatch | None, events: pa.RecordBatch, count: int, batch: int
    ) -> pa.RecordBatch:
        """Return the new states, after checking that each key has at most one row."""
        schema = pa.schema([_GROUP_FIELD, *self.state])
        if states is None:
            return pa.RecordBatch.from_pylist([], schema=schema)
        rows = _cast(node, states, schema, events, batch, "a state with")
        numbers = _checked_groups(node, rows.column(0), events, count, batch)
        if len(np.unique(numbers)) < len(numbers):
            raise node.failed("returned two states for one key; return one row for each group", events, batch)
        return rows


def _key_fields(node: Node) -> pa.Schema:
    return pa.schema([node.schema.field(name) for name in node.keys.key])


def _with_group(groups: Groups, rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(groups), *rows.columns], schema=pa.schema([_GROUP_FIELD, *rows.schema]))


def _checked_groups(node: Node, column: Any, events: pa.RecordBatch, count: int, batch: int) -> Groups:
    if column.null_count:
        raise node.failed(f"returned a row without a {GROUP}; take it from the events", events, batch)
    groups: Groups = column.to_numpy()
    if len(groups) and not 0 <= groups.min() <= groups.max() < count:
        raise node.failed(f"returned an unknown {GROUP}; take it from the events", events, batch)
    return groups


def _conformed(
    node: Node, rows: pa.RecordBatch, events: pa.RecordBatch, batch: int, *, grouped: bool
) -> pa.RecordBatch:
    """Return what a detector published, with the columns of its schema and ``at``."""
    if isinstance(rows, pa.Table):
        rows = rows.combine_chunks().to_batches()[0] if rows.num_rows else None
        if rows is None:
            return pa.RecordBatch.from_pylist([], schema=_promised(node, grouped=grouped))
    if not isinstance(rows, pa.RecordBatch):
        raise node.failed(f"returned {type(rows).__name__}; return a pyarrow.RecordBatch or None", events, batch)
    time = node.keys.time
    if AT not in rows.schema.names and time in rows.schema.names:
        rows = rows.append_column(AT, rows.column(time))
    rows = _cast(node, rows, _promised(node, grouped=grouped), events, batch, "rows with")
    for name in (time, AT):
        if rows.column(name).null_count:
            raise node.failed(f"published an event without its {name}", events, batch)
    return rows


def _promised(node: Node, *, grouped: bool) -> pa.Schema:
    """Return the columns that a detector returns: what it publishes without the key."""
    own = [field for field in node.schema if field.name not in node.keys.key]
    return pa.schema([_GROUP_FIELD, *own] if grouped else own)


def _cast(
    node: Node, rows: pa.RecordBatch, schema: pa.Schema, events: pa.RecordBatch, batch: int, what: str
) -> pa.RecordBatch:
    """Return rows cast to a schema: they must have its columns, in any order, with types that fit."""
    names = rows.schema.names
    if sorted(names) != sorted(schema.names) or not all(
        fits(rows.schema.field(field.name).type, field.type) for field in schema
    ):
        text = f"returned {what} {schema_text(rows.schema)}; its schema is {schema_text(schema)}"
        raise node.failed(text, events, batch)
    try:
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for field, column in ((field, rows.column(field.name)) for field in schema)
        ]
    except pa.ArrowInvalid as error:
        raise node.failed(f"returned values that do not fit its schema: {error}", events, batch) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _error_text(error: BaseException) -> str:
    """Return the text of an error, even if its own `__str__` fails."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _with_keys(node: Node, part: Grouped, rows: pa.RecordBatch, groups: Groups, batch: int) -> pa.RecordBatch:
    """Return published rows, each with its key, after checking that they are not older than they may be."""
    _check_times(node, part, rows, groups, batch)
    first = pa.array(part.bounds[:-1][groups])
    keys = [part.rows.column(name).take(first) for name in node.keys.key]
    return pa.RecordBatch.from_arrays([*keys, *rows.columns], schema=node.schema)


def _check_times(node: Node, part: Grouped, rows: pa.RecordBatch, groups: Groups, batch: int) -> None:
    """Refuse rows that no event of the batch has triggered, and rows dated earlier than the delay allows."""
    time, at = times_of(rows, node.keys.time), times_of(rows, AT)
    moments, ranks = np.unique(np.concatenate([times_of(part.rows, node.keys.time), at]), return_inverse=True)
    codes = np.concatenate([part.groups, groups]).astype(np.int64) * len(moments) + ranks
    untriggered = np.flatnonzero(~np.isin(codes[part.rows.num_rows :], codes[: part.rows.num_rows]))
    if len(untriggered):
        row, number = rows.slice(int(untriggered[0]), 1), int(groups[untriggered[0]])
        raise node.failed(
            f"published {first_row(row)}, but {AT} is the time of none of its events; return in {AT} the time of "
            "the event that triggered it",
            part.slice(number, number + 1).rows,
            batch,
        )
    if isinstance(node.delay, int):
        too_old = np.flatnonzero(later(at, time) > node.delay)
        if len(too_old):
            row, number = rows.slice(int(too_old[0]), 1), int(groups[too_old[0]])
            raise node.failed(
                f"published {first_row(row)}, but {AT} is more than its delay of {node.delay} us after its time; "
                "declare a longer delay, or let it be learned",
                part.slice(number, number + 1).rows,
                batch,
            )


def encoded(state: object) -> bytes | None:
    """Return the state of a key as bytes: JSON, or Arrow's own stream format."""
    if state is None:
        return None
    if isinstance(state, pa.RecordBatch | pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, state.schema) as writer:
            writer.write(state)
        tag = b"B" if isinstance(state, pa.RecordBatch) else b"T"
        content: bytes = tag + sink.getvalue().to_pybytes()
        return content
    return b"J" + json.dumps(state, separators=(",", ":")).encode()


def decoded(content: bytes) -> Any:
    """Return the state that `encoded` received; tuples become lists, and keys of dicts become strings.

    >>> decoded(encoded({"a": [1, 2.5]}))
    {'a': [1, 2.5]}
    """
    if content[:1] == b"J":
        return json.loads(content[1:])
    table = pa.ipc.open_stream(content[1:]).read_all()
    if content[:1] == b"T":
        return table
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
