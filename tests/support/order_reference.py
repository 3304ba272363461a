"""K-slack and the learning of K without a recall target, in plain Python: slow, and written from the definitions."""

from __future__ import annotations

import bisect
import math

SLICES, SLICE_ROWS, PRIME_ROWS = 8, 64, 256


def middle(delay: int) -> int:
    """The middle of the bucket of a delay: 32 buckets an octave."""
    if delay < 64:
        return delay
    shift = delay.bit_length() - 6
    lower = delay >> shift << shift
    return lower + ((1 << shift) - 1) // 2


class LargestDelay:
    """K is the largest delay of the last slices plus margin standard deviations, and falls by an eighth a slice."""

    def __init__(self, margin: float, floor: int, memory: int, ceiling: int, *, prime: int = PRIME_ROWS):
        self.margin, self.floor, self.ceiling, self.prime = margin, floor, ceiling, prime
        shift = max(0, ceiling.bit_length() - 6)
        self.learned = ((ceiling >> shift) + 1 << shift) - 1  # to the end of the ceiling's bucket
        self.slice = max(1, memory // SLICES)
        self.maxima: list[int] = [0]
        self.weights = 0.0
        self.sums = [0.0, 0.0]
        self.held = 0.0
        self.rows = self.slice_rows = 0
        self.first_clock: int | None = None
        self.start = 0
        self.lateness = floor

    def update(self, clock: int, delay: int) -> int:
        """One row, with the clock after it."""
        if self.first_clock is None:
            self.first_clock = self.start = clock
        if delay <= self.learned:
            self.maxima[-1] = max(self.maxima[-1], delay)
            self.rows += 1
            self.slice_rows += 1
            self.weights += 1
            self.sums[0] += middle(delay)
            self.sums[1] += middle(delay) ** 2
        if self.slice_rows >= SLICE_ROWS and clock - self.start >= self.slice:
            self.start, self.slice_rows = clock, 0
            self.maxima = [*self.maxima, 0][-(SLICES + 1) :]
            self.held *= 7 / 8
            self.weights *= 7 / 8
            self.sums = [part * 7 / 8 for part in self.sums]
        mean = self.sums[0] / max(self.weights, 1)
        spread = math.sqrt(max(self.sums[1] / max(self.weights, 1) - mean**2, 0))
        self.held = max(self.held, min(self.ceiling, max(self.maxima) + self.margin * spread))
        wanted = int(self.held)
        if self.rows < self.prime:
            wanted = max(wanted, clock - self.first_clock + max(self.maxima) + 1)
        self.lateness = min(self.ceiling, max(self.floor, wanted))
        return self.lateness


def order(times: list[int], lateness: list[int]) -> tuple[list[int], list[bool], list[int]]:
    """Release order, which rows were in order, and waits, of a buffer whose K after row i is lateness[i]."""
    waiting: list[tuple[int, int]] = []
    released: list[int] = []
    in_order, arrived, left = [], [], {}
    horizon = last = clock = None
    for row, (time, k) in enumerate(zip(times, lateness, strict=True)):
        in_order.append(last is None or time >= last)
        clock = time if clock is None else max(clock, time)
        horizon = clock - k if horizon is None else max(horizon, clock - k)
        arrived.append(clock)
        bisect.insort(waiting, (time, row))
        while waiting and waiting[0][0] <= horizon:
            at, first = waiting.pop(0)
            released.append(first)
            last = at if last is None else max(last, at)
            left[first] = clock
    released += [row for _, row in waiting]
    return released, in_order, [left.get(row, arrived[-1]) - arrived[row] for row in range(len(times))]
