"""What is said of a client of Spark Connect that has no operators with state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from braided.errors import OptionError
from braided.spark.sessions import check_stateful


def frame(grouped: type) -> Any:
    """A DataFrame of Spark Connect, as far as it is looked at."""
    kind = type("DataFrame", (), {"groupBy": lambda self: grouped(), "sparkSession": SimpleNamespace(version="4.0.1")})
    kind.__module__ = "pyspark.sql.connect.dataframe"
    return kind()


def test_a_client_without_state_is_refused() -> None:
    check_stateful(frame(type("GroupedData", (), {"transformWithStateInPandas": None})))
    with pytest.raises(
        OptionError, match=r"^Spark Connect 4\.0\.1: it has no stateful operators in Python; use a newer Spark"
    ):
        check_stateful(frame(type("GroupedData", (), {})))
