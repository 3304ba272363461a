"""NEXMark's joins on Pathway with two threads, in an environment of its own; a part of `nexmark.py`.

Each query is an `interval_join` over files of CSV, which Pathway reads itself, in its static mode: it has all events at
once, as one batch, and forgets none. The files are written before, and a process has one query. Nothing is persisted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from workloads import P

CAP_MS = 10_000
COLUMNS = {
    "person": ["number", "name", "emailAddress", "creditCard", "city", "state", "ms", "extra"],
    "auction": [
        *("number", "itemName", "description", "initialBid", "reserve", "ms", "expires_ms", "seller", "category"),
        "extra",
    ],
    "bid": ["auction", "bidder", "price", "channel", "url", "ms", "extra"],
}
# Pathway has an `id` of its own.
NUMBERS = {"number", "initialBid", "reserve", "ms", "expires_ms", "seller", "category", "auction", "bidder", "price"}
STREAMS = {"q3": ("auction", "person"), "q20": ("bid", "auction"), "q23": ("bid", "person", "auction")}


def ask(query: str, data: Path) -> dict[str, Any]:
    """Run one query in this process."""
    import pathway as pw

    def read(stream: str) -> Any:
        types = {name: int if name in NUMBERS else str for name in COLUMNS[stream]}
        schema = pw.schema_from_types(**types)
        return pw.io.csv.read(str(data / "csv" / stream), schema=schema, mode="static")

    streams = {stream: read(stream) for stream in STREAMS[query]}
    within = pw.temporal.interval(-CAP_MS, CAP_MS)
    auction = streams["auction"]
    if query == "q3":
        person = streams["person"]
        auction = auction.filter(auction.category == 10)
        person = person.filter((person.state == "OR") | (person.state == "ID") | (person.state == "CA"))
        result = auction.interval_join(person, auction.ms, person.ms, within, auction.seller == person.number).select(
            person.name, person.city, person.state, auction.number
        )
        part = result.number * (result.name.str.len() + 17 * result.city.str.len()) % P
        part += (result.number * 31 + result.name.str.len()) % P
    elif query == "q20":
        bid = streams["bid"]
        auction = auction.filter(auction.category == 10)
        result = bid.interval_join(auction, bid.ms, auction.ms, within, bid.auction == auction.number).select(
            *(bid[name] for name in ("auction", "bidder", "price", "channel", "url")),
            *(auction[name] for name in COLUMNS["auction"] if name not in ("number", "ms", "extra")),
            bid_ms=bid.ms, bid_extra=bid.extra, auction_ms=auction.ms, auction_extra=auction.extra,
        )  # fmt: skip
        rest = result.bidder * 31 + result.bid_ms * 7 + result.auction_ms * 13 + result.expires_ms
        part = result.price * result.seller % P + (rest + result.auction_extra.str.len()) % P
    else:
        bid, person = streams["bid"], streams["person"]
        both = bid.interval_join(person, bid.ms, person.ms, within, bid.bidder == person.number).select(
            *(bid[name] for name in ("bidder", "price", "channel", "url")),
            *(person[name] for name in ("name", "emailAddress", "creditCard", "city", "state")),
            bid_ms=bid.ms, bid_extra=bid.extra, person_ms=person.ms, person_extra=person.extra,
        )  # fmt: skip
        result = both.interval_join(auction, both.bid_ms, auction.ms, within, both.bidder == auction.seller).select(
            *(both[name] for name in both.column_names()),
            *(auction[name] for name in COLUMNS["auction"] if name not in ("number", "ms", "extra")),
            auction_ms=auction.ms, auction_extra=auction.extra,
        )  # fmt: skip
        apart = result.auction_ms - result.person_ms
        result = result.filter((apart <= CAP_MS) & (apart >= -CAP_MS))
        rest = result.bidder * 31 + result.auction_ms * 13 + result.name.str.len() + result.bid_extra.str.len()
        part = result.price * result.reserve % P + rest % P
    totals = result.select(part=part).reduce(count=pw.reducers.count(), checksum=pw.reducers.sum(pw.this.part))
    found: dict[str, Any] = {"count": 0, "checksum": 0}

    def note(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition:
            found.update(row)

    pw.io.subscribe(totals, on_change=note)
    pw.io.null.write(result)
    started, before = time.perf_counter(), time.process_time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds, used = time.perf_counter() - started, time.process_time() - before
    return found | {"seconds": round(seconds, 3), "cpu_s": round(used, 2)}


def write_csv(data: Path) -> None:
    """Write the events as CSV, the same rows in the same order."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    for stream, columns in COLUMNS.items():
        (data / "csv" / stream).mkdir(parents=True, exist_ok=True)
        for path in sorted((data / stream).glob("*.parquet")):
            table = pq.read_table(path, columns=["id" if name == "number" else name for name in columns])
            csv.write_csv(table.rename_columns(columns), data / "csv" / stream / f"{path.stem}.csv")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", type=Path)
    parser.add_argument("cutoff", type=int)
    parser.add_argument("queries", nargs="+", choices=STREAMS)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = options.root / "flink"
    if options.one:
        print(json.dumps(ask(options.queries[0], data)))
        return 0
    write_csv(data)
    found = {}
    for query in options.queries:
        words = [sys.executable, __file__, str(options.root), str(options.cutoff), query, "--one"]
        around = os.environ | {"PATHWAY_THREADS": "2"}
        done = subprocess.run(words, env=around, stdout=subprocess.PIPE, text=True, check=True)
        found[query] = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
