"""Durations: strings such as ``"10 seconds"`` or timedeltas in the public API; int64 microseconds inside."""

from __future__ import annotations

import re
from datetime import timedelta

from braided.errors import OptionError

Duration = str | timedelta

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_PART = re.compile(r"([+-]?\d{1,18})(?:\.(\d{1,6}))?\s*([a-z]+)")
# The sum of a time and a duration must fit into int64: a limit of 10,000 years leaves room for every timestamp.
_LIMIT = 10_000 * 366 * 86_400_000_000


def parse_duration(value: object, name: str) -> int:
    """Return the microseconds in a duration string or a timedelta.

    >>> parse_duration("10 seconds", "within")
    10000000
    >>> parse_duration("-1 minute 30 seconds", "between")
    -30000000
    >>> parse_duration(timedelta(minutes=2), "within")
    120000000
    >>> parse_duration("10 parsecs", "within")
    Traceback (most recent call last):
        ...
    braided.errors.OptionError: within='10 parsecs': not a duration; write '10 seconds'
    """
    total = value // timedelta(microseconds=1) if isinstance(value, timedelta) else _parse(value, name)
    if abs(total) > _LIMIT:
        raise OptionError(f"{name}={value!r}: longer than 10,000 years; give a shorter one")
    return total


def _parse(value: object, name: str) -> int:
    text = value.strip().lower() if isinstance(value, str) else ""
    text = text.removeprefix("interval ").strip()
    total, at = 0, 0
    while at < len(text):
        part = _PART.match(text, at)
        unit = part and (_UNITS.get(part[3]) or _UNITS.get(part[3].removesuffix("s")))
        if not part or not unit:
            break
        micros = int(part[1]) * unit
        if part[2]:
            fraction = int(part[2]) * unit // 10 ** len(part[2])
            micros += -fraction if part[1].startswith("-") else fraction
        total += micros
        at = part.end()
        while at < len(text) and text[at] in " ,":
            at += 1
    if not text or at < len(text):
        raise OptionError(f"{name}={value!r}: not a duration; write '10 seconds'")
    return total


def as_text(duration: Duration, name: str) -> str:
    """Write a timedelta as a duration string, because options are compared as text.

    >>> as_text(timedelta(hours=1), "ceiling"), as_text("60 minutes", "ceiling")
    ('1 hour', '60 minutes')
    """
    return format_duration(parse_duration(duration, name)) if isinstance(duration, timedelta) else duration


def format_duration(micros: int) -> str:
    """Write microseconds as the shortest exact duration string.

    >>> format_duration(90_000_000)
    '90 seconds'
    >>> format_duration(1_500)
    '1500 microseconds'
    """
    for unit, size in (
        ("day", 86_400_000_000),
        ("hour", 3_600_000_000),
        ("minute", 60_000_000),
        ("second", 1_000_000),
        ("millisecond", 1_000),
    ):
        if micros and micros % size == 0:
            return f"{micros // size} {unit}{'' if abs(micros // size) == 1 else 's'}"
    return f"{micros} microsecond{'' if abs(micros) == 1 else 's'}"


def show_duration(micros: int) -> str:
    """Write microseconds for people: the exact duration if that is short, or else one decimal of the largest unit.

    >>> show_duration(10_000_000), show_duration(132_201_196), show_duration(1_500_250)
    ('10 seconds', '2.2 minutes', '1.5 seconds')
    """
    exact = format_duration(micros)
    if len(exact.split()[0].lstrip("-")) <= 4:
        return exact
    for unit, size in (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000)):
        if abs(micros) >= size:
            return f"{micros / size:.1f} {unit}s"
    return f"{micros / 1000:.1f} milliseconds"
