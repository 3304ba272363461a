"""AGE: a row is kept until the age at which it has paid most per time (section 3.2; Srivastava and Widom, 2004)."""

from __future__ import annotations

from dataclasses import dataclass

from braided.buffers.policies.policy import Plan
from braided.buffers.records import AGE
from braided.errors import BraidedError


@dataclass(frozen=True, kw_only=True)
class Age:
    """Keep every row of a stream for the same time k, then let it give way; while none is that old, refuse.

    k is learned per stream from the ages at which matches happen (`braided.buffers.policies.ages`). A row keeps the k
    that was known when it came. One row in 256, picked by its content, is kept for the whole window, so that
    ages beyond k stay known.

    per_row : take each row's own k from the `hints` of the events, in microseconds: what the paper's
        evaluation does, with the future known. For benchmarks.
    period : events between two looks at what was learned; default: the capacity, at least 1,024.

    >>> Age(period=5000).plan().period
    5000
    """

    per_row: bool = False
    period: int | None = None

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers."""
        if self.period is not None and self.period < 1:
            raise BraidedError(f"period={self.period!r}: write a number of events above 0")
        return Plan(AGE, period=self.period, hinted=self.per_row)
