"""The parts of the demo, each with one join: its streams, its query, its summary and its check.

```
 skew      one phone becomes hot: the routing adapts while the join runs
 disorder  rows arrive up to 20 seconds late, without a lateness option: the lateness is learned
 memory    a budget of a fifth of the window: the part of the result that this allows
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
from braided.cli.demo_display import bar, format_bytes
from braided.cli.demo_oracle import Check, check_calls, check_legs
from braided.cli.demo_run import Run, median_rate, share_of_rows
from braided.cli.demo_streams import (
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
from braided.durations import parse_duration, show_duration
from braided.runtime.contract import Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_LEGS = 30_000
_LEG_SECONDS = 30
_BAR = 20
_CALLS_DDL = "caller long, callee long, start timestamp, duration int, cell int"
_NUMBERS_DDL = "phone long, seen_at timestamp, reason string"


@dataclass(frozen=True)
class Part(ABC):
    """One part of the demo, with a number of rows over a number of seconds of event time."""

    rows: int
    seconds: int

    name: ClassVar[str]
    title: ClassVar[str]

    @property
    @abstractmethod
    def streams(self) -> Streams:
        """The streams that it joins."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """The line before it runs."""

    @property
    @abstractmethod
    def code(self) -> str:
        """The call as a user writes it."""

    @abstractmethod
    def join(self, spark: SparkSession, folder: Path) -> DataFrame:
        """Join the streams that were written to a folder."""

    def start(self, spark: SparkSession, folder: Path) -> Any:
        """Start the query, which writes its results beside the streams."""
        out = folder / "joined"
        joined = self.join(spark, folder)
        return braided.write_files(joined, out, checkpoint=f"{out}-checkpoint", trigger="available now")

    @abstractmethod
    def summarize(self, run: Run) -> dict[str, str]:
        """Return the lines after it has run."""

    @abstractmethod
    def check(self, folder: Path, run: Run) -> Check:
        """Compare the written results with DuckDB's."""

    def note(self, run: Run, check: Check) -> Json:
        """Return the text of the page about it, as an event of the dashboard."""
        streams = self.streams
        size = f"{streams.rows:,} rows over {streams.seconds} seconds of event time"
        text = f"{self.headline}. {size}, in {len(run.batches)} batches by {WORKERS} workers. "
        text += "Batches are counted from 1 here, and from 0 in the charts, as Spark does."
        facts = {**self.summarize(run), "checked": str(check)}
        note = {"title": self.title, "text": text, "code": self.code, "facts": facts, "right": check.right}
        return {"event": "note", "query": run.id, **note}


