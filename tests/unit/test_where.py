"""The compiler of ``where=`` without Spark: against a row-by-row reference, DuckDB, and by hand."""

from __future__ import annotations

import doctest
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from support.profiles import examples
from support.where_cases import compile_unless_simplified, predicates
from support.where_reference import ARROW, SCHEMA, Predicate, columns, meaning, pairs

from braided.errors import BraidedError, OptionError
from braided.expressions.compile import Uncompilable, compile_where
from braided.operators.join.spec import JoinSpec

ROWS = 120
BLOCKS = {
    "wild": pairs(ROWS, 1, wild=True),
    "calm": pairs(ROWS, 2, wild=False),
    "no nulls": pairs(ROWS, 3, wild=True, nulls=0.0),
}
ARRAYS = {name: (columns(rows, "l"), columns(rows, "r")) for name, rows in BLOCKS.items()}


def kept(text: str, left: dict[str, Any], right: dict[str, Any]) -> list[bool]:
    """Compile against the arrays' own types and return the mask."""
    schemas = [pa.schema([(name, array.type) for name, array in side.items()]) for side in (left, right)]
    return compile_where(text, *schemas).mask(left, right).tolist()


def column(values: list[Any], kind: pa.DataType) -> dict[str, pa.Array[Any]]:
    return {"x": pa.array(values, kind)}


# Oracles.


@settings(max_examples=examples(400), deadline=None)
@given(predicates())
def test_equals_the_row_by_row_reference(predicate: Predicate) -> None:
    compiled = pickle.loads(pickle.dumps(compile_unless_simplified(predicate.text)))
    for name, rows in BLOCKS.items():
        want = meaning(predicate, rows)
        left, right = ({n: side[n] for n in names} for side, names in zip(ARRAYS[name], sides(compiled), strict=True))
        if None in want:
            with pytest.raises(BraidedError, match="overflows; cast an operand to a wider type"):
                compiled.mask(left, right)
        # From the second row on, and without the rows that raise: arrays with an offset, and taken ones.
        fine = pa.array([i for i in range(1, ROWS) if want[i] is not None], pa.int64())
        if None in want[1:]:
            left, right = ({n: array.take(fine) for n, array in side.items()} for side in (left, right))
        else:
            left, right = ({n: array.slice(1) for n, array in side.items()} for side in (left, right))
        assert compiled.mask(left, right).tolist() == [answer for answer in want[1:] if answer is not None]


