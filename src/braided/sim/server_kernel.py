"""The inner loop of the simulation: servers receive copies of rows in order of time, queue them, and join them.

Each server has one queue in order of time, which holds windows and waiting rows alike:

```
   first           next                 last          last - first <= memory
     | rows that are | rows that wait     |
     | in a window   | to be processed    |           processed = counted in `stored`
```

Receiving a row interrupts the join. A row is compared with all rows of the other side that it may meet and that were
processed before it, so every pair is compared once, by the later of its rows (SSP, section 2.1). Servers depend on each
other only if a row goes to the least loaded of some servers: a server number below 0 requests this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled, in_place

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SLOTS = 8
"""How many grids of one join are distinguished; at most four are alive."""


class ServerState(NamedTuple):
    """All servers: the queue of each, and the work done by each server for each join."""

    speed: Floats
    memory: Ints
    times: Floats
    """Times of queued rows, one ring per server."""
    codes: Ints
    """((join * 2 + side) * SLOTS + slot) * 2 + whether it is stored."""
    first: Ints
    next: Ints
    last: Ints
    free_at: Floats
    stored: Ints
    comparisons: Ints
    received: Ints
    processed: Ints
    dropped: Ints
    """The rows that left before they were processed."""


class Costs(NamedTuple):
    """Work per comparison and per received row, the window, and whether a full queue drops the new row."""

    comparison: float
    row: float
    window: float
    drop_new: bool


@in_place
def _remove_first(state: ServerState, server: int) -> None:
    ring = state.times.shape[1] - 1
    first = state.first[server]
    code = state.codes[server, first & ring]
    if first < state.next[server]:
        if code & 1:
            state.stored[server, code >> 1] -= 1
    else:
        state.dropped[server, code // (4 * SLOTS)] += 1
        state.next[server] = first + 1
    state.first[server] = first + 1


@in_place
def _advance(state: ServerState, costs: Costs, server: int, moment: float) -> None:
    """Process waiting rows as long as the server is free before a point in time."""
    ring = state.times.shape[1] - 1
    while state.next[server] < state.last[server] and state.free_at[server] < moment:
        at = state.next[server] & ring
        now, code = state.times[server, at], state.codes[server, at]
        state.next[server] += 1
        # The row itself counts as processed, but is not older than the window, so it stays.
        if code & 1:
            state.stored[server, code >> 1] += 1
        while state.times[server, state.first[server] & ring] < now - costs.window:
            _remove_first(state, server)
        pairs = state.stored[server, (code >> 1) ^ SLOTS]
        state.comparisons[server, code // (4 * SLOTS)] += pairs
        state.processed[server, code // (4 * SLOTS)] += 1
        state.free_at[server] += pairs * costs.comparison / state.speed[server]


@in_place
def _receive(state: ServerState, costs: Costs, server: int, moment: float, code: int) -> None:
    _advance(state, costs, server, moment)
    ring = state.times.shape[1] - 1
    state.received[server, code // (4 * SLOTS)] += 1
    state.free_at[server] = max(state.free_at[server], moment) + costs.row / state.speed[server]
    if state.last[server] - state.first[server] >= state.memory[server]:
        if costs.drop_new:
            state.dropped[server, code // (4 * SLOTS)] += 1
            return
        _remove_first(state, server)
    at = state.last[server] & ring
    state.times[server, at] = moment
    state.codes[server, at] = code
    state.last[server] += 1


@compiled
def run_copies(
    state: ServerState,
    costs: Costs,
    servers: Ints,
    times: Floats,
    codes: Ints,
    members: Ints,
    sizes: Ints,
    until: float,
) -> None:
    """Let servers receive copies in order of time and work until a point in time.

    A server below 0 stands for the least loaded of the servers of the row's join: the one with the fewest waiting rows
    for its speed. `members[join, :sizes[join]]` are the servers of a join.
    """
    for i in range(len(servers)):
        server = servers[i]
        if server < 0:
            join = codes[i] // (4 * SLOTS)
            best = np.inf
            for place in range(sizes[join]):
                one = members[join, place]
                _advance(state, costs, one, times[i])
                load = (state.last[one] - state.next[one] + 1) / state.speed[one]
                if load < best:
                    best = load
                    server = one
        _receive(state, costs, server, times[i], codes[i])
    for server in range(len(state.speed)):
        _advance(state, costs, server, until)
