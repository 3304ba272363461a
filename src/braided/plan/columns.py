"""Columns and options by the names that users write: found without regard to case, or with what was meant perhaps."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from braided.errors import OptionError


def find_column(name: object, columns: Sequence[str], option: str) -> str:
    """Return a column as it is written in the stream, without regard to case; else say which was meant perhaps."""
    if name in columns:
        return str(name)
    folded = [column for column in columns if column.lower() == str(name).lower()]
    if len(folded) == 1:
        return folded[0]
    close = difflib.get_close_matches(str(name), columns, n=1)
    meant = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(columns)}"
    raise OptionError(f"{option}={name!r}: no such column; {meant}")


def check_options(options: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse options that there are not, and say which was meant perhaps."""
    names = sorted(known)
    for name in options:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]}=?" if close else f"there are {', '.join(names)}"
            raise OptionError(f"{name}=: no option of {what}; {meant}")
