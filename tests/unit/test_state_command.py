"""`braided state`: what is refused before Spark starts, and how a state prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.folder_store import FolderStore, folder_stores
from support.operators import join_operator

import braided
from braided.cli import main
from braided.inspection.heaviest import count_heaviest
from braided.inspection.operator_state import Files, OperatorState, WorkerState
from braided.inspection.parts import find_parts
from braided.inspection.query_state import QueryState
from braided.local.runtime import LocalRuntime
from braided.routing.key_hashes import KeyHasher
from braided.runtime.blocks import Blocks
from braided.runtime.bookkeeping import read_bookkeeping
from braided.runtime.file_blocks import map_block
from braided.runtime.rows import Rows
from braided.runtime.store import MemoryStore
from braided.runtime.waiting_runs import Waiting
from braided.time.clocks import Window

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])


def a_state(*, redact: bool = False) -> OperatorState:
    """A join with 40 left rows, 30 of which have the key 7, and one right row."""
    stores = folder_stores(2)
    runtime = LocalRuntime(join_operator(SCHEMA, Window(-500, 500, (5, 5))), stores=stores)
    keys = np.where(np.arange(40) < 30, 7, np.arange(40))
    left = pa.record_batch([keys, pa.array(np.arange(40), pa.timestamp("us")), np.arange(40)], schema=SCHEMA)
    list(runtime.run_batch([(0, [left]), (1, [left.slice(35, 1)])]))
    return OperatorState(3, "join-1", [_worker(store) for store in stores], redact)


def _worker(store: FolderStore) -> WorkerState:
    bookkeeping = read_bookkeeping(store.bookkeeping or b"")
    files = {"live": Files(len(store.files()), 64), "dropped": Files(0, 0), "unnamed": Files(0, 0)}
    return WorkerState(
        bookkeeping, lambda number: map_block(store.path / bookkeeping["blocks"][str(number)])[0][0], files
    )


def test_a_state_is_tables_and_prints() -> None:
    found = a_state()
    assert found.inputs == ("left", "right")
    assert sorted(found.rows("left").column("id").to_pylist()) == list(range(40))
    assert found.rows("right").column("id").to_pylist() == [35]
    assert found.rows("left", limit=7).num_rows == 7
    assert found.relation("left").aggregate("count(*) as n, max(id) as m").fetchall() == [(40, 39)]
    assert found.heaviest("left", 2).to_pylist() == [{"k": 7, "rows": 30}, {"k": 30, "rows": 1}]
    state = QueryState("check", 4, [found])
    assert state["join-1"] is state[3] is state["3"] is found
    text = state.text(keys=1)
    assert "check: after batch 4" in text
    assert "join-1: join, operator 3, 2 workers, 41 rows" in text
    assert "heaviest keys of left" in text
    assert str(state) == state.text()
    plain = state.to_dict(keys=1)["operators"][0]
    assert plain["heaviest"] == {"left": [{"k": 7, "rows": 30}], "right": [{"k": 35, "rows": 1}]}
    assert sum(line["rows"] for line in plain["summary"]) == 41
    with pytest.raises(braided.OptionError, match=r"operator='x': not found; check has 'join-1' \(3\)"):
        state["x"]
    with pytest.raises(braided.OptionError, match="input='middle': unknown input; join-1 has 'left', 'right'"):
        found.rows("middle")


def test_redacted_there_are_no_values() -> None:
    found = a_state(redact=True)
    [heaviest] = found.heaviest("left", 1).to_pylist()
    seven = KeyHasher((pa.int64(),)).hash([pa.array([7])], 1)[0]
    assert heaviest == {"key_hash": f"{seven:016x}", "rows": 30}
    with pytest.raises(braided.OptionError, match="redact=True: rows contain the values of keys"):
        found.rows("left")


def test_the_heaviest_keys_are_those_of_a_plain_count() -> None:
    rng = np.random.default_rng(5)
    keys = (rng.zipf(1.3, 20_000) % 5000).astype(np.int64)
    batches = [pa.record_batch({"rows": part}) for part in np.array_split(keys, 7)]
    found = count_heaviest(lambda: batches, KeyHasher((pa.int64(),)), 20)
    values, counts = np.unique(keys, return_counts=True)
    order = np.lexsort((values, -counts))[:20]
    assert found.column(0).to_pylist() == values[order].tolist()
    assert found.column("__braided_rows").to_pylist() == counts[order].tolist()


def test_what_is_no_checkpoint_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "offsets").mkdir()
    assert main(["state", str(tmp_path)]) == 2
    assert "expected the checkpoint of a query that has committed a batch; it has no folder 'commits'" in (
        capsys.readouterr().err
    )
    for name in ("commits", "state"):
        (tmp_path / name).mkdir()
    assert main(["rescale", str(tmp_path), "--workers", "4"]) == 2
    assert "braided rescale: checkpoint=" in (told := capsys.readouterr().err)
    assert "this query has not committed a batch yet; run it first" in told


def test_of_rows_that_wait_those_that_have_left_are_not_listed() -> None:
    store = MemoryStore()
    known: dict[str, int | str] = {}
    blocks = Blocks(store, 0, known)
    waiting = Waiting(blocks, SCHEMA, "t", [])
    columns = [pa.array(range(10)), pa.array(range(10), pa.timestamp("us")), pa.array(range(10))]
    waiting.store(Rows(pa.RecordBatch.from_arrays(columns, schema=SCHEMA)))
    waiting.heads(6)
    state = {"stage": {"waiting": [waiting.to_json()], "apart": [[]]}}

    def read(number: int) -> pa.Buffer:
        return store.get(number, str(known[str(number)]), lambda _: ())[0][0]

    [part] = find_parts(state, {}, [SCHEMA], read)
    assert part.extent == (0, 4, 6, 9)
    assert part.decode(read(part.block))[0].column("id").to_pylist() == [6, 7, 8, 9]
