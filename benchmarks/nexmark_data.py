"""NEXMark's events as files, the same for every engine, and DuckDB's answers over them.

```
 data/person, auction, bid/   00000 | 00001 | ...    a file a stream a batch, for engines that work in batches
 flink/person, auction, bid/  0, 1                   every other row in order of arrival, for two readers
 warm/                        the same of the first batches
```
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from nexmark_queries import QUERIES
from support.generators.nexmark import nexmark_events

from braided.workloads.calls import ORIGIN

STREAMS = ("person", "auction", "bid")
WARM, WARM_EVENTS = 3, 600_000
"""Batches that an engine sees before it is measured."""
UNJUDGED_MS, UNJUDGED_BATCHES = 60_000, 3
"""Windows that begin so long before the end may not have been closed by an engine that works in batches."""


@dataclass(frozen=True)
class Load:
    """How many events, how they are cut, and how much more of them is hot than cold."""

    events: int = 2_000_000
    rate: int = 10_000
    batch: int = 200_000
    files: int = 1
    """So many files for each stream of a batch, read by as many tasks; rows are dealt out."""
    hot: int | None = None
    """Of so many bids all but one are hot, and of so many auctions; None: the public defaults."""

    def quick(self) -> Load:
        """A like load, for trying everything."""
        return replace(self, events=1_200_000, batch=100_000)

    @property
    def cutoff_ms(self) -> int:
        """Windows that begin before this are compared."""
        open_ms = UNJUDGED_MS + UNJUDGED_BATCHES * self.batch * 1000 // self.rate
        end = ORIGIN // 1000 + self.events * 1000 // self.rate - open_ms
        return end // 10_000 * 10_000


LOADS = {"uniform": Load(hot=1), "default": Load(), "skewed": Load(hot=100)}


def generate(load: Load, root: Path) -> int:
    """Write the files of a load; return the bytes of its events as Arrow has them."""
    hot = {} if load.hot is None else dict.fromkeys(("hot_auctions", "hot_sellers", "hot_bidders"), load.hot)
    arranged: dict[str, list[pa.Table]] = {stream: [] for stream in STREAMS}
    size = 0
    warm = max(1, min(WARM, WARM_EVENTS // load.batch))
    for folder in ("data", "warm/data"):
        for stream in STREAMS:
            (root / folder / stream).mkdir(parents=True)
    for number, events in enumerate(nexmark_events(events=load.events, rate=load.rate, batch=load.batch, **hot)):
        for stream, table in zip(STREAMS, events, strict=True):
            size += table.nbytes
            arranged[stream].append(table)
            for folder in ("data", *(("warm/data",) if number < warm else ())):
                for part in range(load.files):
                    path = root / folder / stream / f"{number * load.files + part:05}.parquet"
                    rows = table if load.files == 1 else _dealt(table, part, load.files)
                    pq.write_table(rows, path)
                    os.utime(path, (1_700_000_000 + number,) * 2)  # the order in which Spark reads them
    for stream, tables in arranged.items():
        _for_two_readers(tables[:warm], root / "warm" / "flink" / stream)
        _for_two_readers(tables, root / "flink" / stream)
    return size


def _for_two_readers(tables: list[pa.Table], folder: Path) -> None:
    """Write rows for Flink, which gives no order between files and has no finer times than milliseconds."""
    folder.mkdir(parents=True)
    whole = pa.concat_tables(tables)
    columns = {}
    for field in whole.schema:
        if pa.types.is_timestamp(field.type):
            name = {"dateTime": "ms", "expires": "expires_ms"}[field.name]
            columns[name] = pc.divide(whole[field.name].cast(pa.int64()), 1_000)
        else:
            columns[field.name] = whole[field.name]
    whole = pa.table(columns)
    for reader in range(2):
        pq.write_table(_dealt(whole, reader, 2), folder / f"{reader}.parquet")


def _dealt(rows: pa.Table, part: int, parts: int) -> pa.Table:
    return rows.take(pa.array(range(part, rows.num_rows, parts), pa.int64()))


def truth(query: str, load: Load, root: Path, *, capped: bool = True) -> dict[str, int]:
    """Return count and checksum of a query by DuckDB, with or without the cap on its joins."""
    asked = QUERIES[query]
    text = asked.text("duckdb")
    if not capped:
        text = text.replace("'10' SECOND", "'10' DAY")
    count, total = asked.totals("duckdb", load.cutoff_ms)
    found = truth_of(f"select {count}, {total} from ({text})", {stream: root / "data" / stream for stream in STREAMS})
    return dict(zip(("count", "checksum"), found, strict=True))


def truth_of(text: str, folders: dict[str, Path]) -> list[int]:
    """Return the one row of a query by DuckDB over streams of files."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for stream, folder in folders.items():
            database.execute(f"create view {stream} as from '{folder}/*.parquet'")
        [row] = database.execute(text).fetchall()
    return [int(value or 0) for value in row]
