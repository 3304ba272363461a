"""Names of operators in an ontology, `join.window.phone`, and aliases that cover all names with a prefix, `join.*`."""

from __future__ import annotations

import re

from braided.errors import PeerError

_PART = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_OPERATOR = re.compile(rf"{_PART}(\.{_PART})*")
_PATTERN = re.compile(rf"({_PART}\.)*(\*|{_PART})")
MAX_LENGTH = 100


def check_operator(name: str) -> str:
    """Return the name of an operator, or refuse it."""
    if not isinstance(name, str) or len(name) > MAX_LENGTH or not _OPERATOR.fullmatch(name):
        raise PeerError(f"operator={str(name)[:120]!r}: write parts separated by dots, such as 'join.window'")
    return name


def check_pattern(pattern: str) -> str:
    """Return the name of an operator, or an alias for all with a prefix; or refuse it."""
    if not isinstance(pattern, str) or len(pattern) > MAX_LENGTH or not _PATTERN.fullmatch(pattern):
        raise PeerError(f"hosts={str(pattern)[:120]!r}: write an operator's name, or a prefix such as 'join.*'")
    return pattern


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern is the name, or an alias for all names with its prefix.

    >>> covers("join.*", "join.window.phone"), covers("join.*", "join"), covers("*", "join"), covers("joi.*", "join.a")
    (True, False, True, False)
    """
    return pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1]) and len(name) >= len(pattern))


def patterns_of(name: str) -> tuple[str, ...]:
    """Return the name and all patterns that cover it.

    >>> patterns_of("join.window.phone")
    ('join.window.phone', 'join.window.*', 'join.*', '*')
    """
    parts = name.split(".")
    return (name, *(".".join([*parts[:count], "*"]) for count in range(len(parts) - 1, -1, -1)))
