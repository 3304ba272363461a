"""The demo's oracle: the same joins by DuckDB over the same files, compared row by row as bags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_CALL = ("caller", "callee", "start", "duration", "cell")


@dataclass(frozen=True)
class Check:
    """How a result differs from DuckDB's: missing rows and surplus rows, duplicates counted.

    With `may_miss` missing rows are not an error.
    """

    rows: int
    missing: int
    surplus: int
    may_miss: bool = False

    @property
    def equal(self) -> bool:
        """Whether both have the same rows, each the same number of times."""
        return self.missing == 0 and self.surplus == 0

    @property
    def right(self) -> bool:
        """Whether the result is what was promised."""
        return self.surplus == 0 and (self.may_miss or self.missing == 0)

    @property
    def recall(self) -> float:
        """The share of DuckDB's rows that were found."""
        correct = self.rows - self.surplus
        return correct / max(correct + self.missing, 1)

    def __str__(self) -> str:
        if self.equal:
            return f"{self.rows:,} rows, equal to DuckDB's"
        if self.right:
            return f"{self.rows:,} rows, each one of DuckDB's, {self.recall:.1%} of them"
        return (
            f"NOT equal to DuckDB's: of {self.rows:,} rows DuckDB lacks {self.surplus:,}, "
            f"and {self.missing:,} of DuckDB's are missing"
        )


def check_calls(calls: Path, numbers: Path, results: Sequence[str], within_us: int, *, may_miss: bool = False) -> Check:
    """Compare the Parquet files of a join's result with DuckDB's result over the Parquet files of its inputs.

    With `may_miss`, pairs after the last one found do not count: with a budget the last rows are still waiting.
    """
    columns = (*_CALL, "seen_at", "reason")
    expected = f"""
        select {", ".join(columns)} from calls join numbers on caller = phone
        where abs(epoch_us(seen_at) - epoch_us(start)) <= {within_us}
    """
    if may_miss:
        expected += "and greatest(start, seen_at) <= (select max(greatest(start, seen_at)) from found)"
    check = _compare({"calls": _all(calls), "numbers": _all(numbers), "found": results}, columns, expected)
    return replace(check, may_miss=may_miss)


def check_legs(incoming: Path, outgoing: Path, results: Sequence[str], within_us: int) -> Check:
    """Compare the theta join's result in the same way.

    Ranges are written out here, but `LEG_WHERE` has an absolute difference: DuckDB joins ranges by sorting.
    """
    expected = f"""
        select {", ".join(f"l.{name}" for name in _CALL)}, {", ".join(f"r.{name} as {name}_right" for name in _CALL)}
        from incoming l join outgoing r
        on epoch_us(r.start) between epoch_us(l.start) - {within_us} and epoch_us(l.start) + {within_us}
        and r.duration between l.duration - 2 and l.duration + 2 and l.cell <> r.cell
    """
    columns = (*_CALL, *(f"{name}_right" for name in _CALL))
    return _compare({"incoming": _all(incoming), "outgoing": _all(outgoing), "found": results}, columns, expected)


def _all(folder: Path) -> Sequence[str]:
    return [str(folder / "*.parquet")]


def _compare(files: dict[str, Sequence[str]], columns: Sequence[str], expected: str) -> Check:
    """Count each distinct row +1 where it was found and -1 where it was expected; for equal bags all sums are zero."""
    import duckdb

    names = ", ".join(columns)
    with duckdb.connect() as database:
        database.execute("set TimeZone = 'UTC'")
        for name, paths in files.items():
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
            database.execute(f"create view {name} as select * from read_parquet([{listed}])")
        rows, surplus, missing = database.execute(
            f"""
            with expected as ({expected}), differences as (
                select sum(n) as n from (
                    select {names}, 1 as n from found union all select {names}, -1 as n from expected
                ) group by {names} having sum(n) != 0
            )
            select (select count(*) from found),
                coalesce(sum(n) filter (n > 0), 0), coalesce(-sum(n) filter (n < 0), 0) from differences
            """
        ).fetchall()[0]
    return Check(int(rows), int(missing), int(surplus))