def sides(compiled: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return compiled.left, compiled.right


@pytest.mark.parametrize(
    "text",
    [
        "l.i32 <> r.i32 AND r.i64 > l.i32",
        "NOT l.b OR r.b AND l.i8 >= r.i16",
        "NOT (l.b AND r.b) AND (l.s < r.s OR l.s IS NULL)",
        "l.f64 < r.f64 OR l.f64 = r.f32",
        "l.f32 >= r.f64 AND NOT l.f64 <= 1.5e0",
        "l.i64 NOT BETWEEN r.i32 AND 5 AND l.s IN ('a', 'it''s', NULL)",
        "l.s NOT IN ('a', 'b') OR r.i16 IN (1, 2, -5)",
        "l.i16 IS DISTINCT FROM r.i16 AND l.b IS NOT NULL",
        "l.d5 > r.d12 OR l.d38 < r.d20",
        "l.d < r.d AND l.ntz + INTERVAL 5 SECONDS > r.ntz",
        "l.i32 + r.i32 > 3 AND l.i32 - r.i32 * 2 <= abs(r.i32)",
    ],
)
def test_equals_duckdb(text: str) -> None:
    rows = BLOCKS["calm"]
    left, right = ARRAYS["calm"]
    numbers = pa.array(range(ROWS))
    # DuckDB finds Arrow tables by the names of the variables that hold them.
    first, second = (pa.table({"n": numbers, **side}) for side in (left, right))
    with duckdb.connect() as connection:
        connection.register("first", first).register("second", second)
        found = connection.execute(
            f"SELECT l.n FROM first l JOIN second r USING (n) WHERE {text} ORDER BY 1"
        ).fetchall()
    mask = compile_where(text, SCHEMA, SCHEMA).mask(left, right)
    assert len(rows) == len(mask)
    assert np.flatnonzero(mask).tolist() == [number for (number,) in found]
    assert 0 < mask.sum() < ROWS


# By hand.


def test_nan_is_greatest_and_equals_itself() -> None:
    nan, inf = float("nan"), float("inf")
    left, right = column([nan, nan, inf, -0.0], pa.float64()), column([nan, inf, nan, 0.0], pa.float64())
    assert kept("l.x = r.x", left, right) == [True, False, False, True]
    assert kept("l.x > r.x", left, right) == [False, True, False, False]
    assert kept("l.x <= r.x", left, right) == [True, False, True, True]


def test_long_beside_double_rounds_as_java_does() -> None:
    left, right = column([2**53 + 1, 2**53], pa.int64()), column([2.0**53, 2.0**53], pa.float64())
    assert kept("l.x = r.x", left, right) == [True, True]
    assert kept("l.x IN (9007199254740992, 1e0)", left, right) == [True, True]  # one double makes all doubles
    assert kept("l.x IN (9007199254740992, 1)", left, right) == [False, True]


def test_decimal_beside_double_is_rounded_once() -> None:
    values = [Decimal(n).scaleb(-4) for n in (3, 7, 11, 123_456_789_012)]
    left, right = column(values, pa.decimal128(12, 4)), column([float(value) for value in values], pa.float64())
    assert kept("l.x = r.x AND CAST(l.x AS DOUBLE) <=> r.x", left, right) == [True] * 4


def test_float_is_not_its_decimal() -> None:
    assert kept("l.x = 0.1", column([0.1], pa.float32()), {}) == [False]
    assert kept("l.x = 0.1", column([0.1], pa.float64()), {}) == [True]


def test_integer_beside_a_fraction() -> None:
    left = column([1, 2, None, -2], pa.int64())
    assert kept("l.x > 1.5", left, {}) == [False, True, False, False]
    assert kept("l.x >= -1.5", left, {}) == [True, True, False, False]
    assert kept("1.5 >= l.x", left, {}) == [True, False, False, True]
    assert kept("l.x = 1.5 OR l.x = 2.0", left, {}) == [False, True, False, False]


def test_overflow_raises_only_where_it_decides() -> None:
    top = 2**31 - 1
    left, right = column([top, 1, top], pa.int32()), column([0, 1, None], pa.int32())
    with pytest.raises(BraidedError, match=r"where='l.x \+ 1 > 0': l.x \+ 1 overflows"):
        kept("l.x + 1 > 0", left, right)
    for text, want in {
        "l.x + 1 > 0 AND r.x = 1": [False, True, False],
        "r.x = 1 AND l.x + 1 > 0": [False, True, False],
        "l.x + 1 > 0 AND r.x > 0": [False, True, False],
        "NOT (l.x + 1 <= 0 OR r.x IS NULL OR r.x = 0)": [False, True, False],
        "l.x > 1 OR l.x + 1 > 0": [True, True, True],
        "l.x + 1L > 0": [True, True, True],
        "CAST(l.x AS BIGINT) * 2 > 3": [True, False, True],
    }.items():
        assert kept(text, left, right) == want, text
    with pytest.raises(BraidedError, match="overflows"):
        kept("l.x + 1 > 0 AND r.x IS NULL", left, right)


@pytest.mark.parametrize(("kind", "bits"), [(pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64)])
@pytest.mark.parametrize("text", ["l.x + r.x = 0", "l.x - r.x = 0", "l.x * r.x = 0", "-l.x = r.x", "abs(l.x) = r.x"])
def test_overflow_is_found_at_every_width(kind: pa.DataType, bits: int, text: str) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    ends = [low, low + 1, low // 2, -2, -1, 0, 1, 2, high // 2 + 1, high]
    for one in ends:
        for other in ends:
            exact = {"+": one + other, "*": one * other, "abs": abs(one)}
            value = next((exact[op] for op in exact if op in text), -one if text[0] == "-" else one - other)
            wanted = value == (0 if text.endswith("= 0") else other)
            sides = column([one], kind), column([other], kind)
            if low <= value <= high:
                assert kept(text, *sides) == [wanted]
            else:
                with pytest.raises(BraidedError, match="overflows"):
                    kept(text, *sides)


def test_what_a_null_row_holds_does_not_matter() -> None:
    validity = pa.py_buffer(bytes([0b10]))
    garbage = np.array([2**62, 0, 7, 0], np.int64)  # two decimals: a null that holds 2**62, and 7
    narrow = pa.Array.from_buffers(pa.decimal128(5, 2), 2, [validity, pa.py_buffer(garbage)])
    wide = pa.array([1, 1], pa.decimal128(20, 18))
    assert kept("l.x < r.x", {"x": narrow}, {"x": wide}) == [False, True]
    whole = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.py_buffer(np.array([2**63 - 1, 7], np.int64))])
    assert kept("l.x + 1 = 8", {"x": whole}, {}) == [False, True]


