"""How many examples a property test tries: a few in a fast check, some in every check, many before an issue is closed.

A test names what it tries with `./check --slow`; `./check` takes a share of that, `./check --fast` a share of the share::

    @settings(max_examples=examples(400), deadline=None)      # 400, 32 or 16
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from hypothesis import Phase, settings

T = TypeVar("T")

SHARE = 0.08
FEWEST = 8
FAST = 0.5

for name in ("fast", "quick", "slow"):
    settings.register_profile(name)
# Mutations only need to be noticed, not explained: shrinking a failure takes minutes.
for name in ("mutations", "slow-mutations"):
    settings.register_profile(name, phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("quick")


def examples(slow: int, *, quick: int | None = None) -> int:
    """Return how many examples to try in this run; `quick` where the usual share would be too few or too many."""
    usual = max(min(FEWEST, slow), round(SHARE * slow)) if quick is None else quick
    return size(fast=math.ceil(FAST * usual), quick=usual, slow=slow)


def some(values: Iterable[T], quick: int, *, fast: int | None = None) -> list[T]:
    """Return what of these to try in this run: the first few, or all."""
    found = list(values)
    return found[: size(fast=fast, quick=quick, slow=len(found))]


def size(*, fast: int | None = None, quick: int, slow: int) -> int:
    """Return how large something is in this run; a fast one is as any other unless said otherwise."""
    if settings.get_current_profile_name() == "fast" and fast is not None:
        return fast
    return slow if is_slow() else quick


def is_slow() -> bool:
    """Return whether this run is of the slow tier."""
    return settings.get_current_profile_name().startswith("slow")
