"""Names of columns for texts that Spark reads."""

from __future__ import annotations

import itertools
from collections.abc import Collection


def numbered(prefix: str, taken: Collection[str]) -> str:
    """Return an unused name: the prefix and the first number that makes it new, case-insensitively."""
    folded = {name.lower() for name in taken}
    return next(name for number in itertools.count() if (name := f"{prefix}{number}").lower() not in folded)


def quoted(name: str) -> str:
    """Return a name in backticks, so that SQL accepts any characters."""
    return f"`{name.replace('`', '``')}`"