def test_small_and_large_strings_meet() -> None:
    left, right = column(["a", "\uffee"], pa.large_string()), column(["a", "\U0001f600"], pa.string())
    assert kept("l.x = r.x", left, right) == [True, False]
    assert kept("l.x < r.x OR l.x = 'a'", left, right) == [True, True]  # by UTF-8, not by UTF-16


def test_names_and_spelling() -> None:
    left = {"Amount": pa.array([1]), "a.b": pa.array([1]), "tick`": pa.array([1]), "end": pa.array([1])}
    assert kept("L.AMOUNT=1 and l.`a.b` == 1\nAnd `l`.`tick```<>2 AND l.end<=>1", left, {}) == [True]


def test_it_takes_only_the_columns_it_names() -> None:
    compiled = compile_where("r.i8 = 1 AND l.s = 'a' AND l.b", SCHEMA, SCHEMA)
    assert sides(compiled) == (("b", "s"), ("i8",))


def test_no_rows() -> None:
    for name, kind in ARROW.items():
        empty = column([], kind)
        assert kept("l.x = r.x OR l.x IS NULL", empty, empty) == [], name


def test_input_is_not_changed() -> None:
    rows = pairs(20, 4, wild=False)
    names = ["i8", "b", "d5", "d38", "s"]
    left, right = columns(rows, "l", names), columns(rows, "r", names)
    text = "l.b AND NOT r.b AND l.i8 + r.i8 <> -l.i8 OR l.d5 = r.d38 OR l.s = r.s"
    compile_where(text, SCHEMA, SCHEMA).mask(left, right)
    assert left == columns(rows, "l", names)
    assert right == columns(rows, "r", names)


def test_other_types_than_compiled_for_are_an_error() -> None:
    compiled = compile_where("l.i64 > 1", SCHEMA, SCHEMA)
    with pytest.raises(BraidedError, match=r"column l.i64 holds 1 of int32; give 1 rows of bigint"):
        compiled.mask({"i64": pa.array([1], pa.int32())}, {})


