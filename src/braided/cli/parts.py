"""The parts of the demo, each a join of its own: what it shows, its streams, its query, its words and its check.

```
 skew      one phone turns hot: the routing adapts while the join runs
 disorder  rows arrive up to 20 seconds late, and nobody says so: the lateness is learned
 memory    a budget of a fifth of the window: as much of the result as that allows
 theta     no key at all: calls that enter a network meet calls that leave it
```
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import braided
from braided.cli.batches import Run
from braided.cli.oracle import Check, check_calls, check_legs
from braided.cli.queries import join_calls, join_legs
from braided.cli.streams import (
    DISORDER,
    HOT_SHARE,
    LATENESS,
    LEG_LATENESS,
    LEG_WHERE,
    LEG_WITHIN,
    WITHIN,
    WORKERS,
    DemoStreams,
    Legs,
    Streams,
)
from braided.cli.summary import summarize_calls, summarize_legs, summarize_routing
from braided.durations import parse_duration, show_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_LEGS = 30_000
_LEG_SECONDS = 30


@dataclass(frozen=True)
class Part(ABC):
    """One part of the demo, of so many rows over so many seconds of event time."""

    rows: int
    seconds: int

    name: ClassVar[str]
    title: ClassVar[str]
    charts: ClassVar[tuple[str, ...]] = ()
    """What its page draws, by the names in `braided.cli.page`."""

    @property
    @abstractmethod
    def streams(self) -> Streams:
        """What it joins."""

    @property
    @abstractmethod
    def says(self) -> str:
        """The line before it runs."""

    @property
    @abstractmethod
    def code(self) -> str:
        """The call, as one would write it."""

    @abstractmethod
    def start(self, spark: SparkSession, folder: Path) -> Any:
        """Start the query on the streams that were written to a folder."""

    @abstractmethod
    def summarize(self, run: Run) -> dict[str, str]:
        """Return the lines after it has run."""

    @abstractmethod
    def check(self, folder: Path, run: Run) -> Check:
        """Compare what it wrote with DuckDB's result."""


class CallsPart(Part):
    """Calls joined with suspicious numbers."""

    hot_share: ClassVar[float] = 0.0
    disorder: ClassVar[str] = LATENESS

    @property
    def streams(self) -> DemoStreams:
        """See `Part`."""
        return DemoStreams(self.rows, self.seconds, self.hot_share, self.disorder)

    @property
    def options(self) -> Mapping[str, Any]:
        """What the join is told beside its keys, times and window."""
        return {"lateness": LATENESS}

    @property
    def code(self) -> str:
        """See `Part`."""
        told = "".join(f", {name}={_written(value)}" for name, value in self.options.items())
        return (
            'braided.join(calls, numbers, on=[("caller", "phone")], time=("start", "seen_at"),\n'
            f'             within="{WITHIN}"{told})'
        )

    def start(self, spark: SparkSession, folder: Path) -> Any:
        """See `Part`."""
        return join_calls(spark, folder, self.name, self.options)

    def summarize(self, run: Run) -> dict[str, str]:
        """See `Part`."""
        return {**summarize_calls(run), **self._summarize(run)}

    @abstractmethod
    def _summarize(self, run: Run) -> dict[str, str]:
        """Return what there is to say beside rates and state."""

    def check(self, folder: Path, run: Run) -> Check:
        """See `Part`."""
        found = braided.topic(folder / "joined").files()
        within = parse_duration(WITHIN, "within")
        return check_calls(folder / "calls", folder / "numbers", found, within, may_miss=self._may_miss(run))

    def _may_miss(self, run: Run) -> bool:
        """Whether the join promised less than everything."""
        return False


