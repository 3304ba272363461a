"""`braided.local.reading`: what the libraries hand out becomes plain tables, whatever its types and size."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from braided import local
from braided.errors import BraidedError, OptionError
from braided.local.reading import read

US = pa.timestamp("us")
ROWS = pa.table({"k": [1, 2], "ts": pa.array([0, 1000], US)})


def join(left: Any, right: Any, **options: Any) -> pa.Table:
    return local.join(left, right, **{"on": "k", "time": "ts", "within": "1 second"} | options).table


def zoned(*zones: str | None) -> list[pa.Table]:
    """The same two moments in each zone."""
    return [pa.table({"k": [1, 2], "ts": pa.array([0, 3_600_000_000], pa.timestamp("us", zone))}) for zone in zones]


@pytest.mark.parametrize("kind", ["pyarrow", "reader", "batch", "pandas", "polars", "duckdb"])
def test_nothing_joins_with_nothing(kind: str) -> None:
    with duckdb.connect() as db:
        db.register("rows", ROWS)
        empty = {
            "pyarrow": lambda: ROWS.slice(0, 0),
            "reader": lambda: pa.RecordBatchReader.from_batches(ROWS.schema, []),
            "batch": lambda: pa.RecordBatch.from_pylist([], schema=ROWS.schema),
            "pandas": lambda: pd.DataFrame({"k": pd.Series(dtype="int64"), "ts": pd.Series(dtype="datetime64[us]")}),
            "polars": lambda: pl.from_arrow(ROWS).head(0),
            "duckdb": lambda: db.sql("select * from rows where k > 2"),
        }[kind]
        for left, right in ((empty(), ROWS), (ROWS, empty()), (empty(), empty())):
            found = join(left, right)
            assert (found.num_rows, found.column_names) == (0, ["k", "ts", "ts_right"])
        assert local.multijoin([empty(), ROWS], on="k", time="ts", within="1 second").table.num_rows == 0
        assert local.order(empty(), time="ts").table.num_rows == 0


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b", "c"])])
def test_categories_of_polars_are_their_strings(kind: Any) -> None:
    plain = pl.DataFrame({"k": ["b", "a", None], "ts": [0, 1, 2]}).with_columns(pl.col("ts").cast(pl.Datetime("us")))
    frame = plain.with_columns(pl.col("k").cast(kind))
    for left, right in ((frame, frame), (frame, plain), (plain, frame)):
        assert sorted(join(left, right)["k"].to_pylist()) == ["a", "b"]
    assert sorted(local.order(frame.head(2), time="ts", key="k").table["k"].to_pylist()) == ["a", "b"]


def test_categories_and_views_inside_lists_and_structs_are_plain_too() -> None:
    frame = pl.DataFrame(
        {"l": [["a"], None, ["b", "a"]], "a": [["a", "b"]] * 3, "k": ["a", None, "b"], "v": [[b"x"], [], None]},
        schema={
            "l": pl.List(pl.Categorical),
            "a": pl.Array(pl.Categorical, 2),
            "k": pl.Categorical,
            "v": pl.List(pl.Binary),
        },
    ).with_columns(s=pl.struct("k", "l"))
    table = read(frame, "left")
    text = pa.large_string()
    assert table.schema == pa.schema(
        [
            ("l", pa.large_list(text)),
            ("a", pa.list_(text, 2)),
            ("k", text),
            ("v", pa.large_list(pa.large_binary())),
            ("s", pa.struct([("k", text), ("l", pa.large_list(text))])),
        ]
    )
    assert table.to_pylist() == frame.to_dicts()


@pytest.mark.parametrize("column", ["k", "v"])
def test_a_type_that_arrow_lacks_is_named(column: str) -> None:
    frame = pl.from_arrow(ROWS.append_column("v", [[5, 6]]))
    assert isinstance(frame, pl.DataFrame)
    with pytest.raises(BraidedError, match=r"right: a column of this DataFrame has a type .*'_pli128'.*; cast it"):
        join(ROWS, frame.with_columns(pl.col(column).cast(pl.Int128)))
    with pytest.raises(BraidedError, match="left: list does not have the Arrow C stream interface; pass a pyarrow"):
        join([1], ROWS)


def test_a_moment_is_the_same_in_every_zone() -> None:
    berlin, tokyo, utc = zoned("Europe/Berlin", "Asia/Tokyo", "UTC")
    found = join(berlin, tokyo)
    assert found.num_rows == 2
    assert found.schema.field("ts").type == pa.timestamp("us", "Europe/Berlin")
    assert found.schema.field("ts_right").type == pa.timestamp("us", "Asia/Tokyo")
    assert found["ts"].cast(utc.schema.field("ts").type) == found["ts_right"].cast(utc.schema.field("ts").type)
    three = local.multijoin([berlin, tokyo, utc], on="k", time="ts", within="1 second", batch_rows=1).table
    assert three.num_rows == 2


def test_zones_do_not_change_the_order_of_arrival() -> None:
    berlin, tokyo = zoned("Europe/Berlin", "Asia/Tokyo")
    berlin, tokyo = (table.append_column("came", table["ts"]) for table in (berlin, tokyo))
    found = local.join(
        berlin, tokyo, on="k", time="ts", within="1 second", lateness="0 s", arrival="came", batch_rows=2
    )
    assert found.table.num_rows == 2
    assert [stream["late"] for stream in found.report.streams] == [0, 0]


def test_merged_inputs_are_shown_in_the_zone_of_the_first() -> None:
    berlin, tokyo = zoned("Europe/Berlin", "Asia/Tokyo")
    merged = local.merge([berlin, tokyo], time="ts", lateness="0 s", arrival="ts").table
    assert merged.schema.field("ts").type == pa.timestamp("us", "Europe/Berlin")
    assert merged["ts"].cast(pa.int64()).to_pylist() == [0, 0, 3_600_000_000, 3_600_000_000]
    assert merged["late"].to_pylist() == [False] * 4


def test_a_moment_and_a_time_without_a_zone_are_refused() -> None:
    with pytest.raises(BraidedError, match="one has a time zone and the other has none"):
        join(*zoned("UTC", None))


def test_columns_encoded_by_runs_are_plain() -> None:
    runs = pc.run_end_encode(pa.array([5, 5, None, 7]))
    table = pa.table({"v": pa.chunked_array([runs, runs])})
    assert read(table, "left").to_pydict() == {"v": [5, 5, None, 7] * 2}
    assert read(table.slice(0, 0), "left").schema == pa.schema({"v": pa.int64()})


def test_two_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["ts", "ts"])
    with pytest.raises(OptionError, match="left: more than one column is named 'ts'; rename one"):
        read(table, "left")
