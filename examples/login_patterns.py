"""Login patterns: three failures or more, and then a success from another address, within five minutes.

    python examples/login_patterns.py

Rows arrive out of order: the success of ann is in the first file, her failures in the second.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from local import results, run, show, stream, times

import braided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGINS = pa.table(
    {
        "user": ["ann", "bob", "bob", "ann", "ann", "ann", "bob", "zoe"],
        "ts": times([240, 10, 20, 0, 60, 180, 30, 1200]),
        "status": ["ok", "fail", "fail", "fail", "fail", "fail", "ok", "ok"],
        "ip": ["10.9.9.9", "10.0.0.7", "10.0.0.7", "10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.7", "10.0.0.3"],
    }
)


def main(spark: SparkSession, folder: Path) -> None:
    """Find the pattern and print who was let in."""
    found = braided.match(
        stream(spark, folder / "logins", LOGINS, batches=2),
        key="user",
        time="ts",
        pattern="FAIL{3,} OK",
        define={"FAIL": "status = 'fail'", "OK": "status = 'ok' AND ip <> last(FAIL.ip)"},
        measures={"tries": "count(FAIL.*)", "since": "first(FAIL.ts)", "ip": "last(OK.ip)"},
        within="5 minutes",
        lateness="10 minutes",
    )
    rows, _ = results(found, folder / "found")
    show(rows, "user")


if __name__ == "__main__":
    run(main)
