"""Find columns (case-insensitive) and check names of options; the error suggests a similar name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from braided.errors import OptionError


def find_column(name: object, columns: Sequence[str], option: str) -> str:
    """Return the column's name in the stream, case-insensitive; if there is none, raise with a similar name."""
    if name in columns:
        return str(name)
    folded = [column for column in columns if column.lower() == str(name).lower()]
    if len(folded) == 1:
        return folded[0]
    close = difflib.get_close_matches(str(name), columns, n=1)
    meant = f"did you mean {close[0]!r}?" if close else f"the columns are {', '.join(columns)}"
    raise OptionError(f"{option}={name!r}: no such column; {meant}")


def check_options(options: Iterable[str], known: Iterable[str], what: str) -> None:
    """Raise if an option is unknown; the message suggests a similar one."""
    names = sorted(known)
    for name in options:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]}=?" if close else f"the options are {', '.join(names)}"
            raise OptionError(f"{name}=: unknown option of {what}; {meant}")
