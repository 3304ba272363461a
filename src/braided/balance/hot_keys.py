"""Find hot keys: a key that alone has more than half of a worker's fair share gets its own grid."""

from __future__ import annotations

from dataclasses import dataclass

# A key is promoted above half of a fair share: below that, moving other buckets away balances the load more cheaply.
# It is demoted below a quarter, so that a key near the limit does not change all the time.
PROMOTE = 0.5
DEMOTE = 0.25
# One batch may be a burst: a key is promoted in its second hot batch and demoted in its fifth cold one.
PROMOTE_AFTER = 2
DEMOTE_AFTER = 5
MOST = 64

Counts = tuple[float, float, float]


@dataclass
class _KeyHistory:
    counts: Counts
    hot: int = 0
    cold: int = 0


class HotKeys:
    """Follows the heavy keys of each batch; rows of both streams and results count equally.

    >>> keys = HotKeys()
    >>> keys.add({7: (80.0, 1.0, 19.0)}, 50.0), keys.add({7: (80.0, 1.0, 19.0)}, 50.0)
    (([], []), ([7], []))
    """

    def __init__(self) -> None:
        self._known: dict[int, _KeyHistory] = {}
        self._promoted: set[int] = set()

    def add(self, keys: dict[int, Counts], fair: float) -> tuple[list[int], list[int]]:
        """Add the keys of one batch, with a worker's fair share; return the keys that became hot and cold."""
        for key in {*keys, *self._known}:
            now = keys.get(key, (0.0, 0.0, 0.0))
            known = self._known.setdefault(key, _KeyHistory(now))
            old = known.counts
            known.counts = ((old[0] + now[0]) / 2, (old[1] + now[1]) / 2, (old[2] + now[2]) / 2)
            known.hot = known.hot + 1 if sum(now) > PROMOTE * fair else 0
            known.cold = known.cold + 1 if sum(now) < DEMOTE * fair else 0
        hot = [
            key
            for key, known in self._known.items()
            if key not in self._promoted and known.hot >= PROMOTE_AFTER and sum(known.counts) > PROMOTE * fair
        ]
        hot.sort(key=lambda key: (-sum(self._known[key].counts), key))
        cold = sorted(key for key in self._promoted if self._known[key].cold >= DEMOTE_AFTER)
        self._known = {
            key: known
            for key, known in self._known.items()
            if key in self._promoted or sum(known.counts) > DEMOTE * DEMOTE * fair
        }
        return hot[: MOST - len(self._promoted)], cold

    def promoted(self, key: int) -> None:
        self._promoted.add(key)
        self._known.setdefault(key, _KeyHistory((0.0, 0.0, 0.0)))

    def demoted(self, key: int) -> None:
        self._promoted.discard(key)

    def is_cooling(self, key: int) -> bool:
        """Whether a promoted key was cold in the last batch."""
        return self._known[key].cold > 0

    def counts(self, key: int) -> Counts:
        """Return a key's average left rows, right rows and results per batch."""
        return self._known[key].counts
