"""The rules of outer, semi and anti joins while the routing changes, each with a name by which it can be left out."""

from __future__ import annotations

RULES = {
    # Where rows are.
    "home": "a preserved row meets all others at its home; it never probes elsewhere",
    "split": "a preserved row is stored in one worker of its assignment, a row of the other side in all of them",
    "own": "a copy meets only rows stored under its own assignment",
    "one copy": "an assignment that is open and old at once gets one copy of a row",
    "pin": "all rows of a batch are routed by one table",
    # When the home changes.
    "wait": "the home changes when every row of the other side that was stored before the opening has left",
    "first pin": "an opening begins with the first batch pinned to it, not when its table is published",
    "missed": "where a report is missing, the bound of the next one is taken",
    "restart": "a restarted controller takes the bound of the first report that it gets",
    "return": "an assignment that comes back is opened anew, although it is still probed",
    "other doubted": "rows of the other side in quarantine hold back the change of the home",
    # When an old home is dead.
    "death": "an old home gets probes until its last preserved row has left",
    "replaced": "the bound of an old home is that of the version that took the home away",
    "own doubted": "preserved rows in quarantine keep their old home alive",
    "oldest doubted": "a bound is lowered when no worker holds a doubted row from before it",
    # Time.
    "horizon": "horizons never go back",
    "idle": "a row behind its horizon is late, also where the horizon moved on because the stream was idle",
    "expiry": "rows leave after the whole batch has probed",
    "late": "a late preserved row never comes out alone",
    "discarded": "a discarded preserved row never comes out alone",
    # Hot keys and scaling.
    "one change": "a key has one change at a time, its bucket's included",
    "follow": "a demoted key follows its bucket until the bucket has all its assignments",
    "scale in": "a worker that is no longer in use still gets the copies of all live assignments",
    # Full joins.
    "both copied": "full: an opening gets copies of both sides and is waited for; that a group was empty is not enough",
    "one place": "full: a pair comes out at the home of its left row",
    "same verdict": "full: all copies of a doubted row are believed or discarded in the same batch",
}
OF_FULL = ("both copied", "one place", "same verdict")


class Rules:
    """All rules, or all but one."""

    def __init__(self, without: str | None = None) -> None:
        if without is not None and without not in RULES:
            raise ValueError(f"{without=}: not a rule")
        self._without = without

    def __contains__(self, name: str) -> bool:
        return name != self._without