# Refusals.


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("upper(l.s) = 'A'", "upper is not in the compiled subset"),
        ("l.s LIKE 'a%'", "'LIKE' is not in the compiled subset here"),
        ("l.i32 / 2 > 1", "'/ 2 > 1' is not in the compiled subset"),
        ("l.i32 > 1 -- all", "'-- all' is not in the compiled subset"),
        ('l.s = "a"', "is not in the compiled subset"),
        ("l.s = 'a' 'b'", "is not in the compiled subset here"),
        ("l.s = r'a'", "r is not in the compiled subset"),
        (r"l.s = '\u0041'", "the literal '\\u0041' is not in the compiled subset"),
        (r"l.s = 'a\%'", "is not in the compiled subset"),
        ("l.s = '${x}'", "Spark substitutes"),
        ("l.s = 'a", "is not in the compiled subset"),
        ("l.s = 1", "string with int does not compile"),
        ("l.d = '2024-01-31'", "date with string does not compile"),
        ("l.d = l.ts", "date with timestamp does not compile"),
        ("l.ts = r.ntz", "timestamp with timestamp_ntz does not compile"),
        ("l.bin = 'a'", "binary with string does not compile"),
        ("l.b = 1", "boolean with int does not compile"),
        ("l.ts = TIMESTAMP '2024-01-31 10:00:00'", "the literal TIMESTAMP '2024-01-31 10:00:00' is not"),
        ("l.ntz = TIMESTAMP_NTZ '2024-01-31 10:00:00Z'", "is not in the compiled subset"),
        ("l.ntz = TIMESTAMP '2024-01-31 10:00:00Z'", "timestamp_ntz with timestamp does not compile"),
        ("l.d = DATE '2024-02-30'", "the literal DATE '2024-02-30' is not"),
        ("l.d = DATE '2024-1-1'", "the literal DATE '2024-1-1' is not"),
        ("l.ts + INTERVAL 1 DAY > r.ts", "days of a zoned timestamp depend on the session time zone"),
        ("l.ts + INTERVAL 24 HOURS > r.ts", "days of a zoned timestamp depend on the session time zone"),
        ("l.ntz + INTERVAL 1 MONTH > r.ntz", "INTERVAL 1 MONTH: write INTERVAL 10 SECONDS"),
        ("l.d + INTERVAL 1 HOUR > r.ntz", "date with an interval does not compile"),
        ("l.ts - r.ts < INTERVAL 1 HOUR", "timestamp - does not compile"),
        ("l.d + 1 = r.d", "date + does not compile"),
        ("l.d5 + 1 = r.d5", "l.d5 + 1 is decimal arithmetic"),
        ("l.i32 + 1.5 > 2", "l.i32 + 1.5 is decimal arithmetic"),
        ("l.d18 > r.f64", "decimal(18,0) has too many digits"),
        ("CAST(l.i64 AS DECIMAL(38, 18)) > CAST(r.d5 AS DECIMAL(38, 20))", "need more than 38 digits"),
        ("l.i64 < 99999999999999999999", "a literal beyond 64 bits"),
        ("l.i32 + 1 + r.i32 > 0", "Spark reorders a + of three integers"),
        ("l.i32 + 1 > 0 AND NOT 0 < 1 + l.i32", "0 < 1 + l.i32 repeats arithmetic"),
        ("l.i32 * r.i32 = r.i32 * l.i32", "repeats arithmetic"),
        ("-l.i32 IN (1, 2) OR -l.i32 NOT IN (2, 1)", "-l.i32 NOT IN (2, 1) repeats arithmetic"),
        ("2147483648 <> l.i32 + 1", "compares int arithmetic with 2147483648, which Spark may simplify away"),
        ("l.i8 * r.i8 < 127", "compares tinyint arithmetic with 127, which Spark may simplify away"),
        ("l.i32 + 1 = 1.5", "compares int arithmetic with 15, which Spark may simplify away"),
        ("l.i16 - r.i16 IN (1, 32768)", "compares smallint arithmetic with 32768, which Spark may simplify away"),
        ("-l.d38 > 1", "Spark rounds the sign of decimal(38,18) to 34 digits"),
        ("l.i32 * (r.i32 * 2L) > 0", "Spark reorders a * of three integers"),
        ("l.i32 > 2147483647 + 1", "2147483647 + 1 overflows int"),
        ("l.i32 > 128Y", "the literal 128Y is not in the compiled subset"),
        ("l.f32 > 1.5F", "is not in the compiled subset"),
        ("l.i32 > 1e3L", "is not in the compiled subset"),
        ("CAST(l.i64 AS INT) = 1", "CAST of bigint to int does not compile"),
        ("CAST(l.f64 AS BIGINT) = 1", "CAST of double to bigint does not compile"),
        ("CAST(l.i32 AS STRING) = '1'", "CAST to string is not in the compiled subset"),
        ("CAST(l.d38 AS DOUBLE) = 1", "decimal(38,18) has too many digits"),
        ("CAST(l.i32 AS DECIMAL(5, 0)) = 1", "CAST of int to decimal(5,0) does not compile"),
        ("l.i32 IN (r.i32, 1)", "IN compiles with literals, not r.i32"),
        ("l.i32 IN (SELECT 1)", "SELECT is not in the compiled subset"),
        ("1 IN (l.i32)", "IN compiles with literals"),
        ("l.i32 + 1 IS NULL", "IS NULL compiles for columns"),
        ("l.i32 = 1 IS NULL", "'IS' is not in the compiled subset here"),
        ("l.i32 = 1 = TRUE", "'=' is not in the compiled subset here"),
        ("(l.i32 = 1) = TRUE", "l.i32 = 1 is not a value in the compiled subset"),
        ("l.i32 BETWEEN 1 AND 2 = TRUE", "'=' is not in the compiled subset here"),
        ("l.i32 AND l.b", "l.i32 is int, not a boolean"),
        ("-l.s = 'a'", "string is not a number"),
        ("l.s + 1 = 2", "string + does not compile"),
        ("NULL + l.i32 > 0", "NULL is not a value"),
        ("1 = 1 AND l.b", "1 = 1 compares constants"),
        ("TRUE", "it names no column"),
        ("", "it ends too early"),
        ("l.i32 =", "it ends too early"),
        ("l.i32 = 1)", "')' is not in the compiled subset here"),
        ("l.s.x = 1", "l.s. is a field or a function"),
        ("! l.b", "'! l.b' is not in the compiled subset"),
        ("l.i32 = +1", "'+' is not in the compiled subset here"),
        ("l.ts > current_timestamp", "current_timestamp is not in the compiled subset"),
        ("CASE WHEN l.b THEN TRUE END", "CASE is not in the compiled subset"),
        ("(" * 40 + "l.b" + ")" * 40, "nests deeper"),
        ("NOT " * 40 + "l.b", "nests deeper"),
        ("l.i32 > " + " - ".join(["l.i32"] * 40), "chains more"),
    ],
)
def test_left_to_spark(text: str, why: str) -> None:
    with pytest.raises(Uncompilable) as error:
        compile_where(text, SCHEMA, SCHEMA)
    assert str(error.value).startswith(f"where={text!r}: ")
    assert why in str(error.value)
    assert str(error.value).endswith("docs/reference/where.md lists what compiles")


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        (pa.list_(pa.int32()), None),
        (pa.struct([("a", pa.int32())]), None),
        (pa.time64("ns"), None),
        (pa.timestamp("ns"), None),
        (pa.duration("us"), None),
        (pa.decimal256(10, 2), None),
        (pa.null(), None),
        (pa.string(), {"SPARK::metadata::json": '{"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}'}),
    ],
)
def test_types_left_to_spark(kind: pa.DataType, metadata: dict[str, str] | None) -> None:
    schema = pa.schema([pa.field("x", kind, metadata=metadata), ("y", pa.int32())])
    with pytest.raises(Uncompilable, match=r"l\.x (has type|is a CHAR)"):
        compile_where("l.x IS NULL", schema, schema)
    compile_where("l.y IS NULL", schema, schema)


