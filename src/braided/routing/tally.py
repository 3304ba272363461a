"""The counts of a worker for the controller: its load by bucket, by grid and by hot key, in rows and results.

A row costs a look-up and a copy, a result costs a copy; each counts as one. The counts are sent in the query's
progress, so they are packed: a bucket's load is one byte on a logarithmic scale, with an error of about 5%.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from braided.compiled import compiled
from braided.errors import BraidedError
from braided.routing.hash_kernels import salt
from braided.routing.routes import Tags
from braided.routing.sketch import HeavyHitters
from braided.routing.table import BUCKETS

Hashes = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.int64]
_STEPS = 8  # of the scale, per doubling
_KEYS = 32
_RESULTS = 2


class Tally:
    """Counts one batch of one worker. `grids` maps a grid to its left rows, right rows and results."""

    def __init__(self) -> None:
        self.buckets = np.zeros(BUCKETS, np.int64)
        self.grids: dict[int, list[int]] = {}
        self.keys = HeavyHitters(capacity=_KEYS)

    def rows(self, side: int, hashes: Hashes, tags: Tags | None) -> None:
        """Count received rows of one side; the hashes are the stored ones, which are changed by their tags."""
        self._add(side, hashes, tags, np.ones(len(hashes), np.int64))

    def results(self, hashes: Hashes, tags: Tags | None, counts: Counts) -> None:
        """Count the matches of probe rows."""
        self.keys.update(_keys(hashes, tags), counts)
        self._add(_RESULTS, hashes, tags, counts)

    def _add(self, what: int, hashes: Hashes, tags: Tags | None, counts: Counts) -> None:
        if tags is None:
            add_to_buckets(self.buckets, hashes, counts)
            return
        plain = tags == 0
        add_to_buckets(self.buckets, hashes[plain], counts[plain])
        for grid in np.unique(tags[~plain]).tolist():
            self.grids.setdefault(grid, [0, 0, 0])[what] += int(counts[tags == grid].sum())

    def to_json(self) -> dict[str, Any]:
        """Return the packed counts."""
        return {
            "buckets": pack(self.buckets),
            "grids": {str(grid): counts for grid, counts in sorted(self.grids.items())},
            "keys": [[f"{key:016x}", weight] for key, weight in self.keys.top(_KEYS)],
        }


def _keys(hashes: Hashes, tags: Tags | None) -> Hashes:
    """Undo the change by tags: changing a hash twice restores it."""
    if tags is None:
        return hashes
    plain = hashes.copy()
    salt(plain, tags)
    return plain


@compiled
def add_to_buckets(buckets: Counts, hashes: Hashes, counts: Counts) -> None:
    """Add each count to its hash's bucket."""
    for i in range(len(hashes)):
        buckets[np.int64(hashes[i] & np.uint64(BUCKETS - 1))] += counts[i]


def pack(loads: Counts) -> str:
    """Return loads as text: one byte each on a logarithmic scale, compressed.

    >>> unpack(pack(np.array([0, 1, 1000] + [0] * 4093)))[:3].round().tolist()
    [0.0, 1.0, 1023.0]
    """
    scaled = np.rint(_STEPS * np.log2(1.0 + loads)).clip(0, 255).astype(np.uint8)
    return base64.b64encode(zlib.compress(scaled.tobytes(), 6)).decode()


def unpack(text: str) -> npt.NDArray[np.float64]:
    """Undo `pack`."""
    try:
        raw = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), BUCKETS)
    except (ValueError, zlib.error) as error:
        raise BraidedError(f"not the packed loads of buckets: {text[:40]!r}") from error
    if len(raw) != BUCKETS:
        raise BraidedError(f"the packed loads of {len(raw)} buckets, not of {BUCKETS}")
    return np.asarray(np.exp2(np.frombuffer(raw, np.uint8) / _STEPS) - 1.0, np.float64)
