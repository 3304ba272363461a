"""One case of another engine's test suite: rows as they arrive, our call, and the rows that the suite expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = tuple[Any, ...]


@dataclass(frozen=True)
class SuiteCase:
    """Rows of two streams and what a join of them gives.

    suite, name : where it is from. function : ours, of `braided.local`.
    columns : the columns of the left and of the right stream; times in seconds.
    steps : (left rows, right rows) of each step of the suite, in order of arrival.
    shown : the columns of our result that are compared. wanted : the rows that the suite expects.
    open : the rows that the suite leaves waiting at its end, as they come out at the end of the streams.
    keep : which rows of our result count, where the suite filters the result.
    late : (left, right) rows that the suite adds too late and drops. found_late : what ours give with rows still stored.
    """

    suite: str
    name: str
    columns: tuple[Sequence[str], Sequence[str]]
    steps: Sequence[tuple[Sequence[Values], Sequence[Values]]]
    options: Mapping[str, Any]
    shown: Sequence[str]
    wanted: Sequence[Values]
    open: Sequence[Values] = ()
    function: str = "join"
    keep: Any = None
    late: tuple[Sequence[Values], Sequence[Values]] = ((), ())
    found_late: Sequence[Values] = ()


@dataclass(frozen=True)
class Refusal:
    """A case that is refused: our call and the error, or why there is no such call."""

    suite: str
    name: str
    reason: str
    options: Mapping[str, Any] = field(default_factory=dict)
    message: str | None = None
    function: str = "join"


@dataclass(frozen=True)
class Difference:
    """A case with other rows: as `case`, whose `wanted` are our rows, and why."""

    case: SuiteCase
    reason: str