class Skew(CallsPart):
    """One phone turns hot."""

    name = "skew"
    title = "A key turns hot"
    charts = ("load", "comparison", "rate", "state", "cpu")
    hot_share = HOT_SHARE

    @property
    def says(self) -> str:
        """See `Part`."""
        return f"calls.caller = numbers.phone, within {WITHIN}, lateness {LATENESS}; adapts as it runs"

    def _summarize(self, run: Run) -> dict[str, str]:
        return {
            "lateness": f"{LATENESS} allowed, {run.late:,} rows later than that",
            **summarize_routing(self.streams, run),
        }


class Disorder(CallsPart):
    """Rows arrive in no order."""

    name = "disorder"
    title = "Rows arrive in no order"
    charts = ("lateness", "rate", "state")
    disorder = DISORDER

    @property
    def options(self) -> Mapping[str, Any]:
        """See `CallsPart`: nothing, so the lateness is learned."""
        return {}

    @property
    def says(self) -> str:
        """See `Part`."""
        return f"calls.caller = numbers.phone, within {WITHIN}; rows are up to {DISORDER} late, which nobody has told"

    def _summarize(self, run: Run) -> dict[str, str]:
        learned = show_duration(run.batches[-1].lateness)
        return {"lateness": f"{learned} learned, {run.late:,} rows were later than what was known then"}

    def _may_miss(self, run: Run) -> bool:
        return run.late > 0


class Memory(CallsPart):
    """A budget."""

    name = "memory"
    title = "A budget of a fifth of the window"
    charts = ("recall", "rate", "state")

    @property
    def budget(self) -> int:
        """Rows a worker: a fifth of those of both streams that are within the window, spread evenly."""
        window = self.rows * parse_duration(WITHIN, "within") / 1_000_000 / self.seconds
        return max(100, round(window / 5 / WORKERS))

    @property
    def options(self) -> Mapping[str, Any]:
        """See `CallsPart`."""
        return {"lateness": LATENESS, "memory": self.budget}

    @property
    def says(self) -> str:
        """See `Part`."""
        return f"calls.caller = numbers.phone, within {WITHIN}; {self.budget:,} rows a worker, a fifth of the window"

    def _summarize(self, run: Run) -> dict[str, str]:
        return {"recall": f"{_share(run.recall)} of the exact result, as estimated while it ran; DuckDB says below"}

    def _may_miss(self, run: Run) -> bool:
        return True


class Theta(Part):
    """No key."""

    name = "theta"
    title = "By a predicate alone"

    @property
    def streams(self) -> Legs:
        """See `Part`. They are small: a row meets all rows in the window."""
        return Legs(min(self.rows, _MOST_LEGS), _LEG_SECONDS)

    @property
    def says(self) -> str:
        """See `Part`."""
        return f"{self.streams.rows:,} legs of calls, no key: {LEG_WHERE}, within {LEG_WITHIN}"

    @property
    def code(self) -> str:
        """See `Part`."""
        return (
            f'braided.join(incoming, outgoing, on=None, time="start", within="{LEG_WITHIN}", '
            f'lateness="{LEG_LATENESS}",\n             where="{LEG_WHERE}")'
        )

    def start(self, spark: SparkSession, folder: Path) -> Any:
        """See `Part`."""
        return join_legs(spark, folder)

    def summarize(self, run: Run) -> dict[str, str]:
        """See `Part`."""
        return summarize_legs(run)

    def check(self, folder: Path, run: Run) -> Check:
        """See `Part`."""
        found = braided.topic(folder / "joined").files()
        return check_legs(folder / "incoming", folder / "outgoing", found, parse_duration(LEG_WITHIN, "within"))


_ALL: tuple[type[Part], ...] = (Skew, Disorder, Memory, Theta)
PARTS: Mapping[str, type[Part]] = {part.name: part for part in _ALL}
USUAL = ("skew", "theta")
"""What the demo shows if nothing is chosen."""


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value:_}"


def _share(recall: tuple[float, float] | None) -> str:
    return "an unknown share" if recall is None else f"{recall[0]:.1%} +- {recall[1]:.1%}"
