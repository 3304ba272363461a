"""What a policy is: a name and parameters, hooks in the kernel, what it learns, and how that is saved.

All of it is in the policy's own file; one line in `braided.eviction.policies.registry` lets `evict=` find it by name.
"""

from __future__ import annotations

from dataclasses import Field, asdict, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from braided.errors import OptionError
from braided.eviction.policies.hooks import GroupHooks, Hooks
from braided.eviction.records import Bytes, Ints, Reals, UInt64s
from braided.eviction.sections import Facts, Reader, Writer

if TYPE_CHECKING:
    from braided.eviction.tuning.tuner import Tuner

__all__ = ["Adopted", "Policy", "Shape", "Stored", "check_choice", "check_count", "check_seed"]


class Shape(NamedTuple):
    """The buffer that a policy learns in: its rows, streams and pools, its window, and its joins where it has several.

    retention : how long a row of each stream is kept at most, in microseconds; below 0 where it is not.
    """

    capacity: int
    streams: int
    pools: int
    retention: tuple[int, ...]
    joins: int = 0


class Stored(NamedTuple):
    """The rows of a buffer, oldest first."""

    keys: UInt64s
    times: Ints
    streams: Bytes


class Adopted(NamedTuple):
    """Rows that another policy has kept, for a policy that goes on with them.

    seen : how often the key of each was seen recently in the other streams, in occurrences per `span` microseconds.
    others : streams of which each result has a further row. counts : what RECENT has counted.
    shadow : what a small buffer of the new policy has learned from a sample of the same events.
    """

    stored: Stored
    seen: Reals
    span: int
    others: int
    now: int
    counts: Any
    shadow: Any


class Nothing(NamedTuple):
    """What a policy has learned that learns nothing."""


class Policy:
    """Says which stored row gives way to a newcomer: the one of smallest credit, the oldest of equals.

    A policy is a frozen dataclass of its parameters. What it does to credits it says in `hooks`; whatever it has to
    remember for that, beside each row's credit, is a named tuple of arrays and numbers of its own (`learned`).

    name : what `evict=` calls it. alike : whether all rows of one key and stream have one credit, that of their chain.
    row_bytes, stream_bytes : the memory of its buffer for a row of capacity with two streams, and more for each further
        one, as measured at most. in_groups : what a group of joins takes of it, for messages; nothing if it is empty.
    """

    name: ClassVar[str]
    alike: ClassVar[bool] = False
    row_bytes: ClassVar[int] = 180
    stream_bytes: ClassVar[int] = 29
    in_groups: ClassVar[str] = ""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __repr__(self) -> str:
        parameters = [(field.name, getattr(self, field.name)) for field in fields(self) if field.repr]
        changed = [
            f"{name}={value!r}" for name, value in parameters if value != self.__dataclass_fields__[name].default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @property
    def options(self) -> Facts:
        """The name and all parameters, as plain JSON: a buffer that was saved with others is refused."""
        return {"policy": self.name, **asdict(self)}

    @property
    def hooks(self) -> Hooks:
        """What it does in the kernel."""
        return Hooks()

    @property
    def hinted(self) -> bool:
        """Whether every event needs a number in `hints`."""
        return False

    @property
    def group_hooks(self) -> GroupHooks | None:
        """What it does in a group of joins; None: it has no meaning there."""
        return None

    def tuner(self) -> Tuner | None:
        """Return what tunes it while it runs; None if nothing does."""
        return None

    def learned(self, shape: Shape) -> Any:
        """Return what it knows at the start: a named tuple, of arrays where it changes."""
        return Nothing()

    def group_bytes(self, capacity: int, joins: int) -> int:
        """Return the bytes of what it learns in a buffer of several joins."""
        return 0

    def save(self, learned: Any, write: Writer) -> Facts:
        """Write what it has learned as sections, and return small facts as plain JSON."""
        return {}

    def load(self, learned: Any, facts: Facts, read: Reader) -> Any:
        """Return what it had learned, given what it knows at the start."""
        return learned

    def save_credits(self, learned: Any, rows: Stored, credits: Reals, write: Writer) -> None:
        """Write the credits of rows, oldest first."""
        write.reals(credits)

    def load_credits(self, learned: Any, rows: Stored, read: Reader) -> Reals:
        """Return the credits of rows, oldest first."""
        return read.reals()

    def adopt(self, learned: Any, rows: Adopted) -> Reals:
        """Return credits for rows that another policy has kept, and learn what there is to learn from it."""
        return np.zeros(len(rows.stored.keys))


def check_choice(name: str, value: Any, choices: dict[str, int]) -> int:
    """Return the code of a named choice."""
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"{name}={value!r}: write one of {', '.join(map(repr, choices))}")
    return choices[value]


def check_count(name: str, value: Any, what: str = "a number above 0") -> None:
    """Refuse what is neither left out nor a number above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise OptionError(f"{name}={value!r}: write {what}")


def check_seed(seed: Any) -> int:
    """Return a seed that fits the kernel."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise OptionError(f"seed={seed!r}: write a whole number from 0 to 2**63 - 1")
    return seed
