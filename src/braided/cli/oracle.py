"""The demo's oracle: the same join by DuckDB over the same files, compared row by row as bags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_COLUMNS = "caller, callee, start, duration, cell, seen_at, reason"


@dataclass(frozen=True)
class Check:
    """How a result differs from DuckDB's: rows it lacks and rows it has too many, duplicates counted."""

    rows: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        """Whether both hold the same rows, each as often."""
        return self.missing == 0 and self.surplus == 0

    def __str__(self) -> str:
        if self.equal:
            return f"{self.rows:,} rows, equal to DuckDB's"
        return (
            f"NOT equal to DuckDB's: of {self.rows:,} rows DuckDB lacks {self.surplus:,}, "
            f"and {self.missing:,} of DuckDB's are missing"
        )


def check_result(calls: Path, numbers: Path, found: Path, within_us: int) -> Check:
    """Compare the Parquet files of a join's result with what DuckDB makes of the Parquet files of its inputs.

    Each distinct row counts +1 wherever it was found and -1 wherever it was expected; equal bags leave zeros.
    """
    import duckdb

    files = {"calls": calls, "numbers": numbers, "found": found}
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        for name, folder in files.items():
            pattern = str(folder / "*.parquet").replace("'", "''")
            database.execute(f"create view {name} as select * from read_parquet('{pattern}')")
        rows, surplus, missing = database.execute(
            f"""
            with expected as (
                select {_COLUMNS} from calls join numbers on caller = phone
                where abs(epoch_us(seen_at) - epoch_us(start)) <= {within_us}
            ), differences as (
                select sum(n) as n from (
                    select {_COLUMNS}, 1 as n from found union all select {_COLUMNS}, -1 as n from expected
                ) group by {_COLUMNS} having sum(n) != 0
            )
            select (select count(*) from found),
                coalesce(sum(n) filter (n > 0), 0), coalesce(-sum(n) filter (n < 0), 0) from differences
            """
        ).fetchall()[0]
    return Check(int(rows), int(missing), int(surplus))
