"""Flink's MatchRecognizeITCase and MatchRecognizeTestPrograms: their rows, clauses and expected rows. Processing time is the number of the row here."""

from __future__ import annotations

from support.suites.pattern_case import PatternCase, PatternDifference, PatternRefusal, PatternText, Values, of

_SUITE = "MatchRecognizeITCase"
_PAST = "AFTER MATCH SKIP PAST LAST ROW"


def _rows(text: str) -> list[Values]:
    """Return rows that are written as ``1 a 10, 2 z -``."""
    return [tuple(_read(word) for word in row.split()) for row in text.split(",")]


def _read(word: str) -> object:
    return None if word == "-" else int(word) if word.isdigit() else float(word) if "." in word else word


_TICKS = "tstamp price tax"
_FOUR = _rows("1 19 1, 2 17 2, 3 13 3, 4 20 4")
_FALLS = "DOWN AS price < LAST(DOWN.price, 1) OR LAST(DOWN.price, 1) IS NULL"
_ABC = "A AS name = 'a', B AS name = 'b', C AS name = 'c'"
_LETTERS = "1 a, 2 z, 3 b, 4 c, 5 d, 6 a, 7 b, 8 c, 9 h"

CASES: list[PatternCase] = [
    of(
        _SUITE, "testSimplePattern",
        PatternText(
            '`A"` l C', "`A\"` AS name = 'a', l AS name = 'b', C AS name = 'c'",
            '`A"`.id AS aid, l.id AS bid, C.id AS cid',
        ),
        "id name", _rows(_LETTERS), "aid bid cid", "6 7 8",
    ),
    of(
        _SUITE, "testSimplePatternWithNulls",
        PatternText(
            "A B C", "A AS name = 'a' AND nullField IS NULL, B AS name = 'b' AND LAST(A.nullField) IS NULL, C AS name = 'c'",
            "A.id AS aid, A.nullField AS aNull, LAST(B.nullField) AS bNull, C.id AS cid",
        ),
        "id name nullField", _rows("1 a -, 2 b -, 3 c -, 4 d -, 5 - -, 6 a -, 7 b -, 8 c -, 9 - -"),
        "aid bNull cid aNull", "1 - 3 -, 6 - 8 -",
    ),
    of(
        _SUITE, "testCodeSplitsAreProperlyGenerated",
        PatternText(
            "A B C",
            "A AS name = 'a' AND key1 LIKE '%key%' AND id > 0, B AS name = 'b' AND LAST(A.name, 2) IS NULL, "
            "C AS name = 'c' AND LAST(A.name) = 'a'",
            "A.id AS aid, A.key1 AS akey1, LAST(B.id) AS bid, C.id AS cid, C.key2 AS ckey2", partition="key1, key2",
        ),
        "id name key1 key2",
        _rows(
            "1 a key1 second_key3, 2 b key1 second_key3, 3 c key1 second_key3, 4 d key second_key, 5 e key second_key, "
            "6 a key2 second_key4, 7 b key2 second_key4, 8 c key2 second_key4, 9 f key second_key"
        ),
        "*", "key1 second_key3 1 key1 2 3 second_key3, key2 second_key4 6 key2 7 8 second_key4",
    ),
    of(
        _SUITE, "testEventsAreProperlyOrdered",
        PatternText(
            "A B C", _ABC, "A.id AS aid, B.id AS bid, C.id AS cid",
            order="ts, secondaryOrder DESC, ternaryOrder ASC",
        ),
        "time secondaryOrder ternaryOrder name id",
        _rows(
            "2 12 1 a 1, 1 11 2 b 2, 3 10 3 c 3, 4 8 4 a 4, 4 9 5 b 5, 5 7 6 c 6, 6 6 8 a 7, 6 6 7 b 8, 8 4 9 c 9, "
            "9 3 10 a 10, 10 2 11 b 11, 11 1 12 c 12"
        ),
        "aid bid cid", "10 11 12",
    ),
    of(
        _SUITE, "testPartitionByWithParallelSource",
        PatternText(
            "DOWN UP", "DOWN AS DOWN.price = 13, UP AS UP.price = 20", "DOWN.tax AS bottom_tax, UP.tax AS end_tax",
            rows="ONE ROW PER MATCH", after=_PAST, partition="symbol",
        ),
        "time price tax symbol", [(*row, "ACME") for row in _FOUR], "*", "ACME 3 4",
    ),
    of(
        _SUITE, "testLogicalOffsetsWithStarVariable",
        PatternText(
            '`DOWN"`{2,} UP',
            '`DOWN"` AS price < LAST(price, 1) OR LAST(price, 1) IS NULL, '
            "UP AS price = FIRST(price) AND price > FIRST(price, 3) AND price = LAST(price, 7)",
            ", ".join(
                f"{which}(id, {number}) AS id{at + number}"
                for which, at in (("FIRST", 0), ("LAST", 8))
                for number in range(8)
            ),
            rows="ONE ROW PER MATCH", after=_PAST,
        ),
        "id price", _rows("1 20, 2 19, 3 18, 4 17, 5 16, 6 15, 7 14, 8 20"), "*", "1 2 3 4 5 6 7 8 8 7 6 5 4 3 2 1",
    ),
    of(
        _SUITE, "testLogicalOffsetOutsideOfRangeInMeasures",
        PatternText(
            "DOWN{2,} UP", f"{_FALLS}, UP AS price > LAST(DOWN.price)",
            "FIRST(DOWN.price) AS first, LAST(DOWN.price) AS last, FIRST(DOWN.price, 5) AS nullPrice",
            rows="ONE ROW PER MATCH", after=_PAST,
        ),
        _TICKS, _FOUR, "*", "19 13 -",
    ),
    of(
        _SUITE, "testAggregatesWithNullInputs",
        PatternText(
            "A+ C", "A AS SUM(A.price) < 30, C AS C.name = 'c'",
            "SUM(A.price) AS sumA, COUNT(A.id) AS countAId, COUNT(A.price) AS countAPrice, COUNT(*) AS countAll, "
            "COUNT(price) AS countAllPrice, LAST(id) AS endId",
            after=_PAST,
        ),
        "id name price", _rows("1 a 10, 2 z 10, 3 b -, 4 c -, 5 d 3, 6 c 3, 7 c 3, 8 c 3, 9 c 2"), "*", "29 7 5 8 6 8",
    ),
]  # fmt: skip

