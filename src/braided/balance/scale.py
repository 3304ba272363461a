"""How many workers to use if the user does not set the number."""

from __future__ import annotations

from braided.balance.load_averages import LoadAverages

# Mean loads of the workers in use, as shares of the possible load. 0.7 leaves room for a burst; 0.2 is below half of
# it, so that halving the workers does not cause a doubling.
_HIGH, _LOW = 0.7, 0.2
# The number of batches between two changes, the same as for the average.
PATIENCE = 15


class ScaleRule:
    """Doubles the workers if those in use are busy, and halves them if they are idle, by the longest average.

    >>> averages, rule = LoadAverages(4), ScaleRule()
    >>> averages.add(__import__("numpy").array([0.9, 0.8, 0.0, 0.0]))
    >>> [rule.judge(averages, [0, 1], 4) for _ in range(PATIENCE)][-2:]
    [2, 4]
    """

    def __init__(self) -> None:
        self._waited = 0

    def judge(self, averages: LoadAverages, in_use: list[int], most: int, slots: int = 0) -> int:
        """Take one report; return how many workers to use.

        slots: loads are shares of these. Fewer workers than slots cannot use all of them. So the load is scaled to the
        workers; otherwise a single worker that is always busy would count as idle.
        """
        self._waited += 1
        now = len(in_use)
        if self._waited < PATIENCE:
            return now
        mean = float(averages.over(15)[in_use].mean()) * max(1.0, slots / now)
        wanted = min(most, 2 * now) if mean > _HIGH else max(1, now // 2) if mean < _LOW else now
        if wanted != now:
            self._waited = 0
        return wanted
