"""The state of one operator as tables: its rows, and the share of each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from braided.errors import OptionError, StateError
from braided.inspection.heaviest import count_heaviest
from braided.inspection.parts import Extent, Part, find_parts
from braided.routing.key_hashes import KeyHasher, common_key_type
from braided.runtime.bookkeeping import read_inputs
from braided.runtime.contract import Json, stream_labels

if TYPE_CHECKING:
    import duckdb

WORKER, KIND = "__braided_worker", "__braided_kind"
FILE_KINDS = ("live", "dropped", "unnamed")
_KINDS = pa.dictionary(pa.int8(), pa.string())
_MOMENT = pa.timestamp("us", tz="UTC")
_SUMMARY = pa.schema(
    [
        ("worker", pa.int32()),
        ("input", pa.string()),
        ("kind", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("first_time", _MOMENT),
        ("last_time", _MOMENT),
    ]
)


class Files(NamedTuple):
    """Files of one worker: their number and their bytes."""

    files: int
    bytes: int


@dataclass(frozen=True)
class WorkerState:
    """One worker: its bookkeeping, a function that reads its blocks, and its files if it has some."""

    bookkeeping: Json
    read: Callable[[int], pa.Buffer]
    files: dict[str, Files] = field(default_factory=dict)
    """By kind: ``live``, ``dropped`` (needed only by batches that Spark may run again) and ``unnamed``."""


@dataclass(frozen=True)
class OperatorState:
    """The state of one operator of a query after its last committed batch.

    Rows are listed as they are stored: a row that several workers store, for example of a hot key, is listed once for
    each worker; an expired row is listed until its block is rewritten. Two more columns are ``__braided_worker`` and
    ``__braided_kind``.

    number : Spark's number of the stateful operator in the query.
    name : the operator's folder in the checkpoint, or its kind if the state is in Spark's state store.
    """

    number: int
    name: str
    workers: Sequence[WorkerState]
    redact: bool = False

    @property
    def options(self) -> Json:
        """The options that affect the meaning of the state."""
        options: Json = self.workers[0].bookkeeping["options"]
        return options

    @property
    def kind(self) -> str:
        """The kind of the operator, such as ``join``."""
        return str(self.options["operator"])

    @property
    def schemas(self) -> list[pa.Schema]:
        """The columns of each input."""
        return [schema for schema, _ in self._noted]

    @cached_property
    def _noted(self) -> list[tuple[pa.Schema, str]]:
        """The columns of each input, and its time column."""
        known = self.workers[0].bookkeeping.get("inputs")
        if known is None:
            raise StateError(
                "the checkpoint was written by an earlier version of braided, which did not store the columns of its "
                "inputs; run a batch of the query with this version"
            )
        return read_inputs(known)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs: ``left`` and ``right``, or ``stream 1`` and so on."""
        return stream_labels(len(self.schemas))

    def keys(self, input: str) -> list[str]:
        """Return the key columns of an input; none if the operator has no key, or a different key for each join."""
        return self._keys(self._side(input))

    def batches(self, input: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an input, one block at a time."""
        if self.redact:
            raise OptionError("redact=True: rows contain the values of keys; omit redact=True to see them")
        for worker, part, rows in self._rows(self._side(input)):
            columns = [
                *rows.columns,
                pa.repeat(pa.scalar(worker, pa.int32()), rows.num_rows),
                pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), rows.num_rows), [part.kind]),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._listed(rows.schema))

    def rows(self, input: str, limit: int | None = None) -> pa.Table:
        """Return the rows of an input, at most `limit`. If the state is in files, the rows are mapped from them."""
        parts, count = [], 0
        for batch in self.batches(input):
            parts.append(batch if limit is None else batch.slice(0, limit - count))
            count += parts[-1].num_rows
            if limit is not None and count >= limit:
                break
        return pa.Table.from_batches(parts, self._listed(self.schemas[self._side(input)])).unify_dictionaries()

    def relation(self, input: str, limit: int | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows of an input as a DuckDB relation; DuckDB must be installed."""
        import duckdb

        return duckdb.from_arrow(self.rows(input, limit))

    def summary(self) -> pa.Table:
        """Return for each worker, input and kind the number of rows, their bytes, and their first and last time.

        The bytes are those of the rows' blocks; a block with rows of both inputs counts for the input with more rows.
        """
        totals: dict[tuple[int, int, str], list[int]] = {}
        for worker, state in enumerate(self.workers):
            for part in self._parts(state):
                extents = self._extents(state, part)
                for extent in extents:
                    old = totals.setdefault((worker, extent.side, part.kind), [0, 0, extent.first, extent.last])
                    old[0] += extent.rows
                    old[1] += part.bytes if extent is max(extents, key=lambda extent: extent.rows) else 0
                    old[2:] = [min(old[2], extent.first), max(old[3], extent.last)]
        rows = [(worker, self.inputs[side], kind, *totals[worker, side, kind]) for worker, side, kind in sorted(totals)]
        columns = zip(*rows, strict=True) if rows else [()] * len(_SUMMARY)
        return pa.Table.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, _SUMMARY, strict=True)], schema=_SUMMARY
        )

    def files(self) -> pa.Table:
        """Return the number of files of every worker and their bytes: live, dropped and unnamed files."""
        rows = []
        for worker, state in enumerate(self.workers):
            rows.append({"worker": worker})
            for kind, counted in state.files.items():
                rows[-1] |= {kind: counted.files, f"{kind}_bytes": counted.bytes}
        names = ["worker", *(name for kind in FILE_KINDS for name in (kind, f"{kind}_bytes"))]
        return pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.int64()) for name in names]))

    def heaviest(self, input: str, count: int = 10) -> pa.Table:
        """Return the keys with the most rows of an input, and their counts; with ``redact``, the hashes of keys.

        It reads all rows twice, in bounded memory. Counts are exact. With millions of keys, a key may be missing if it
        is only slightly heavier than others.
        """
        side = self._side(input)
        keys = self._keys(side)
        if not keys:
            raise OptionError(f"the {self.kind} {self.name} has no common key of its rows; use rows({input!r})")
        hasher = KeyHasher(self._key_types())
        heaviest = count_heaviest(lambda: (rows.select(keys) for _, _, rows in self._rows(side)), hasher, count)
        if not self.redact or not heaviest.num_rows:
            return heaviest
        columns = [column.combine_chunks() for column in heaviest.select(keys).columns]
        hashes = hasher.hash_with_nulls(columns, heaviest.num_rows)
        return pa.table(
            {"key_hash": [f"{number:016x}" for number in hashes.tolist()], "rows": heaviest.column(len(keys))}
        )

    def _side(self, input: str) -> int:
        if input not in self.inputs:
            raise OptionError(f"input={input!r}: unknown input; {self.name} has {', '.join(map(repr, self.inputs))}")
        return self.inputs.index(input)

    def _keys(self, side: int) -> list[str]:
        if "on" in self.options:
            return list(self.options["on"][side])
        return list(self.options.get("key", ()))

    def _key_types(self) -> tuple[pa.DataType, ...]:
        """Return the common types in which the keys of all inputs are compared and hashed."""
        names = [self._keys(side) for side in range(len(self.schemas))]
        kinds = [self.schemas[0].field(name).type for name in names[0]]
        for keys, schema in zip(names, self.schemas, strict=True):
            kinds = [
                common_key_type(kind, schema.field(name).type, (name, name))
                for kind, name in zip(kinds, keys, strict=True)
            ]
        return tuple(kinds)

    def _parts(self, state: WorkerState) -> Iterator[Part]:
        return find_parts(state.bookkeeping["state"], self.options, self.schemas, state.read)

    def _rows(self, side: int) -> Iterator[tuple[int, Part, pa.RecordBatch]]:
        for worker, state in enumerate(self.workers):
            for part in self._parts(state):
                if part.extent is None or part.extent.side == side:
                    rows = part.decode(state.read(part.block)).get(side)
                    if rows is not None and rows.num_rows:
                        yield worker, part, rows

    def _extents(self, state: WorkerState, part: Part) -> list[Extent]:
        if part.extent is not None:
            return [part.extent]
        extents = []
        for side, rows in part.decode(state.read(part.block)).items():
            span = pc.min_max(rows.column(self._noted[side][1]).view(pa.int64())).as_py()
            if span["min"] is not None:
                extents.append(Extent(side, rows.num_rows, span["min"], span["max"]))
        return extents

    def _listed(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([*schema, pa.field(WORKER, pa.int32()), pa.field(KIND, _KINDS)])

    def to_dict(self, keys: int = 10) -> Json:
        """Return the summary as plain JSON, with this number of heaviest keys of each input."""
        plain: Json = {
            "operator": self.number,
            "name": self.name,
            "kind": self.kind,
            "workers": len(self.workers),
            "summary": _plain(self.summary()),
            "files": _plain(self.files()),
            "heaviest": {},
        }
        for side, name in enumerate(self.inputs):
            if keys and self._keys(side):
                plain["heaviest"][name] = _plain(self.heaviest(name, keys))
        return plain


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as plain JSON; values without a JSON type become text."""
    simple = (str, int, float, bool, type(None))
    return [
        {name: value if isinstance(value, simple) else str(value) for name, value in row.items()}
        for row in table.to_pylist()
    ]
