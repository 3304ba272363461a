"""The keys with the most rows, by two passes over the rows in bounded memory.

```
 pass 1   count rows by the low bits of their key's hash     a heavy key makes its slot heavy
 pass 2   count rows by key, in the heaviest slots only
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from braided.routing.key_hashes import KeyHasher

_SLOTS = 1 << 20
_SPARE = 64
"""How many more slots than keys are used, because a slot may be heavy with several light keys."""


def count_heaviest(keys: Callable[[], Iterable[pa.RecordBatch]], hasher: KeyHasher, count: int) -> pa.Table:
    """Return the keys with the most rows, heaviest first, and their counts; each call of `keys` returns all rows."""
    totals = np.zeros(_SLOTS, np.int64)
    names: list[str] = []
    for batch in keys():
        names = batch.schema.names
        totals += np.bincount(_slots(batch, hasher), minlength=_SLOTS)
    heavy = np.zeros(_SLOTS, np.bool_)
    heavy[np.argsort(-totals, kind="stable")[: count + _SPARE]] = True
    parts = [f"key {at}" for at in range(len(names))]  # users may have a column of any name
    heaviest: pa.Table | None = None
    for batch in keys():
        chosen = batch.filter(pa.array(heavy[_slots(batch, hasher)])).rename_columns(parts)
        counts = pa.table(chosen).group_by(parts).aggregate([([], "count_all")])
        if heaviest is not None:
            counts = pa.concat_tables([heaviest, counts]).group_by(parts).aggregate([("count_all", "sum")])
        heaviest = counts.rename_columns([*parts, "count_all"])
    if heaviest is None:
        return pa.table({"rows": pa.array([], pa.int64())})
    ordered = heaviest.sort_by([("count_all", "descending"), *((name, "ascending") for name in parts)])
    return ordered.slice(0, count).rename_columns([*names, "rows" if "rows" not in names else "__braided_rows"])


def _slots(batch: pa.RecordBatch, hasher: KeyHasher) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    hashes = hasher.hash_with_nulls(batch.columns, batch.num_rows)
    return (hashes & np.uint64(_SLOTS - 1)).astype(np.int64)
