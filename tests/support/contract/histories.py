"""What the contract suite feeds operators: streams of rows in order of arrival, and ways to cut and carry them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

Row = dict[str, Any]
Tasks = list[tuple[int, list[pa.RecordBatch]]]

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us")),
        ("u", pa.timestamp("us")),
        ("id", pa.int64()),
    ]
)
"""The columns of every stream: two keys, two times, and a number that tells rows apart."""
TEXTS = ("a", "bb", "c" * 200)


@dataclass(frozen=True)
class History:
    """Rows in order of arrival, each with the number of its stream."""

    inputs: int
    rows: tuple[tuple[int, Row], ...]

    @property
    def streams(self) -> list[list[Row]]:
        """The rows of each stream."""
        return [[row for side, row in self.rows if side == stream] for stream in range(self.inputs)]


@dataclass(frozen=True)
class Way:
    """One way to run a history: where it is cut into batches, and who does the work.

    shuffle : None keeps rows of a batch in order; a number puts them in an order of its own.
    restart : after every batch, ``"never"``, or in a new process that finds the host's cache ``"lost"`` or ``"kept"``, or
        the state in ``"files"`` or ``"objects"``.
    rerouted : whether the routing changes at random before every batch.
    """

    cuts: tuple[int, ...]
    shuffle: int | None = None
    tasks: int = 1
    workers: int = 1
    restart: str = "never"
    rerouted: bool = False


@st.composite
def histories(
    draw: st.DrawFn, lateness: Sequence[int], *, beyond: int = 0, twins: bool = True, most: int = 40
) -> History:
    """Streams at their own pace, each row at most its stream's lateness, and `beyond`, behind what came before it.

    twins : whether a row may come twice with equal content. Some rows have no key, some no time.
    """
    count = len(lateness)
    keys = draw(st.integers(1, 3))
    clocks = [draw(st.integers(-9, 9)) for _ in lateness]
    length = draw(st.integers(0, most))
    event = st.tuples(
        st.integers(0, count - 1),
        st.integers(0, 4),  # how far the row's stream goes on
        st.integers(0, 30),  # how late the row is, in parts of what is allowed
        st.integers(0, keys - 1),
        st.sampled_from(TEXTS),
        st.integers(0, 19),  # what is special about it
    )
    rows: list[tuple[int, Row]] = []
    for side, step, delay, key, text, special in draw(st.lists(event, min_size=length, max_size=length)):
        clocks[side] += step
        time = None if special == 0 else clocks[side] - delay * (lateness[side] + beyond) // 30
        row = {
            "k": None if special == 1 else key,
            "s": None if special == 2 else text,
            "t": time,
            "u": time,
            "id": len(rows),
        }
        rows.append((side, row))
        if twins and special == 3:
            rows.append((side, row))
    return History(count, tuple(rows))


@st.composite
def ways(draw: st.DrawFn, rows: int, *, workers: int | None = None, rerouted: bool = False) -> Way:
    """Any way to run so many rows; a cut that comes twice is a batch without rows."""
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=6)))
    return Way(
        (0, *cuts, rows),
        draw(st.none() | st.integers(0, 99)),
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)) if workers is None else workers,
        draw(st.sampled_from(("never", "lost", "kept", "files", "objects"))),
        rerouted,
    )


def record_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as part of a larger batch: operators must not take the start of a buffer for that of the rows."""
    whole = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names), *rows], schema=schema)
    return whole.slice(1)


def batches(history: History, way: Way, schemas: Sequence[pa.Schema]) -> list[Tasks]:
    """Return the tasks of each batch; one without rows has a task without rows, as Spark's sources do."""
    rng = np.random.default_rng(way.shuffle)
    out = []
    for start, stop in pairwise(way.cuts):
        tasks: Tasks = []
        for side, schema in enumerate(schemas):
            rows = [row for at, row in history.rows[start:stop] if at == side]
            if way.shuffle is not None:
                rows = [rows[at] for at in rng.permutation(len(rows))]
            for number in range(way.tasks):
                part = rows[number :: way.tasks]
                middle = 0 if way.shuffle is None else way.shuffle % (len(part) + 1)
                pieces = [record_batch(piece, schema) for piece in (part[:middle], part[middle:]) if piece]
                tasks += [(side, pieces)] if pieces else []
        out.append(tasks or [(0, [])])
    return out


def sample(lateness: Sequence[int], *, rows: int = 60, seed: int = 1, step: int = 3, lag: int = 0) -> History:
    """Return a history that is always the same: few keys, rows as late as they may be, some nulls and twins.

    lag : how far each stream is behind the one before it.
    """
    rng = np.random.default_rng(seed)
    clock, out = 0, []
    for number in range(rows):
        side = int(rng.integers(0, len(lateness)))
        clock += int(rng.integers(0, step))
        time = clock - side * lag - int(rng.integers(0, lateness[side] + 1))
        row = {"k": int(rng.integers(0, 3)), "s": TEXTS[int(rng.integers(0, 3))], "t": time, "u": time, "id": number}
        out.append((side, row if number % 17 else {**row, "k": None, "s": None}))
    return History(len(lateness), (*out, *out[-2:]))
