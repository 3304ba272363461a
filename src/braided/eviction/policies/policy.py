"""The interface of a policy: its name and parameters, its hooks in the kernel, its state, and how this is saved.

A policy is in one file; one line in `braided.eviction.policies.registry` makes its name known to `evict=`.
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
    """The shape of a policy's buffer: its rows, streams and pools, its window, and its joins if it has several.

    retention : how long a row of each stream is stored at most, in microseconds; below 0 if it is not stored.
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
    """Rows that were stored with another policy, for the policy that continues with them.

    seen : how often the key of each row has occurred recently in the other streams, per `span` microseconds.
    others : the number of other rows in each result. counts : the counts of RECENT.
    shadow : the state of a small buffer with the new policy, which got a sample of the same events.
    """

    stored: Stored
    seen: Reals
    span: int
    others: int
    now: int
    counts: Any
    shadow: Any


class Nothing(NamedTuple):
    """The state of a policy that learns nothing."""


class Policy:
    """Decides which stored row is evicted for a newcomer: the one with the smallest credit, of equal ones the oldest.

    A policy is a frozen dataclass of its parameters. Its `hooks` change credits. Its state, in addition to each row's
    credit, is a named tuple of arrays and numbers (`learned`).

    name : its name in `evict=`. alike : whether all rows of one key and stream have the same credit, in their chain.
    row_bytes, stream_bytes : the measured upper bound of its memory per row of capacity with two streams, and for each
        further stream. in_groups : its text in the message about groups of joins; empty if it does not support them.
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
        """The name and all parameters as plain JSON; a buffer that was saved with other parameters is refused."""
        return {"policy": self.name, **asdict(self)}

    @property
    def hooks(self) -> Hooks:
        """The hooks in the kernel."""
        return Hooks()

    @property
    def hinted(self) -> bool:
        """Whether every event needs a number in `hints`."""
        return False

    @property
    def group_hooks(self) -> GroupHooks | None:
        """The hooks in a group of joins; None if the policy does not support groups."""
        return None

    def tuner(self) -> Tuner | None:
        """Return the tuner of the policy; None if it has none."""
        return None

    def learned(self, shape: Shape) -> Any:
        """Return the state at the start: a named tuple with arrays for the values that change."""
        return Nothing()

    def group_bytes(self, capacity: int, joins: int) -> int:
        """Return the bytes of the policy's state in a buffer of several joins."""
        return 0

    def save(self, learned: Any, write: Writer) -> Facts:
        """Write the state as sections, and return small facts as plain JSON."""
        return {}

    def load(self, learned: Any, facts: Facts, read: Reader) -> Any:
        """Return the saved state; `learned` is the state at the start."""
        return learned

    def save_credits(self, learned: Any, rows: Stored, credits: Reals, write: Writer) -> None:
        """Write the credits of rows, oldest first."""
        write.reals(credits)

    def load_credits(self, learned: Any, rows: Stored, read: Reader) -> Reals:
        """Return the credits of rows, oldest first."""
        return read.reals()

    def adopt(self, learned: Any, rows: Adopted) -> Reals:
        """Return credits for rows that were stored with another policy, and update the state from them."""
        return np.zeros(len(rows.stored.keys))


def check_choice(name: str, value: Any, choices: dict[str, int]) -> int:
    """Return the code of a named choice."""
    if not isinstance(value, str) or value not in choices:
        raise OptionError(f"{name}={value!r}: write one of {', '.join(map(repr, choices))}")
    return choices[value]


def check_count(name: str, value: Any, what: str = "a number above 0") -> None:
    """Raise unless the value is None or an integer above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise OptionError(f"{name}={value!r}: write {what}")


def check_seed(seed: Any) -> int:
    """Return a seed that fits the kernel."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise OptionError(f"seed={seed!r}: write an integer from 0 to 2**63 - 1")
    return seed
