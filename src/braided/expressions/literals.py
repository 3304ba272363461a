"""Read Spark's literals: numbers, strings, dates, timestamps and intervals.

Each function returns None for a form that is not in the compiled subset. A decimal is returned as its unscaled
integer, because Python's ``decimal`` rounds to the 28 digits of its context.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from math import isinf

from braided.expressions.tree import Type

_NUMBER = re.compile(r"([0-9]*)(\.?)([0-9]*)((?:e[+-]?[0-9]+)?)(bd|[lsyd]?)")
_WHOLE = {"tinyint": 1 << 7, "smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}
_SUFFIXES = {"y": ["tinyint"], "s": ["smallint"], "l": ["bigint"], "": ["int", "bigint"]}
_DIGITS = 38
_ESCAPES = {
    "\\\\": "\\",
    "\\'": "'",
    '\\"': '"',
    "\\n": "\n",
    "\\t": "\t",
    "\\r": "\r",
    "\\b": "\b",
    "''": "'",
}
_STRING_PART = re.compile(r"\\.|''", re.DOTALL)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(?: ?(?:(Z|UTC)|([+-])(0[0-9]|1[0-7]):([0-5][0-9])))?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_LONGEST = 1 << 56  # 2,000 years, so that a sum of parts stays in int64


def number(text: str, sign: str = "") -> tuple[int | float, Type] | None:
    """Read a number with its sign, because ``-2147483648`` is an int.

    >>> number("1.50")
    (150, Type(name='decimal', precision=3, scale=2))
    >>> number("0.05")
    (5, Type(name='decimal', precision=2, scale=2))
    >>> number("2147483648", "-")
    (-2147483648, Type(name='int', precision=0, scale=0))
    """
    match = _NUMBER.fullmatch(text.lower())
    if not match:
        return None
    whole, point, fraction, exponent, suffix = match.groups()
    if suffix == "d" or (exponent and not suffix):
        double = float(f"{sign}{whole}{point}{fraction}{exponent}")
        return None if isinf(double) else (double, Type("double"))
    if exponent or (point and suffix in ("l", "s", "y")):
        return None
    whole, scale = whole.lstrip("0") or "0", len(fraction)
    if max(len(whole), scale) > _DIGITS:  # too long for every type, and Python cannot read more than 4,300 digits
        return None
    unscaled = int(f"{sign}{whole}{fraction}")
    if suffix != "bd" and not point:
        for name in _SUFFIXES[suffix]:
            if -_WHOLE[name] <= unscaled < _WHOLE[name]:
                return unscaled, Type(name)
        if suffix:
            return None
    precision = max(len(str(abs(unscaled))), scale)
    return (unscaled, Type("decimal", precision, scale)) if precision <= _DIGITS else None


def string(quoted: str) -> str | None:
    r"""Read a quoted string with its escapes; those with digits, ``%`` or ``_`` are left to Spark.

    >>> string(r"'it''s \'so\''")
    "it's 'so'"
    """
    body = quoted[1:-1]
    if any(part not in _ESCAPES for part in _STRING_PART.findall(body)):
        return None
    value = _STRING_PART.sub(lambda part: _ESCAPES[part[0]], body)
    return None if any("\ud800" <= char <= "\udfff" for char in value) else value


def moment(word: str, text: str) -> tuple[int, Type] | None:
    """Return the days since 1970 of a DATE, or the microseconds of a TIMESTAMP; only full forms are read.

    A TIMESTAMP needs a zone, or else it would depend on the session's zone; a TIMESTAMP_NTZ must not have one.

    >>> moment("timestamp", "1970-01-01 00:00:01.5Z")
    (1500000, Type(name='timestamp', precision=0, scale=0))
    >>> moment("timestamp", "1970-01-01 00:00:01.5")
    """
    try:
        if word == "date":
            day = date.fromisoformat(text) if _DATE.fullmatch(text) else None
            return None if day is None else ((day - _EPOCH.date()).days, Type("date"))
        match = _TIMESTAMP.fullmatch(text)
        if not match:
            return None
        local = datetime.fromisoformat(f"{match[1]} {match[2]}+00:00")
    except ValueError:  # 30 February
        return None
    zoned = bool(match[4] or match[5])
    if zoned == (word == "timestamp_ntz"):
        return None
    micros = (local - _EPOCH) // timedelta(microseconds=1) + int((match[3] or "").ljust(6, "0"))
    if match[5]:
        east = 1 if match[5] == "+" else -1
        micros -= east * (int(match[6]) * 60 + int(match[7])) * _UNITS["minute"]
    return micros, Type("timestamp" if zoned else "timestamp_ntz")


def interval(digits: str, unit: str) -> int | None:
    """Return one part of an interval in microseconds; None for months and years, which have no fixed length.

    >>> interval("-5", "SECONDS")
    -5000000
    """
    size = _UNITS.get(unit.lower().removesuffix("s"))
    if size is None or not re.fullmatch(r"[+-]?[0-9]{1,18}", digits):
        return None
    micros = int(digits) * size
    return micros if abs(micros) < _LONGEST else None
