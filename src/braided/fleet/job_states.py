"""The states of a job of a fleet, for its holder and for readers of the leases.

```
 starting --> running <--> behind              its batches do not keep up with its input
                |  ^
                v  |
             failing (n times) --> failed      not started again by itself
 draining    it stops after its batch: it was paused, or its peer moves its jobs to other peers
 paused      it does not run until it is resumed
 orphaned    no peer runs it: its peer has failed or released it, and no other has taken it over yet
```
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from braided.fleet.component_host import Pause
from braided.fleet.leases import Beat, Lease

JobState: TypeAlias = Literal["starting", "running", "behind", "failing", "failed", "orphaned", "draining", "paused"]
STATES: tuple[JobState, ...] = get_args(JobState)


def state_of(lease: Lease | None, beat: Beat, pause: Pause | None, *, answers: bool) -> tuple[JobState, float]:
    """Return a job's state and since when; 0 if the time is not known.

    answers : whether the holder of the lease answers.
    """
    runs = lease is not None and beat.released is None
    if pause is not None:
        return ("draining" if runs and answers else "paused"), pause.at
    if lease is None:
        return "starting", 0.0
    if beat.is_failed:
        return "failed", beat.since
    if runs and not answers:
        return "orphaned", beat.at
    known = next((state for state in STATES if state == beat.state), None)
    if runs:
        return known or "starting", beat.since
    return ("failing" if beat.failures else known or "orphaned"), beat.since
