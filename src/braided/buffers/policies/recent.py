"""RECENT: the row whose key was seen least of late in the other streams gives way (ours; PROB with a fading memory)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from braided.buffers.policies.policy import Plan, check_choice
from braided.buffers.records import PROB
from braided.errors import BraidedError


@dataclass(frozen=True, kw_only=True)
class Recent:
    """Keep the rows of keys that are frequent now: an occurrence long ago counts less, in about 1 / its age.

    PROB takes a key's frequency in the other streams for the rate of a row's future matches. So does this, with the
    rate as the mean over three memories (`braided.buffers.policies.fading`): the shortest sees a burst within a 128th
    of the window, the longest knows what is popular. A newcomer worth less than every stored row is refused; among
    equals the oldest gives way, so with keys that never come back it is FIFO.

    memory : ``"mixed"``, all three; ``"long"``, four windows alone, which is better by up to 7% where keys keep their
        popularity, and far worse where they come in bursts.
    refresh : events between two looks at the clock; default: an 8th of the capacity.
    count_keys : different keys counted; default: the capacity, at least 1,024. Beyond, those seen least are forgotten,
        a quarter at a time.

    Cost: 16 bytes and 48 per stream for each of `count_keys`; a look at the clock reads every stored row's worth.

    >>> Recent(refresh=100).plan().refresh
    100
    """

    memory: Literal["mixed", "long"] = "mixed"
    refresh: int | None = None
    count_keys: int | None = None

    def plan(self) -> Plan:
        """Return the policy as the kernel's numbers."""
        for name, value in (("refresh", self.refresh), ("count_keys", self.count_keys)):
            if value is not None and value < 1:
                raise BraidedError(f"{name}={value!r}: write a number above 0")
        only_long = check_choice("memory", self.memory, {"mixed": 0, "long": 1}) == 1
        return Plan(
            PROB,
            counting=True,
            count_keys=self.count_keys,
            refresh=self.refresh,
            recent=True,
            only_long=only_long,
        )
