"""The join's state: few runs, few expired rows, bounded pieces, the same bytes again, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.operators import join_operator
from support.oracle import nested_loop
from support.profiles import size

from braided.errors import BraidedError, StateError
from braided.local.runtime import LocalRuntime
from braided.operators.join import emit, runs
from braided.operators.join.window_join import WindowJoin
from braided.routing.key_hashes import KeyHasher
from braided.routing.start import first_table
from braided.runtime.cache import FileCache
from braided.runtime.store import MemoryStore
from braided.time.clocks import Window

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("id", pa.int64())])


def a_join(window: Window, schema: pa.Schema = SCHEMA) -> WindowJoin:
    return join_operator(schema, window)


def a_batch(keys: Any, times: Any, first_id: int = 0) -> pa.RecordBatch:
    times = np.asarray(times, np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.broadcast_to(keys, times.shape)),
            pa.array(times, pa.timestamp("us")),
            pa.array(np.arange(len(times)) + first_id),
        ],
        schema=SCHEMA,
    )


def stored(runtime: LocalRuntime) -> dict[str, int]:
    return {
        name: sum(report["last"][name] for report in runtime.reports)
        for name in ("stored_rows", "stored_bytes", "runs")
    }


def test_a_window_of_one_second_batches_keeps_few_runs_and_few_expired_rows() -> None:
    length = size(quick=240, slow=3600)
    window = Window(-length * SECOND, length * SECOND, (5 * SECOND, 5 * SECOND))
    runtime = LocalRuntime(a_join(window))
    rng = np.random.default_rng(0)
    most_runs = 0
    for second in range(5 * length // 2):
        times = second * SECOND + rng.integers(-4 * SECOND, SECOND, 4)
        keys = rng.integers(0, 1 << 40, 4)
        list(runtime.run_batch([(0, [a_batch(keys, times)]), (1, [a_batch(keys + 1, times)])]))
        if second > 10 * length // 9:
            levels = stored(runtime)
            most_runs = max(most_runs, levels["runs"])
            live = 2 * 4 * (length + 5)
            assert levels["stored_rows"] <= live * 1.25 + 8
            assert levels["runs"] == len(runtime.stores[0].blocks), "merged runs stay behind"
    # Six slices a side, nearly one run each once closed; log2 of the batches of the open one; a few stragglers.
    assert most_runs <= 2 * (9 + (length // 6).bit_length() - 1 + 6)


def test_expired_rows_stay_below_a_quarter_when_one_stream_is_far_ahead() -> None:
    """All of the left stream comes at once and is cut coarsely; the right one then moves the horizon through it."""
    runtime = LocalRuntime(a_join(Window(0, SECOND, (0, 0))))
    times = np.arange(1600) * SECOND // 10
    list(runtime.run_batch([(0, [a_batch(times, times)])]))
    for second in range(150):
        list(runtime.run_batch([(1, [a_batch([7], [second * SECOND])])]))
        live = int(np.count_nonzero(times >= (second - 1) * SECOND))
        assert live <= stored(runtime)["stored_rows"] <= live + live // 4 + 1


def test_a_catch_up_batch_stores_only_rows_that_can_still_match() -> None:
    runtime = LocalRuntime(a_join(Window(-SECOND, SECOND, (0, 0))))
    times = np.arange(0, 100_000) * SECOND // 10
    list(runtime.run_batch([(0, [a_batch(times % 97, times)]), (1, [a_batch(times % 89, times)])]))
    assert stored(runtime)["stored_rows"] <= 2 * 11


def test_a_worker_without_rows_expires_its_state() -> None:
    runtime = LocalRuntime(a_join(Window(0, SECOND, (0, 0))), workers=2)
    list(runtime.run_batch([(side, [a_batch(np.arange(100), np.zeros(100))]) for side in (0, 1)]))
    assert all(report["last"]["stored_rows"] for report in runtime.reports)
    list(runtime.run_batch([(side, [a_batch([1], [100 * SECOND])]) for side in (0, 1)]))
    assert stored(runtime)["stored_rows"] == 2
    assert sum(len(store.blocks) for store in runtime.stores) == stored(runtime)["runs"]


def test_expiry_keeps_the_last_row_that_can_match_and_drops_the_first_that_cannot() -> None:
    runtime = LocalRuntime(a_join(Window(-2, 3, (1, 4))))
    list(runtime.run_batch([(0, [a_batch(np.arange(10), np.arange(10))]), (1, [a_batch([99], [10])])]))
    # Left rows leave when l.t + 3 < 10 - 4; right rows when r.t + 2 < 9 - 1.
    left_times = [8, 3, 4, 5, 6, 7, 9]
    assert stored(runtime)["stored_rows"] == len(left_times) + 1


def test_runs_stay_below_the_limit_and_rows_of_any_size_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RUN_BYTES", 10_000)
    monkeypatch.setattr(emit, "PIECE_BYTES", 50_000)
    schema = SCHEMA.append(pa.field("text", pa.string()))
    rng = np.random.default_rng(1)
    texts = ["x" * int(size) for size in rng.integers(0, 4_000, 120)]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.zeros(120, np.int64)),
            pa.array(np.zeros(120, np.int64), pa.timestamp("us")),
            pa.array(np.arange(120)),
            pa.array(texts),
        ],
        schema=schema,
    )
    runtime = LocalRuntime(a_join(Window(0, 0, (0, 0)), schema))
    pieces = list(runtime.run_batch([(0, [batch]), (1, [batch])]))
    assert sum(piece.num_rows for piece in pieces) == 120 * 120
    assert max(piece.nbytes for piece in pieces) <= 2 * 50_000
    assert max(len(block) for block in runtime.stores[0].blocks.values()) <= 10_000 * 5 // 4 + 4_000 + 1_000


def test_keys_whose_hashes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("us")), ("id", pa.int64())])
    honest = KeyHasher.hash
    monkeypatch.setattr(KeyHasher, "hash", lambda self, columns, rows: honest(self, columns, rows) & np.uint64(1))
    rows = [{"k": f"key{i % 7}", "t": i, "id": i} for i in range(60)]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    runtime = LocalRuntime(a_join(Window(-9, 9, (0, 0)), schema))
    found: Counter[tuple[int, int]] = Counter()
    for part in (batch.slice(0, 30), batch.slice(30)):
        for piece in runtime.run_batch([(0, [part]), (1, [part])]):
            found.update(zip(piece["id"].to_pylist(), piece["id_r"].to_pylist(), strict=True))
    assert found == nested_loop([rows, rows], ["k"], -9, 9)


@pytest.mark.parametrize("edge", [-(1 << 63), (1 << 63) - 1])
def test_times_at_the_edge_of_int64_neither_wrap_nor_crash(edge: int) -> None:
    runtime = LocalRuntime(a_join(Window(-10, 10, (5, 5))))
    found = 0
    for times in ([edge], [0], [edge]):
        for piece in runtime.run_batch([(0, [a_batch([1], times)]), (1, [a_batch([1], times)])]):
            found += piece.num_rows
    # Each batch meets itself; the last meets the first too unless a clock at the far end made it late.
    assert found >= 3


@pytest.mark.long
def test_tens_of_millions_of_pairs_pass_in_bounded_memory(tmp_path: Path) -> None:
    rows = size(quick=4_000, slow=10_000)
    script = tmp_path / "pairs.py"
    script.write_text(
        f"""
