"""Types of columns that operators make, as Spark's."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from braided.spark.arrow_types import from_arrow, to_arrow


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.large_string(), T.StringType()),
        (pa.large_binary(), T.BinaryType()),
        (pa.binary(16), T.BinaryType()),
        (pa.large_list(pa.int64()), T.ArrayType(T.LongType())),
        (pa.list_(pa.float64(), 2), T.ArrayType(T.DoubleType())),
        (pa.struct([("x", pa.large_string())]), T.StructType([T.StructField("x", T.StringType())])),
    ],
)
def test_what_a_detector_may_write_has_a_type_in_spark(kind: pa.DataType, wanted: T.DataType) -> None:
    assert from_arrow(kind) == wanted


@pytest.mark.parametrize(
    "kind", [T.LongType(), T.DecimalType(20, 3), T.TimestampType(), T.MapType(T.DateType(), T.NullType())]
)
def test_there_and_back(kind: T.DataType) -> None:
    assert from_arrow(to_arrow(kind)) == kind
