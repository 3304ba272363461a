"""PROB: the row whose key was seen least in the other streams gives way (section 3.1, after Das et al., 2003)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from braided.buffers.policies.policy import Plan, check_choice
from braided.buffers.records import PROB
from braided.errors import BraidedError


@dataclass(frozen=True, kw_only=True)
class Prob:
    """Keep the rows of frequent keys: a row is worth the occurrences of its key in the other streams so far.

    A newcomer worth less than every stored row is refused; among equals the oldest gives way.

    counts : ``"exact"`` counts every key while no more than `count_keys` different ones were seen; after that
        rare and old occurrences are forgotten by halving (see `braided.buffers.policies.counts`). ``"sketch"`` is a
        count-min sketch of four rows, which never forgets and may count too high.
    count_keys : different keys counted exactly; default: four times the capacity, at least 1,024.
    width : columns of the sketch; default 4,096: an excess above 0.07% of the rows is rarer than 2%.

    Cost: 16 bytes and 16 per stream for each of `count_keys`, or 32 bytes per stream and column.

    >>> Prob(counts="sketch").plan().sketch_width
    4096
    """

    counts: Literal["exact", "sketch"] = "exact"
    count_keys: int | None = None
    width: int = 4096

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers."""
        sketch = check_choice("counts", self.counts, {"exact": 0, "sketch": 1})
        if self.count_keys is not None and self.count_keys < 1:
            raise BraidedError(f"count_keys={self.count_keys!r}: write a number of keys above 0")
        if not 1 <= self.width <= 1 << 24:
            raise BraidedError(f"width={self.width!r}: write a number of columns from 1 to 2**24")
        return Plan(PROB, counting=True, count_keys=self.count_keys, sketch_width=self.width if sketch else 0)
