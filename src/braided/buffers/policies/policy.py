"""What a policy tells the kernel: one plain record, made by each policy's `plan()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from braided.buffers.records import DECAY_NONE, GAIN_NONE
from braided.errors import BraidedError

__all__ = ["Plan", "Policy", "check_choice", "check_seed"]


@dataclass(frozen=True)
class Plan:
    """The numbers that the kernel branches on; defaults are those of a policy that does not use them."""

    code: int
    gain: int = GAIN_NONE
    decay: int = DECAY_NONE
    unit: int = 1
    percentile: float | None = None
    constant: float = 0.0
    seed: int = 0
    count_keys: int | None = None
    sketch_width: int = 0
    counting: bool = False
    period: int | None = None
    refresh: int | None = None
    explore: int = 255
    hinted: bool = False
    recent: bool = False
    only_long: bool = False


class Policy(Protocol):
    """Says which stored row gives way to a newcomer."""

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers."""


def check_choice(name: str, value: Any, choices: dict[str, int]) -> int:
    """Return the code of a named choice."""
    if not isinstance(value, str) or value not in choices:
        raise BraidedError(f"{name}={value!r}: write one of {', '.join(map(repr, choices))}")
    return choices[value]


def check_seed(seed: Any) -> int:
    """Return a seed that fits the kernel."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 1 << 63:
        raise BraidedError(f"seed={seed!r}: write a whole number from 0 to 2**63 - 1")
    return seed
