"""Routing: even shares, and a changed number of partitions always noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.operators import join_operator

from braided.errors import ControlError
from braided.routing.control_directory import ControlDir
from braided.routing.edit import TableEdit
from braided.routing.key_hashes import KeyHasher
from braided.routing.routes import route, tagged_schema
from braided.routing.start import first_table
from braided.routing.table import RoutingTable, worker_ids
from braided.runtime import router
from braided.spark.routing import Routing
from braided.time.clocks import Window


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 200])
def test_shares_are_even(workers: int) -> None:
    hashes = KeyHasher((pa.int64(),)).hash([pa.array(np.arange(200_000))], 200_000)
    counts = np.bincount(
        route(RoutingTable.hashed(workers), 0, hashes, lambda at: hashes[at]).workers, minlength=workers
    )
    assert counts.max() <= 1.25 * counts.mean()


def test_another_number_of_partitions_is_always_noticed() -> None:
    """Either some worker lands on a partition that is not its own, or one finds the state of the old number."""
    from braided.routing.table import _murmur3_int

    limit = 96
    ids = {workers: worker_ids(workers) for workers in range(1, limit)}
    for now in range(1, limit):
        for before in range(1, limit):
            if now == before:
                continue
            at_home = all(_murmur3_int(group) % before == worker for worker, group in enumerate(ids[now]))
            assert not at_home or set(ids[now]) & set(ids[before])


def test_every_task_of_a_batch_uses_its_pinned_table(tmp_path: Path) -> None:
    control = ControlDir(str(tmp_path))
    routing = Routing("auto", True, 4, control)
    assert routing.table_of(0, "query", "join", 4).version == 1
    edit = TableEdit(routing.first())
    edit.assign(np.arange(10), 3)
    control.publish(edit.done())
    # A task that runs late, a retry, a replay after a restart: all read the pin. Only the next batch moves on.
    assert Routing("auto", True, 4, ControlDir(str(tmp_path))).table_of(0, "query", "join", 4).version == 1
    assert routing.table_of(1, "query", "join", 4).version == 2


def test_a_table_for_another_number_of_workers_is_refused(tmp_path: Path) -> None:
    routing = Routing("auto", True, 2, ControlDir(str(tmp_path)))
    assert routing.table_of(0, "query", "join", 4).workers == 4
    with pytest.raises(
        ControlError, match="its tables are for 4 workers, but this query has 2; give the directory that"
    ):
        routing.table_of(1, "query", "join", 2)


def test_the_copies_of_a_piece_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "PIECE_ROWS", 1000)
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us"))])
    join = join_operator(schema, Window(0, 10, (0, 0)))
    rows = pa.record_batch([np.arange(5000), pa.array(np.arange(5000), schema.field(1).type)], schema=schema)
    for partition, side, copies in (("ssp", 1, 100), ("ssp", 0, 1), ("grid", 0, 10), ("hash", 0, 1)):
        table = first_table(partition, 100, keyed=True, version=1)
        assert table.most_copies[side] == copies
        sent = list(router.route_task(join, "", table, side, 0, 100, [rows]))
        report = sent[-1]
        assert isinstance(report, router.RouterReport)
        assert report.copies == 5000 * copies
        pieces = [packets for packets in sent[:-2] if isinstance(packets, list)]
        read = [
            sum(
                pa.ipc.read_record_batch(
                    pa.py_buffer(p.block), schema if not p.kind & router.TAGGED else tagged_schema(schema)
                ).num_rows
                for p in packets
            )
            for packets in pieces
        ]
        assert sum(read) == 5000 * copies
        assert max(read) <= 8 * 1000
