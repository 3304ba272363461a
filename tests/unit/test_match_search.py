"""The search for matches equals a backtracking matcher in plain Python, for random patterns and rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.match_cases import EARLIER, FAR, NEAR, PLAIN, SCHEMA, cases
from support.match_reference import Query, matches
from support.profiles import examples

from braided.errors import OptionError
from braided.local.runtime import LocalRuntime
from braided.operators.match import matcher as matcher_module
from braided.operators.match.build import matcher_of
from braided.operators.match.expressions import Source
from braided.operators.match.matcher import Sorted
from braided.operators.match.spec import MatchSpec
from braided.operators.registry import build
from braided.operators.stream import Stream
from braided.routing.content import row_hashes
from braided.time.clocks import MAX_TIME


def check(query: Query, spec: MatchSpec, rows: list[Any]) -> None:
    try:
        matcher = matcher_of(spec, Source(SCHEMA), ())
    except OptionError as error:
        if "NEXT is not supported in the definition of a negated symbol" not in str(error):
            raise
        return
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    count = len(rows)
    bounds = np.array([0, count] if count else [0], np.int64)
    times = np.array([row["t"] for row in rows], np.int64)
    columns = {name: batch.column(name) for name in matcher.read}
    for many, patience in ((1, 0), (64, 2000)):  # with a look ahead, and remembering at once; without
        none, every = np.zeros(count, np.uint8), np.ones(count, np.uint8)
        given_ = Sorted(columns, batch, np.arange(count), bounds, times, none, every)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matcher_module, "MANY_ROWS", many)
            patch.setattr(matcher_module, "PATIENCE", patience)
            decided = matcher.search(given_, MAX_TIME)
        check_decided(query, rows, matcher, decided)


def check_decided(query: Query, rows: list[Any], matcher: Any, decided: Any) -> None:
    found = decided.matches
    symbols, ends = matcher.automaton.symbol, np.cumsum(found.length)
    paths = []
    for start, length, end in zip(found.first.tolist(), found.length.tolist(), ends.tolist(), strict=True):
        states = found.states[end - length : end].tolist()
        number = len(paths)
        blank = "-" if found.is_match is None or found.is_match[number] else "?"
        names = [blank if state == len(symbols) else matcher.automaton.symbols[symbols[state]] for state in states]
        outside = [state < len(symbols) and matcher.automaton.excluded[state] for state in states]
        paths.append(tuple(zip(range(start, start + length), names, outside, strict=True)))
    assert paths == matches(query, rows)
    assert decided.stays.sum() == min(matcher.context, len(rows))
    assert not decided.opens.any()


@settings(max_examples=examples(3000, quick=60), deadline=None)
@given(cases(PLAIN + NEAR))
def test_conditions_on_a_row(case: Any) -> None:
    check(*case)


@settings(max_examples=examples(3000, quick=60), deadline=None)
@given(cases(PLAIN + NEAR + EARLIER + FAR))
def test_conditions_on_earlier_symbols(case: Any) -> None:
    check(*case)


KEYED = pa.schema([("k", pa.int64()), ("id", pa.int64()), *SCHEMA])
# A clock counts once some rows have been near it; until then nothing leaves and everything is decided at the end.
BEFORE = [{"k": -1, "id": -1 - number, "t": -50, "x": None, "p": None, "s": None} for number in range(10)]


@settings(max_examples=examples(2000, quick=60), deadline=None)
@given(
    cases(PLAIN + NEAR + EARLIER + FAR),
    st.lists(st.integers(0, 2), min_size=9, max_size=9),
    st.lists(st.booleans(), max_size=20),
    st.booleans(),
)
def test_random_patterns_under_random_cuts(case: Any, keys: list[int], cuts: list[bool], ahead: bool) -> None:
    """Rows of several keys come in batches of any size; what is open waits in the state of a worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matcher_module, "MANY_ROWS", 1 if ahead else 64)
        patch.setattr(matcher_module, "PATIENCE", 0 if ahead else 2000)
        check_cuts(case, keys, cuts)


def check_cuts(case: Any, keys: list[int], cuts: list[bool]) -> None:
    query, spec, rows = case
    rows = [{"k": key, "id": number, **row} for number, (row, key) in enumerate(zip(rows, keys, strict=False))]
    names = [name for name in "ABC" if name in query.define or f"'{name}'" in repr(query.tree) or name == query.negated]
    measures = {"first": "first(id)", "last": "last(id)", **{name: f"count({name}.*)" for name in names}}
    every = spec.rows != "one"
    if every:
        measures = {"n": "match_number()", "what": "classifier()", "rows": "count(*)"}
    try:
        plan = build(replace(spec, key="k", measures=measures, lateness="0 us"), [Stream("input", KEYED)])
    except OptionError as error:
        if "NEXT is not supported in the definition of a negated symbol" not in str(error):
            raise
        return
    runtime = LocalRuntime(plan.operator)
    found = list(runtime.run_batch([(0, [pa.RecordBatch.from_pylist(BEFORE, KEYED)])]))
    batch: list[Any] = []
    for row, cut in zip(rows, [*cuts, *[False] * len(rows)], strict=False):
        batch.append(row)
        if cut:
            found += runtime.run_batch([(0, [pa.RecordBatch.from_pylist(batch, KEYED)])])
            batch = []
    found += runtime.run_batch([(0, [pa.RecordBatch.from_pylist(batch, KEYED)] if batch else [])])
    found += runtime.run_batch([(0, [])], final=True)
    table = pa.Table.from_batches(found, plan.operator.output)
    wanted = []
    for key in {-1, *keys}:
        own = in_order([row for row in (*BEFORE, *rows) if row["k"] == key])
        number = 0
        for path in matches(query, own):
            symbols = [symbol for _, symbol, _ in path]
            number += symbols != ["?"]
            if every:
                wanted += [
                    (key, own[at]["id"], number, symbol, count) if symbol not in "-?"
                    else (key, own[at]["id"], *((number, None, 0) if symbol == "-" else (None, None, None)))
                    for count, (at, symbol, _) in enumerate(path, 1)
                ]  # fmt: skip
                continue
            if symbols == ["-"]:
                wanted.append((key, None, None, *(0 for _ in names)))
                continue
            wanted.append(
                (key, own[path[0][0]]["id"], own[path[-1][0]]["id"], *(symbols.count(name) for name in names))
            )
    given_ = [tuple(row.values()) for row in table.to_pylist()]
    if every:
        given_ = [(row["k"], row["id"], row["n"], row["what"], row["rows"]) for row in table.to_pylist()]
    assert Counter(given_) == Counter(wanted)
    assert bool(runtime.stores[0].blocks) == (plan.operator.matcher.context > 0)  # type: ignore[attr-defined]


def in_order(rows: list[Any]) -> list[Any]:
    hashes = row_hashes(pa.RecordBatch.from_pylist(rows, KEYED)).tolist()
    return [rows[at] for at in sorted(range(len(rows)), key=lambda at: (rows[at]["t"], hashes[at]))]