import resource, sys
sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
import numpy as np
from test_state import LocalRuntime, Window, a_batch, a_join
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
warm = LocalRuntime(a_join(Window(-1, 1, (0, 0))))
list(warm.run_batch([(side, [a_batch([1], np.zeros(1000))]) for side in (0, 1)]))
before, pairs = peak(), 0
runtime = LocalRuntime(a_join(Window(-1, 1, (0, 0))))
for piece in runtime.run_batch([(side, [a_batch([1], np.zeros({rows}))]) for side in (0, 1)]):
    pairs += piece.num_rows
print(pairs, peak() - before)
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    pairs, grown = map(int, done.stdout.split())
    assert pairs == rows**2
    assert grown <= 300


def test_a_lost_or_damaged_cache_only_costs_a_read(tmp_path: Path) -> None:
    window = Window(-50, 50, (5, 5))
    first, second = a_batch(np.arange(40) % 5, np.arange(40)), a_batch(np.arange(40) % 5, np.arange(40) + 20)
    counts = []
    for damage in ("none", "lost", "off", "shared directory"):
        runtime = LocalRuntime(a_join(window))
        folder = tmp_path / damage
        if damage == "shared directory":
            folder.mkdir(mode=0o777)
            folder.chmod(0o777)
        cache = FileCache(folder, 0 if damage == "off" else 1 << 20)
        runtime.stores[0].cache = cache
        list(runtime.run_batch([(0, [first]), (1, [first])]))
        files = list(folder.iterdir()) if folder.exists() else []
        assert bool(files) == (damage in ("none", "lost"))
        if damage == "lost":
            for path in files:
                path.unlink()
        counts.append(sum(piece.num_rows for piece in runtime.run_batch([(0, [second]), (1, [second])])))
    assert len(set(counts)) == 1