def test_columns_that_differ_in_case_only_are_left_to_spark() -> None:
    schema = pa.schema([("x", pa.int32()), ("X", pa.int32())])
    with pytest.raises(Uncompilable, match=r"l\.x is ambiguous among x, X"):
        compile_where("l.x = 1", schema, schema)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount > 10", "column 'amount' has no side; write l.amount or r.amount"),
        ("`amount` > 10", "column 'amount' has no side; write l.amount or r.amount"),
        ("x.amount > 10", "'x' is not a side; write l.amount or r.amount"),
        ("l.amount > 10", "l has no column 'amount'; it has i32, s"),
        ("l.i32 > 10 AND r.`no such` = 1", "r has no column 'no such'; it has i32, s"),
    ],
)
def test_user_errors_are_not_left_to_spark(text: str, why: str) -> None:
    schema = pa.schema([("i32", pa.int32()), ("s", pa.string())])
    with pytest.raises(BraidedError) as error:
        compile_where(text, schema, schema)
    assert not isinstance(error.value, Uncompilable)
    assert str(error.value) == f"where={text!r}: {why}"


def test_text_must_be_text() -> None:
    with pytest.raises(BraidedError, match="where=5: not a string"):
        compile_where(5, SCHEMA, SCHEMA)  # type: ignore[arg-type]