_PROGRAMS = "MatchRecognizeTestPrograms"
_ENGINE = _rows("1 100, 2 102, 3 104, 4 106, 5 105, 6 107, 7 101, 8 100, 9 110, 10 111, 11 99")
_PRICES = _rows(
    "1 9 1, 1 8 2, 1 10 3, 4 7 4, 6 5 6, 7 8 5, 12 3 7, 16 4 9, 32 7 10, 33 9 12, 34 5 11, 41 3 13, 42 11 16, 43 12 15, "
    "44 13 14"
)


def _engine(after: str, wanted: str) -> PatternCase:
    text = PatternText(
        "A+ B",
        "A AS LAST(A.engine_temperature, 1) IS NULL OR A.engine_temperature > LAST(A.engine_temperature, 1), "
        "B AS B.engine_temperature < LAST(A.engine_temperature)",
        "FIRST(A.engine_temperature) AS Initial_Temp, LAST(A.engine_temperature) AS Final_Temp",
        rows="ONE ROW PER MATCH",
        after=f"AFTER MATCH {after}",
        partition="vehicle_id",
    )
    rows = [(*row, 1) for row in _ENGINE]
    return of(_PROGRAMS, after, text, "time engine_temperature vehicle_id", rows, "Initial_Temp Final_Temp", wanted)


