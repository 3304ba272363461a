"""WATERMARK clauses are taken out of a text so that all else stays where it was."""

from __future__ import annotations

import re

import pytest

from braided.errors import OptionError
from braided.sqltext.watermarks import Clause, take_watermarks

TAKEN = [
    (
        "SELECT * FROM calls WATERMARK ts DELAY OF INTERVAL 10 SECONDS c WHERE 1 = 1",
        "SELECT * FROM `calls__0` c WHERE 1 = 1",
        [Clause("calls", "calls__0", "WATERMARK ts DELAY OF INTERVAL 10 SECONDS")],
    ),
    (
        "SELECT * FROM Calls WATERMARK ts DELAY OF INTERVAL 1 MINUTE 30 SECONDS JOIN alerts a",
        "SELECT * FROM `calls__0` AS `Calls` JOIN alerts a",
        [Clause("Calls", "calls__0", "WATERMARK ts DELAY OF INTERVAL 1 MINUTE 30 SECONDS")],
    ),
    (
        "FROM calls watermark ts + INTERVAL 1 SECOND AS u delay of INTERVAL '1:30' MINUTE TO SECOND AS a, calls WATERMARK ts DELAY OF INTERVAL 5 DAYS",
        "FROM `calls__0` AS a, `calls__1` AS `calls`",
        [
            Clause("calls", "calls__0", "watermark ts + INTERVAL 1 SECOND AS u delay of INTERVAL '1:30' MINUTE TO SECOND"),
            Clause("calls", "calls__1", "WATERMARK ts DELAY OF INTERVAL 5 DAYS"),
        ],
    ),
    ("SELECT * FROM STREAM calls JOIN STREAM alerts a", "SELECT * FROM calls JOIN alerts a", []),
    ("SELECT watermark, stream FROM calls stream", "SELECT watermark, stream FROM calls stream", []),
    (
        "SELECT 'watermark', watermark FROM `my calls` WATERMARK ts DELAY OF INTERVAL 1 DAY date",
        "SELECT 'watermark', watermark FROM `my calls__0` date",
        [Clause("my calls", "my calls__0", "WATERMARK ts DELAY OF INTERVAL 1 DAY")],
    ),
    ("SELECT 'calls WATERMARK ts DELAY OF x' FROM calls", "SELECT 'calls WATERMARK ts DELAY OF x' FROM calls", []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "left", "clauses"), TAKEN)
def test_clauses_are_taken_out(text: str, left: str, clauses: list[Clause]) -> None:
    found, taken = take_watermarks(text, {"calls", "alerts", "my calls"})
    assert re.sub(r" +", " ", found).strip() == left
    assert taken == clauses
    for word in ("WHERE", "JOIN alerts"):
        assert found.find(word) == text.find(word)


def test_a_watermark_after_something_else_than_a_stream_says_where() -> None:
    with pytest.raises(OptionError, match=r"line 2, column 28: WATERMARK must follow the name of a stream"):
        take_watermarks("SELECT *\nFROM (SELECT * FROM calls) WATERMARK ts DELAY OF INTERVAL 1 DAY", {"calls"})