def test_the_cache_is_private_and_bounded(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache", 100_000)
    for number in range(50):
        cache.put(f"{number:032x}", [pa.py_buffer(bytes(10_000))])
    cache.prune()
    files = list((tmp_path / "cache").iterdir())
    assert sum(path.stat().st_size for path in files) <= 100_000
    assert (tmp_path / "cache").stat().st_mode & 0o077 == 0
    kept = cache.get(files[0].name)
    assert kept is not None
    assert kept[0].to_pybytes() == bytes(10_000)
    assert cache.get("f" * 32) is None


def test_changed_options_are_found_before_any_row_leaves() -> None:
    rows = a_batch(np.arange(40) % 5, np.arange(40))
    runtime = LocalRuntime(a_join(Window(-50, 50, (5, 5))))
    list(runtime.run_batch([(0, [rows]), (1, [rows])]))
    changed = LocalRuntime(a_join(Window(-50, 60, (5, 5))), stores=runtime.stores)
    was, now = r'\["-50 microseconds", "50 microseconds"\]', r'\["-50 microseconds", "60 microseconds"\]'
    with pytest.raises(BraidedError, match=rf"other options: between was {was} and is {now}; restore them"):
        next(changed.run_batch([(0, [rows]), (1, [rows])]))
    more = LocalRuntime(a_join(Window(-50, 50, (5, 5))), stores=[*runtime.stores, MemoryStore()])
    with pytest.raises(
        BraidedError, match=r"written with 1 workers, but this query has 2; set spark\.sql\.shuffle\.partitions=1"
    ):
        list(more.run_batch([(0, [rows]), (1, [rows])]))


def test_a_table_that_is_not_the_checkpoint_s_is_refused() -> None:
    rows = a_batch(np.arange(40) % 5, np.arange(40))
    runtime = LocalRuntime(a_join(Window(-50, 50, (5, 5))))
    runtime.table = first_table("auto", 1, keyed=True, version=3)
    list(runtime.run_batch([(0, [rows]), (1, [rows])]))
    runtime.table = first_table("auto", 1, keyed=True, version=1)
    with pytest.raises(StateError, match=r"the routing went back from version 3 to 1; set control= to the directory"):
        next(runtime.run_batch([(0, [rows])]))
    runtime.table = first_table("hash", 1, keyed=True, version=3)
    with pytest.raises(StateError, match=r"another routing table of version 3; restore the old values of"):
        next(runtime.run_batch([(0, [rows])]))
