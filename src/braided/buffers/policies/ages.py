"""How long a row is worth keeping, for AGE: learned from the ages at which stored rows find matches.

Per stream, by age in AGE_BINS equal steps of the retention: matches found, and rows that left. A row that left
in bin j has lived through all bins before it and half of j, on average. That gives p(j), the matches of a row
in bin j, and the age that is best to keep a row for, k, where p(0) + ... + p(k) over k is largest (section 3.2).
"""

from __future__ import annotations

from braided.buffers.records import AGE_BINS, Reals, Records
from braided.compiled import compiled


@compiled
def age_bin(age: int, retention: int) -> int:
    """Return the bin of an age, at least 0."""
    return min(AGE_BINS - 1, int(float(age) * AGE_BINS / (float(retention) + 1.0)))


@compiled
def learn_ages(streams: Records, age_matches: Reals, age_exits: Reals) -> None:
    """Set each stream's `keep` from what was seen, and let half of it fade."""
    for s in range(len(streams)):
        lived = 0.0
        for j in range(AGE_BINS):
            lived += age_exits[s, j]
        found, best, best_bin = 0.0, 0.0, AGE_BINS - 1
        for j in range(AGE_BINS):
            exposure = lived - 0.5 * age_exits[s, j]
            if exposure <= 0.0:
                break
            lived -= age_exits[s, j]
            found += age_matches[s, j] / exposure
            if found / (j + 1) > best:
                best, best_bin = found / (j + 1), j
        streams[s].keep = int((best_bin + 1) * (float(streams[s].retention) + 1.0) / AGE_BINS)
        for j in range(AGE_BINS):
            age_exits[s, j] *= 0.5
            age_matches[s, j] *= 0.5
