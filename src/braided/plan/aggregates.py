"""Check the options of a windowed aggregate, and make its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from braided.durations import parse_duration
from braided.errors import OptionError
from braided.plan.columns import find_column
from braided.plan.nodes import Aggregate, Node
from braided.plan.values import parse_value
from braided.typing import Duration, Keys

WINDOW = "window"


def aggregate_node(
    input: Node,
    columns: Sequence[str],
    *,
    by: Keys,
    window: Duration | None,
    every: Duration | int | None,
    time: str,
    values: Mapping[str, str],
) -> Aggregate:
    """Check the options of an aggregate over an input with these columns, and return its node.

    >>> from braided.plan.nodes import Source
    >>> options = {"by": "Cell", "window": "1 minute", "every": "25 seconds", "time": "ts", "values": {"n": "count(*)"}}
    >>> print(aggregate_node(Source(0, ("ts", "cell")), ("ts", "cell"), **options))
    Aggregate ts in windows of 1 minute every 25 seconds by cell: n = count(*)
    +- Source 0: ts, cell
    """
    if window is None:
        raise OptionError("aggregate: no window; set window= to a duration, or rows= to a number of rows")
    keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    size = parse_duration(window, "window")
    slide = size if every is None else parse_duration(every, "every")
    if size <= 0:
        raise OptionError(f"window={window!r}: not above 0; write a longer duration")
    if not 0 < slide <= size:
        raise OptionError(f"every={every!r}: write a duration above 0 and of at most window={window!r}")
    if not values:
        raise OptionError("aggregate: no values; add at least one, such as n='count(*)'")
    for at, key in enumerate(keys):
        if str(key).lower() in [str(other).lower() for other in keys[:at]]:
            raise OptionError(f"by={key!r}: names a column twice; name it once")
    if WINDOW in [str(key).lower() for key in keys]:
        raise OptionError("by='window': the result has the window in a column of that name; rename your column before")
    taken = {WINDOW, *(key.lower() for key in keys)}
    for name in values:
        if name.lower() in taken:
            raise OptionError(f"{name}=: the result has a column of that name already; choose another")
    for name, text in values.items():
        value = parse_value(name, text)
        read = value.of.find_all(exp.Column) if isinstance(value.of, exp.Expression) else ()
        for column in [value.of] if isinstance(value.of, str) else [column.name for column in read]:
            find_column(column, columns, name)
    columns_of_keys = tuple(find_column(key, columns, "by") for key in keys)
    time = find_column(time, columns, "time")
    return Aggregate(
        input, tuple(zip(columns_of_keys, columns_of_keys, strict=True)), time, size, slide, tuple(values.items())
    )


def check_kind(window: object, rows: object, forget: object) -> None:
    """Raise if options of windows of time are mixed with options of windows of a number of rows."""
    if isinstance(rows, str):
        raise OptionError(f"rows={rows!r}: this is the number of rows in a window; give the value another name")
    if rows is not None and window is not None:
        raise OptionError(f"window={window!r}: cannot be used with rows={rows!r}; omit one of them")
    if rows is None and forget is not None:
        raise OptionError(f"forget={forget!r}: needs windows of a number of rows=; omit it")


def as_rows(every: Duration | int | None) -> int | None:
    """Return after how many rows the next window begins."""
    if every is None or isinstance(every, int):
        return every
    raise OptionError(f"every={every!r}: windows have a number of rows=; write after how many rows the next one begins")
