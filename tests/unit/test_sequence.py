"""Records that a sink wrote twice are told by their sequence, whatever failed and however a reader cuts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from braided.errors import StateError
from braided.sequence import Newest, Repeats, pack, unpack

Record = tuple[str, int, int, int]  # query, batch, task, number


def judge(repeats: Repeats, records: list[Record]) -> list[bool]:
    queries, batches, tasks, numbers = zip(*records, strict=True) if records else ([], [], [], [])
    return repeats.new(
        np.array(queries, object), np.array(batches, np.int64), np.array(tasks, np.int64), np.array(numbers, np.int64)
    ).tolist()


def read(log: list[Record], cuts: list[int], chunk: int, rng: np.random.Generator) -> list[Record]:
    """Read a partition of a topic in batches, each in chunks of any order; the state is saved in between."""
    kept: list[Record] = []
    saved = pack({})
    for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        repeats = Repeats(unpack(saved))
        part = [log[start:end][at] for at in rng.permutation(end - start)]
        assert judge(repeats, []) == []  # records without a sequence make a chunk with none
        for at in range(0, len(part), chunk):
            records = part[at : at + chunk]
            kept += [record for record, new in zip(records, judge(repeats, records), strict=True) if new]
        saved = pack(repeats.newest())
    return kept


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Record], set[Record]]:
    """One partition of a topic that two queries of two tasks write to, some attempts of which failed or came late."""
    written: list[list[Record]] = []
    wanted: set[Record] = set()
    for query in ("a", "b"):
        log: list[Record] = []
        for batch in range(draw(st.integers(0, 3))):
            attempts: list[list[Record]] = []
            for task in (0, 1):
                whole = [(query, batch, task, n) for n in sorted(draw(st.sets(st.integers(0, 9), max_size=6)))]
                wanted.update(whole)
                # A failed attempt delivered any part of its records, gaps included; the last one delivers all.
                failed = draw(st.lists(st.sets(st.sampled_from(whole)) if whole else st.just(set()), max_size=2))
                attempts += [*(sorted(part) for part in failed), whole]
            # Attempts of one batch run side by side (speculation); copies of a batch come late, when others are done.
            log += draw(st.permutations([record for attempt in attempts for record in attempt]))
            if log:
                log += draw(st.lists(st.sampled_from(log), max_size=2))
        written.append(log)
    turns = draw(st.permutations([0] * len(written[0]) + [1] * len(written[1])))
    each = [iter(log) for log in written]
    return [next(each[turn]) for turn in turns], wanted


@settings(max_examples=examples(1000, quick=50), deadline=None)
@given(logs(), st.data())
def test_every_record_is_kept_once(case: tuple[list[Record], set[Record]], data: Any) -> None:
    log, wanted = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    chunk = data.draw(st.integers(1, 8))
    kept = read(log, cuts, chunk, np.random.default_rng(data.draw(st.integers(0, 99))))
    assert len(kept) == len(set(kept)), "a record twice"
    assert set(kept) == wanted


def test_a_record_that_was_given_up_and_comes_after_later_ones_is_new() -> None:
    assert read(
        [("q", 7, 0, 0), ("q", 7, 0, 2), ("q", 7, 0, 0), ("q", 7, 0, 1)], [2], 10, np.random.default_rng(1)
    ) in (
        [("q", 7, 0, 0), ("q", 7, 0, 2), ("q", 7, 0, 1)],
        [("q", 7, 0, 2), ("q", 7, 0, 0), ("q", 7, 0, 1)],
    )


def test_only_the_newest_batch_of_a_task_is_remembered() -> None:
    repeats = Repeats({})
    judge(repeats, [("q", batch, task, n) for batch in range(5) for task in range(2) for n in range(10)])
    newest = repeats.newest()
    assert {writer: (one.batch, one.numbers.tolist()) for writer, one in newest.items()} == {
        ("q", 0): (4, list(range(10))),
        ("q", 1): (4, list(range(10))),
    }


def test_what_is_remembered_survives_and_damage_is_noticed() -> None:
    newest = {("q", 1): Newest(3, np.array([1, 5])), ("p", 0): Newest(2**40, np.array([2**50]))}
    content = pack(newest)
    assert content == pack(dict(reversed(newest.items())))
    assert {writer: (one.batch, one.numbers.tolist()) for writer, one in unpack(content).items()} == {
        ("q", 1): (3, [1, 5]),
        ("p", 0): (2**40, [2**50]),
    }
    with pytest.raises(StateError, match="is damaged; restore its checkpoint"):
        unpack(content[:40])
