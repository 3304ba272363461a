"""A policy that only this file knows of: its class, its hooks and what it saves are enough for a join to follow it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pytest

import braided
from braided.compiled import in_place
from braided.errors import OptionError, StateError
from braided.eviction.buffer import Buffer, Events
from braided.eviction.policies.hooks import Hooks
from braided.eviction.policies.policy import Policy, Shape
from braided.eviction.policies.registry import POLICIES, register
from braided.eviction.records import Ints, State
from braided.eviction.sections import Facts, Reader, Writer
from braided.operators.bounded.group_spec import GroupSpec
from braided.operators.join.spec import JoinSpec
from braided.typing import PolicyName

DOCS = Path(__file__).parents[2] / "docs"


class Turns(NamedTuple):
    every: int
    seen: Ints


@in_place
def _arrived(state: State, learned: Turns, key: np.uint64, time: int, stream: int, entry: int) -> None:
    learned.seen[stream] += 1


@in_place
def _row_matched(state: State, learned: Turns, pool: int, slot: int, age: int, shares: float) -> None:
    state.rows[slot].credit += 0.25


@in_place
def _by_chain(learned: Turns) -> bool:
    return False


@in_place
def _newcomer(
    state: State, learned: Turns, key: np.uint64, time: int, stream: int, content: np.uint64, hint: float
) -> tuple[float, float]:
    credit = 1.0 if learned.seen[stream] % learned.every == 0 else 0.0
    return credit, credit


@dataclass(frozen=True, kw_only=True, repr=False)
class NTH(Policy):
    """Every n-th row of a stream is worth as much as four matches; a newcomer displaces none that is worth more."""

    every: int = 3
    name = "nth"

    @property
    def hooks(self) -> Hooks:
        return Hooks(arrived=_arrived, by_chain=_by_chain, row_matched=_row_matched, newcomer=_newcomer)

    def learned(self, shape: Shape) -> Turns:
        return Turns(self.every, np.zeros(shape.streams, np.int64))

    def save(self, learned: Turns, write: Writer) -> Facts:
        write.ints(learned.seen)
        return {}

    def load(self, learned: Turns, facts: Facts, read: Reader) -> Turns:
        learned.seen[:] = read.ints(np.int64)
        return learned


@pytest.fixture
def registered() -> Iterator[None]:
    register(NTH)
    yield
    del POLICIES["nth"]


ROWS, CAPACITY, WINDOW = 3000, 40, 300


def two_tables() -> list[pa.Table]:
    """Left rows at even and right rows at odd microseconds, with a number each."""
    rng = np.random.default_rng(5)
    return [
        pa.table(
            {
                "k": (rng.zipf(1.5, ROWS) % 20).astype(np.int64),
                "ts": pa.array(2 * np.arange(ROWS) + side, pa.timestamp("us")),
                "id": np.arange(ROWS),
            }
        )
        for side in (0, 1)
    ]


def expected(tables: list[pa.Table], every: int) -> set[tuple[int, int]]:
    """The pairs of the join in plain lists."""
    keys = [table["k"].to_pylist() for table in tables]
    seen, stored, pairs = [0, 0], [], set()
    for number in range(2 * ROWS):
        side, at = number % 2, number // 2
        stored = [row for row in stored if number - row["t"] <= WINDOW]
        for row in stored:
            if row["side"] != side and row["k"] == keys[side][at]:
                pairs.add((at, row["id"]) if side == 0 else (row["id"], at))
                row["credit"] += 0.25
        seen[side] += 1
        new = {"t": number, "side": side, "k": keys[side][at], "id": at, "credit": float(seen[side] % every == 0)}
        if len(stored) == CAPACITY:
            worst = min(stored, key=lambda row: row["credit"])
            if worst["credit"] > new["credit"]:
                continue
            stored.remove(worst)
        stored.append(new)
    return pairs


@pytest.mark.parametrize("evict", ["nth", NTH(every=2)], ids=str)
@pytest.mark.parametrize("batch_rows", [100_000, 777])
def test_a_join_follows_it_whatever_the_batches(evict: Any, batch_rows: int, registered: None) -> None:
    tables = two_tables()
    joined = braided.local.join(
        *tables, on="k", time="ts", within=f"{WINDOW} us", lateness="0 seconds", memory=CAPACITY, evict=evict,
        batch_rows=batch_rows,
    ).table  # fmt: skip
    found = list(zip(joined["id"].to_pylist(), joined["id_right"].to_pylist(), strict=True))
    assert len(set(found)) == len(found)
    assert set(found) == expected(tables, 3 if evict == "nth" else evict.every)


def test_a_budget_in_bytes_and_many_streams_know_it_too(registered: None) -> None:
    tables = [*two_tables(), two_tables()[0]]
    bounded = braided.local.multijoin(tables, on="k", time="ts", within="20 us", memory="20 KB", evict="nth")
    exact = braided.local.multijoin(tables, on="k", time="ts", within="20 us")
    assert 0 < bounded.table.num_rows < exact.table.num_rows


def test_what_it_has_learned_is_saved_and_no_other_policy_reads_it() -> None:
    keys = np.arange(10, dtype=np.uint64)
    events = Events(keys, np.arange(10), np.zeros(10, np.int8), keys, np.arange(10))
    buffer = Buffer(4, NTH(), window=(-50, 50))
    buffer.count(events)
    assert buffer.learned.seen.tolist() == [10, 0]
    assert Buffer.from_bytes(buffer.to_bytes(), NTH()).learned.seen.tolist() == [10, 0]
    with pytest.raises(StateError, match=r"saved with \{'every': 3, 'policy': 'nth'\}"):
        Buffer.from_bytes(buffer.to_bytes(), NTH(every=4))


def test_messages_name_it_where_it_may_be_written(registered: None) -> None:
    left, right = two_tables()
    options: dict[str, Any] = {"time": "ts", "within": "1 second", "memory": 10}
    with pytest.raises(
        OptionError, match=r"evict='lru': write one of 'auto', 'gdj', .*, 'random', .*'nth', or a policy"
    ):
        braided.local.join(left, right, on="k", evict="lru", **options)
    joins = [braided.Join("one", left="a", right="b", on="k", within="1 second")]
    with pytest.raises(
        OptionError, match=r"evict=NTH\(\): not supported for several joins; use .* 'prob', 'fifo', .*'tail'"
    ):
        braided.local.join_group(joins, streams={"a": left, "b": right}, time="ts", memory=10, evict="nth")


def test_type_checkers_know_the_names_of_all_policies() -> None:
    assert set(get_args(PolicyName)) == set(POLICIES), "write its name in PolicyName, in src/braided/typing.py"


@pytest.mark.parametrize("kind", list(POLICIES.values()), ids=lambda kind: kind.name)
def test_a_policy_is_exported_and_described(kind: type[Policy]) -> None:
    name = kind.__name__
    assert name in braided.__all__, f"export {name} in src/braided/__init__.py"
    assert getattr(braided, name, None) is kind, f"write {name} in _LATER of src/braided/__init__.py"
    words = JoinSpec.descriptions()["evict"]
    assert f'"{kind.name}"' in words, "describe it in WithBudget.evict of src/braided/operators/shared_options.py"
    for page in ("bounded", "api"):
        text = next(DOCS.rglob(f"{page}.md")).read_text()
        assert f"`{name}`" in text or f"`braided.{name}`" in text, f"name it in docs/{page}.md"
    if kind.in_groups:
        words = GroupSpec.descriptions()["evict"]
        assert f'"{kind.name}"' in words, "describe it under evict in src/braided/operators/bounded/group_spec.py"
        assert f'`"{kind.name}"' in next(DOCS.rglob("multijoin.md")).read_text(), (
            "name it in docs/reference/multijoin.md"
        )
