"""NEXMark's joins on Bytewax: two processes, each with a worker, in an environment of its own; a part of `nexmark.py`.

Bytewax has no join of two streams within a time (its own join keeps one row a side and key, its window joins need
common windows), so that rows of a key are kept and paired by a `StatefulBatchLogic`, which its guide has for such
cases. Nothing is ever forgotten, and no recovery store is written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main
from workloads import P

CAP_MS = 10_000
BATCH = 5_000
Row = tuple[Any, ...]

AUCTION = ["ms", "seller", "itemName", "description", "initialBid", "reserve", "category", "expires_ms", "extra"]
PERSON = ["ms", "name", "emailAddress", "creditCard", "city", "state", "extra"]
BID = ["ms", "bidder", "price", "channel", "url", "extra"]
# For each stream its key, its columns (the first is its time) and the rows that are kept.
JOINS: dict[str, dict[str, tuple[str, list[str], Callable[[Row], bool]]]] = {
    "q3": {
        "auction": ("seller", ["ms", "id", "category"], lambda row: row[2] == 10),
        "person": ("id", ["ms", "name", "city", "state"], lambda row: row[3] in ("OR", "ID", "CA")),
    },
    "q20": {
        "bid": ("auction", BID, lambda row: True),
        "auction": ("id", AUCTION, lambda row: row[6] == 10),
    },
    "q23": {
        "bid": ("bidder", BID, lambda row: True),
        "person": ("id", PERSON, lambda row: True),
        "auction": ("seller", AUCTION, lambda row: True),
    },
}


def part(query: str, rows: tuple[Row, ...]) -> int:
    """Return what a result adds to the checksum: what `nexmark_queries` says in SQL."""
    if query == "q3":
        (_, auction, _), (_, name, city, _) = rows
        return auction * (len(name) + 17 * len(city)) % P + (auction * 31 + len(name)) % P
    if query == "q20":
        bid, auction = rows
        rest = bid[1] * 31 + bid[0] * 7 + auction[0] * 13 + auction[7] + len(auction[8])
        return bid[2] * auction[1] % P + rest % P
    bid, person, auction = rows
    return bid[2] * auction[5] % P + (bid[1] * 31 + auction[0] * 13 + len(person[1]) + len(bid[5])) % P


class Reader(StatefulSourcePartition[Any, int]):
    """Every other row of a stream."""

    def __init__(self, path: Path, side: int, key: str, columns: list[str], keep: Callable[[Row], bool]) -> None:
        self._batches = pq.ParquetFile(path).iter_batches(BATCH, columns=list(dict.fromkeys([key, *columns])))
        self._side, self._key, self._columns, self._keep = side, key, columns, keep

    def next_batch(self) -> Iterable[Any]:
        """Return rows with their key."""
        batch = next(self._batches, None)
        if batch is None:
            raise StopIteration
        keys = batch.column(self._key).to_pylist()
        rows = zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True)
        return [(str(key), (self._side, row)) for key, row in zip(keys, rows, strict=True) if self._keep(row)]

    def snapshot(self) -> int:
        """Nothing is recovered."""
        return 0


class Source(FixedPartitionedSource[Any, int]):
    """A stream, of which each process reads one half."""

    def __init__(self, folder: Path, own: str, *how: Any) -> None:
        self._folder, self._own, self._how = folder, own, how

    def list_parts(self) -> list[str]:
        """Return the half of this process."""
        return [self._own]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Reader:
        """Open it."""
        return Reader(self._folder / f"{for_part}.parquet", *self._how)


class Join(StatefulBatchLogic[Any, Any, Any]):
    """All rows of a key so far."""

    def __init__(self, sides: int) -> None:
        self._rows: list[list[Row]] = [[] for _ in range(sides)]

    def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
        """Pair new rows with those of the other sides."""
        found = []
        for side, row in values:
            sides = [*self._rows[:side], [row], *self._rows[side + 1 :]]
            for each in itertools.product(*sides):
                times = [other[0] for other in each]
                if max(times) - min(times) <= CAP_MS:
                    found.append(each)
            self._rows[side].append(row)
        return found, False

    def snapshot(self) -> Any:
        """Return the state."""
        return self._rows


class Totals(StatelessSinkPartition[Any]):
    """Adds results up."""

    def __init__(self, query: str, totals: dict[str, int]) -> None:
        self._query, self._totals = query, totals

    def write_batch(self, items: list[Any]) -> None:
        """Count results."""
        self._totals["count"] += len(items)
        self._totals["checksum"] += sum(part(self._query, rows) for _, rows in items)


class Sink(DynamicSink[Any]):
    """One sum in each process."""

    def __init__(self, *how: Any) -> None:
        self._how = how

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Totals:
        """Make it."""
        return Totals(*self._how)


def work(query: str, data: Path, number: int, ports: list[int], said: Any) -> None:
    """Run one of the two processes."""
    totals = {"count": 0, "checksum": 0}
    flow = Dataflow(query)
    streams = []
    for side, (stream, how) in enumerate(JOINS[query].items()):
        streams.append(op.input(stream, flow, Source(data / stream, str(number), side, *how)))
    joined = op.stateful_batch("join", op.merge("both", *streams), lambda state: Join(len(streams)))
    op.output("out", joined, Sink(query, totals))
    started, before = time.perf_counter(), time.process_time()
    cluster_main(flow, [f"127.0.0.1:{port}" for port in ports], number)
    seconds, used = time.perf_counter() - started, time.process_time() - before
    said.put(totals | {"seconds": seconds, "cpu_s": used})


def run(query: str, data: Path) -> dict[str, Any]:
    """Run a query in two processes."""
    from socket import create_server

    with create_server(("127.0.0.1", 0)) as one, create_server(("127.0.0.1", 0)) as other:
        ports = [one.getsockname()[1], other.getsockname()[1]]
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    processes = [context.Process(target=work, args=(query, data, number, ports, said)) for number in range(2)]
    for process in processes:
        process.start()
    found = [said.get(timeout=900) for _ in processes]
    for process in processes:
        process.join()
    return {
        "count": sum(each["count"] for each in found),
        "checksum": sum(each["checksum"] for each in found),
        "seconds": round(max(each["seconds"] for each in found), 3),
        "cpu_s": round(sum(each["cpu_s"] for each in found), 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("cutoff", type=int)
    parser.add_argument("queries", nargs="+", choices=JOINS)
    options = parser.parse_args()
    print(json.dumps({query: run(query, options.root / "flink") for query in options.queries}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