CASES += [
    of(
        _SUITE, "testTimeConstraint, in batches",
        PatternText("A B C", _ABC, "A.id AS aid, B.id AS bid, C.id AS cid", within="'1' MINUTE"),
        "time id name",
        _rows("1 1 z, 2 2 a, 30 3 b, 60 4 c, 100 5 x, 101 6 a, 131 7 b, 162 8 c, 200 9 z"), "aid bid cid", "2 3 4",
    ),
    of(
        _PROGRAMS, "match-simple",
        PatternText("A l C", "A AS name = 'a', l AS name = 'b', C AS name = 'c'", "A.id AS aid, l.id AS bid, C.id AS cid"),
        "id name", _rows("1 a, 2 z, 3 b, 4 c, 5 d, 6 a, 7 b, 8 c, 9 a, 10 b, 11 c"), "*", "6 7 8, 9 10 11",
    ),
    of(
        _PROGRAMS, "match-complex",
        PatternText(
            "DOWN{2,} UP", f"{_FALLS}, UP AS price > LAST(DOWN.price)",
            "FIRST(DOWN.price) AS first, LAST(DOWN.price) AS last, FIRST(DOWN.price, 5) AS nullPrice",
            rows="ONE ROW PER MATCH", after=_PAST, partition="symbol",
        ),
        "tstamp symbol price", _rows("1 ACME 19, 2 BETA 18, 3 ACME 17, 4 ACME 13, 5 BETA 16, 6 ACME 20, 7 BETA 22"),
        "*", "ACME 19 13 -, BETA 18 16 -",
    ),
    of(
        _PROGRAMS, "match-order-by-int-column",
        PatternText(
            "DOWN{2,} UP", f"{_FALLS}, UP AS price > LAST(DOWN.price)",
            "FIRST(DOWN.price) AS first, LAST(DOWN.price) AS last, UP.price AS up", rows="ONE ROW PER MATCH",
            after=_PAST, order="ts, sequence_num",
        ),
        "time price sequence_num", _PRICES, "*", "9 8 10, 7 5 8, 9 3 11",
    ),
    _engine("SKIP TO FIRST B", "100 106, 105 107, 101 101, 100 111"),
    _engine("SKIP TO LAST B", "100 106, 105 107, 101 101, 100 111"),
    _engine(
        "SKIP TO NEXT ROW", "100 106, 102 106, 104 106, 106 106, 105 107, 107 107, 101 101, 100 111, 110 111, 111 111"
    ),
    _engine("SKIP PAST LAST ROW", "100 106, 107 107, 100 111"),
]  # fmt: skip
DIFFERENCES = [
    PatternDifference(
        of(
            _SUITE, "testLogicalOffsets",
            PatternText(
                "DOWN{2,} UP", f"{_FALLS}, UP AS price < FIRST(DOWN.price)",
                "FIRST(DOWN.tstamp) AS start_tstamp, LAST(DOWN.tstamp) AS bottom_tstamp, UP.tstamp AS end_tstamp, "
                "FIRST(DOWN.price + DOWN.tax + 1) AS bottom_total, UP.price + UP.tax AS end_total",
                rows="ONE ROW PER MATCH", after=_PAST,
            ),
            _TICKS, _rows("1 19 1, 2 17 2, 3 13 3, 4 20 4, 5 20 5, 6 26 6, 7 20 7, 8 25 8"), "*", "1 2 3 21 16, 6 7 8 33 33",
        ),
        "rows 1 and 2 are DOWN, 3 is UP: greedy quantifiers give rows back where the longest fails",
    )
]  # fmt: skip
REFUSALS = [
    PatternRefusal(
        _SUITE, "testWindowedGroupingAppliedToMatchRecognize", "MATCH_ROWTIME; write LAST of the time",
        PatternText("A", "A AS A.value > 0", "MATCH_ROWTIME() AS matchRowtime"), "MATCH_ROWTIME is not in the compiled",
    ),
    PatternRefusal(
        _SUITE, "testWindowedGroupingAppliedToMatchRecognizeOnLtzRowtime", "MATCH_ROWTIME; write LAST of the time",
        PatternText("A", "A AS A.value > 0", "MATCH_ROWTIME(ts) AS matchRowtime"), "MATCH_ROWTIME is not in the compiled",
    ),
    PatternRefusal(
        _SUITE, "testAggregates", "an aggregate of its own, weightedAvg",
        PatternText("A", "A AS weightedAvg(value, id) > 1", "count(*) AS n"), "weightedAvg is not in the compiled subset",
    ),
    PatternRefusal(
        _SUITE, "testUserDefinedFunctions", "functions of its own",
        PatternText("A", "A AS prefix(A.value) = 'a'", "count(*) AS n"), "prefix is not in the compiled subset",
    ),
    PatternRefusal(
        _SUITE, "testAccessingCurrentTime", "the current time, by which a result would depend on when it is computed",
        PatternText("A", "A AS ts >= CURRENT_TIMESTAMP", "count(*) AS n"), "'CURRENT_TIMESTAMP': no such column",
    ),
    PatternRefusal(
        _SUITE, "testMatchRecognizeAppliedToWindowedGrouping", "windows before a pattern: both orders of braided.sql need Spark",
    ),
    PatternRefusal(
        _PROGRAMS, "match-order-by-event-time, also with rows out of order", "rows of one time are in the order of their arrival"
    ),
    PatternRefusal(
        _PROGRAMS, "match-order-by-int-column-with-out-of-order-data", "the rows of match-order-by-int-column, and one that is late"
    ),
]  # fmt: skip
