"""Network logs joined on a skewed host: half of all requests go to one host, and the join spreads it over its workers.

    python examples/skewed_hosts.py

`control=` lets the join adapt while it runs. What it decided, and why, is in the report, in the control directory
(`braided report DIR`) and on the dashboard.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from local import results, run, stream, times

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTS, SECONDS, BATCHES = 500, 60.0, 12


def log(rows: int, hot: float, seed: int) -> pa.Table:
    """Return log lines in order, of which a share names one host."""
    random = np.random.default_rng(seed)
    hosts = np.where(random.uniform(size=rows) < hot, 0, random.integers(1, HOSTS, rows))
    return pa.table(
        {
            "host": [f"web-{number}" for number in hosts],
            "ts": times(np.sort(random.uniform(0, SECONDS, rows)).tolist()),
            "code": random.integers(200, 600, rows),
        }
    )


def main(spark: SparkSession, folder: Path) -> None:
    """Join requests with errors of the same host within two seconds, and say what the routing did."""
    requests, errors = log(40_000, 0.5, 0), log(4_000, 0.05, 1)
    joined = braided.join(
        stream(spark, folder / "requests", requests, BATCHES),
        stream(spark, folder / "errors", errors, BATCHES),
        on="host", time="ts", within="2 seconds", lateness="1 second", control=str(folder / "control"), name="hosts",
    )  # fmt: skip
    rows, query = results(joined, folder / "out")
    routing = braided.report(query).routing or {}
    spread = [made["value"] for made in routing["decisions"] if made["action"] == "promote"]
    print(f"pairs: {rows.num_rows}, as many as a nested loop finds: {rows.num_rows == pairs(requests, errors)}")
    print(f"spread over a grid of workers: {', '.join(sorted(set(spread)))}")


def pairs(requests: pa.Table, errors: pa.Table) -> int:
    """Count the pairs by hand, host by host."""
    total = 0
    left, right = (table.to_pandas().groupby("host")["ts"] for table in (requests, errors))
    known = {host: np.sort(ts.astype("int64").to_numpy()) for host, ts in right}
    reach = 2_000_000
    for host, ts in left:
        if host in known:
            at = ts.astype("int64").to_numpy()
            total += int(
                (np.searchsorted(known[host], at + reach, "right") - np.searchsorted(known[host], at - reach)).sum()
            )
    return total


if __name__ == "__main__":
    run(main)