def test_the_page_runs() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "where.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    "literal", ["9" * 5000, "9" * 5000 + ".5", "0." + "5" * 5000, "-" + "9" * 5000 + "L", "1" * 5000 + "BD"]
)
def test_literals_of_more_digits_than_python_reads_are_not_compiled(literal: str) -> None:
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(
        Uncompilable, match=r"the literal \S{20}\.\.\. of 5,00\d characters is not in the compiled subset"
    ):
        compile_where(f"l.x < {literal}", schema, schema)


@pytest.mark.parametrize(
    ("literal", "expected"),
    [("0" * 5000 + "7", [True, False]), ("0" * 5000 + "7.0", [True, False]), ("-0", [False, False])],
)
def test_leading_zeros_are_no_digits(literal: str, expected: list[bool]) -> None:
    schema = pa.schema([("x", pa.int64())])
    columns = {"x": pa.array([6, 7])}
    assert compile_where(f"l.x < {literal}", schema, schema).mask(columns, columns).tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        "reflect('java.lang.System', 'exit', 1) IS NULL",
        "l.x = 1 AND REFLECT ('java.util.UUID', 'randomUUID') = 'a'",
        "java_method\n('java.lang.Runtime', 'getRuntime') IS NULL",
        "try_reflect('a', 'b') IS NULL",
        "`reflect`('a', 'b') IS NULL",
        "\"reflect\"('a', 'b') IS NULL",
        "system.builtin.reflect('a', 'b') IS NULL",
        "system . builtin . `reflect` ('a', 'b') IS NULL",
        "reflect/* ( */('a', 'b') IS NULL",
        "reflect/* /* */ */('a', 'b') IS NULL",
        "reflect -- a name\n('a', 'b') IS NULL",
        "IDENTIFIER('ref' || 'lect')('a', 'b') IS NULL",
        r"r'\' = r'\' OR reflect('a', 'b') IS NULL",
        "l.x IN (SELECT reflect('a', 'b'))",
    ],
)
def test_functions_that_run_code_are_refused(text: str) -> None:
    for on in ("x", None):
        with pytest.raises(OptionError) as caught:
            JoinSpec(on=on, time="t", within="1 second", where=text)
        assert str(caught.value).startswith(f"where={text!r}: ")
        assert str(caught.value).endswith("() may run any code and is refused; leave it out")
        assert not isinstance(caught.value, Uncompilable)


@pytest.mark.parametrize(
    "text",
    [
        "l.reflect = r.reflect",
        "l.`reflect` = (r.x)",
        "l.x = 'reflect'",
        "l.x IN ('reflect') AND (r.x = 'identifier')",
        "l.reflected = reflections(r.x)",
        "l.x - - 1 = (r.identifier)",
    ],
)
def test_columns_and_values_of_those_names_are_not(text: str) -> None:
    assert JoinSpec(on="x", time="t", within="1 second", where=text).where == text