class CallsPart(Part):
    hot_share: ClassVar[float] = 0.0
    disorder: ClassVar[str] = LATENESS

    @property
    def streams(self) -> DemoStreams:
        return DemoStreams(self.rows, self.seconds, self.hot_share, self.disorder)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the join beside its keys, times and window."""
        return {"lateness": LATENESS}

    @property
    def code(self) -> str:
        options = "".join(f", {name}={_written(value)}" for name, value in self.options.items())
        return (
            'braided.join(calls, numbers, on=[("caller", "phone")], time=("start", "seen_at"),\n'
            f'             within="{WITHIN}"{options})'
        )

    def join(self, spark: SparkSession, folder: Path) -> DataFrame:
        return braided.join(
            _read(spark, folder / "calls", _CALLS_DDL),
            _read(spark, folder / "numbers", _NUMBERS_DDL),
            on=[("caller", "phone")],
            time=("start", "seen_at"),
            within=WITHIN,
            name=self.name,
            **self.options,
        )

    def summarize(self, run: Run) -> dict[str, str]:
        batches = run.batches
        peak = max(batches, key=lambda batch: batch.stored_rows)
        return {
            "joined": f"{run.rows:,} rows into {run.results:,} in {run.elapsed:.1f} s: "
            f"{run.rows / run.elapsed:,.0f} rows/s, {median_rate(batches):,.0f} in the median batch",
            "state": f"at most {peak.stored_rows:,} rows, {format_bytes(peak.stored_bytes)}; "
            f"at the end {batches[-1].stored_rows:,} rows",
            **self._summarize(run),
        }

    @abstractmethod
    def _summarize(self, run: Run) -> dict[str, str]:
        """Return further lines beside rates and state."""

    def check(self, folder: Path, run: Run) -> Check:
        results = braided.topic(folder / "joined").files()
        within = parse_duration(WITHIN, "within")
        return check_calls(folder / "calls", folder / "numbers", results, within, may_miss=self._may_miss(run))

    def _may_miss(self, run: Run) -> bool:
        """Whether results may be missing on purpose."""
        return False


class Skew(CallsPart):
    name = "skew"
    title = "A key turns hot"
    hot_share = HOT_SHARE

    @property
    def headline(self) -> str:
        return f"calls.caller = numbers.phone, within {WITHIN}, lateness {LATENESS}; adapts as it runs"

    def _summarize(self, run: Run) -> dict[str, str]:
        return {
            "lateness": f"{LATENESS} allowed, {run.late:,} rows later than that",
            **self._summarize_routing(run),
        }

    def _summarize_routing(self, run: Run) -> dict[str, str]:
        """Return the lines about the hot phone and how the routing adapted to it."""
        demo = self.streams
        hot = f"one phone makes {demo.hot_share:.0%} of the calls from {demo.hot_from} s on"
        compared = run.before_and_after()
        if run.promotion is None or compared is None:
            return {"hot key": f"{hot}; the streams ended before the routing could adapt"}
        before, after = compared
        edge = demo.hot_from // demo.batch_seconds
        calm = max(share_of_rows(run.batches[:edge]), default=1 / len(before.workers))
        return {
            "hot key": f"{hot}: its worker takes {max(share_of_rows([before])):.0%} of the rows, {calm:.0%} before",
            "adapted": str(run.promotion),
            "balance": f"largest load over mean {before.imbalance:.2f} in batch {before.number + 1}, "
            f"{after.imbalance:.2f} in batch {after.number + 1}",
        }


class Disorder(CallsPart):
    name = "disorder"
    title = "Rows arrive out of order"
    disorder = DISORDER

    @property
    def options(self) -> Mapping[str, Any]:
        """Nothing, so the lateness is learned."""
        return {}

    @property
    def headline(self) -> str:
        return f"calls.caller = numbers.phone, within {WITHIN}; rows are up to {DISORDER} late, with no lateness given"

    def _summarize(self, run: Run) -> dict[str, str]:
        learned = show_duration(run.batches[-1].lateness)
        return {"lateness": f"{learned} learned, {run.late:,} rows were later than the lateness learned by then"}

    def _may_miss(self, run: Run) -> bool:
        return run.late > 0


class Memory(CallsPart):
    name = "memory"
    title = "A budget of a fifth of the window"

    @property
    def budget(self) -> int:
        """Rows per worker: a fifth of the rows of both streams within the window, spread evenly."""
        window = self.rows * parse_duration(WITHIN, "within") / 1_000_000 / self.seconds
        return max(100, round(window / 5 / WORKERS))

    @property
    def options(self) -> Mapping[str, Any]:
        return {"lateness": LATENESS, "memory": self.budget}

    @property
    def headline(self) -> str:
        return f"calls.caller = numbers.phone, within {WITHIN}; {self.budget:,} rows per worker, a fifth of the window"

    def _summarize(self, run: Run) -> dict[str, str]:
        return {
            "recall": f"{_share(run.recall)} of the exact result, as estimated while it ran; the actual share is below"
        }

    def _may_miss(self, run: Run) -> bool:
        return True


class Theta(Part):
    name = "theta"
    title = "By a predicate alone"

    @property
    def streams(self) -> Legs:
        """Small streams: a row meets all rows in the window."""
        return Legs(min(self.rows, _MOST_LEGS), _LEG_SECONDS)

    @property
    def headline(self) -> str:
        return f"{self.streams.rows:,} legs of calls, no key: {LEG_WHERE}, within {LEG_WITHIN}"

    @property
    def code(self) -> str:
        return (
            f'braided.join(incoming, outgoing, on=None, time="start", within="{LEG_WITHIN}", '
            f'lateness="{LEG_LATENESS}",\n             where="{LEG_WHERE}")'
        )

    def join(self, spark: SparkSession, folder: Path) -> DataFrame:
        return braided.join(
            _read(spark, folder / "incoming", _CALLS_DDL),
            _read(spark, folder / "outgoing", _CALLS_DDL),
            on=None,
            time="start",
            within=LEG_WITHIN,
            where=LEG_WHERE,
            lateness=LEG_LATENESS,
            name="theta",
        )

    def summarize(self, run: Run) -> dict[str, str]:
        return {
            "matched": f"{run.rows:,} rows into {run.results:,} pairs in {run.elapsed:.1f} s: "
            f"{run.results / run.elapsed:,.0f} pairs/s, {median_rate(run.batches):,.0f} rows/s in the median batch"
        }

    def check(self, folder: Path, run: Run) -> Check:
        results = braided.topic(folder / "joined").files()
        return check_legs(folder / "incoming", folder / "outgoing", results, parse_duration(LEG_WITHIN, "within"))


_ALL: tuple[type[Part], ...] = (Skew, Disorder, Memory, Theta)
PARTS: Mapping[str, type[Part]] = {part.name: part for part in _ALL}
USUAL = ("skew", "theta")
"""The parts that the demo shows by default."""


def draw_loads(run: Run) -> dict[str, str]:
    """Return a pair of bars per worker: its load before the promotion and in the last batch, on one scale."""
    compared = run.before_and_after()
    if compared is None:
        return {}
    most = max(batch.imbalance for batch in compared)
    heads = (f"before: batch {compared[0].number + 1}", f"after: batch {compared[1].number + 1}")
    lines = {"load": f"{heads[0]:<{_BAR + 8}}{heads[1]}"}
    for number, pair in enumerate(zip(*(batch.workers for batch in compared), strict=True)):
        bars = [f"{bar(worker.load / most, _BAR)} {worker.load:.2f}" for worker in pair]
        lines[f"worker {number}"] = "   ".join(bars)
    return lines


def _read(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    return braided.files(spark, folder, schema=schema, max_files=1)


def _written(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value:_}"


def _share(recall: tuple[float, float] | None) -> str:
    return "an unknown share" if recall is None else f"{recall[0]:.1%} +- {recall[1]:.1%}"
