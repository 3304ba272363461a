"""The streams of the demo, their sizes, and the files from which Spark reads them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from braided.workloads.calls import ORIGIN, call_records, suspicious_numbers

WORKERS = 4
WITHIN, LATENESS = "10 seconds", "5 seconds"
HOT_SHARE = 0.5
DISORDER = "20 seconds"
LEG_WITHIN, LEG_LATENESS = "2 seconds", "2 seconds"
LEG_WHERE = "abs(l.duration - r.duration) <= 2 AND l.cell <> r.cell"
_SECOND = 1_000_000


@dataclass(frozen=True)
class Streams(ABC):
    """Two streams: the number of rows of both together, over some seconds of event time, cut into batches."""

    rows: int
    seconds: int

    batch_seconds: ClassVar[int] = 4
    names: ClassVar[tuple[str, str]]

    @property
    def batches(self) -> int:
        return -(-self.seconds // self.batch_seconds)

    @abstractmethod
    def generate(self) -> dict[str, pa.Table]:
        """Return the streams by name, each in order of its column ``arrived``."""

    def write(self, folder: Path) -> None:
        """Generate the streams and write each into a folder of its name."""
        for name, table in self.generate().items():
            self._write_stream(folder / name, table)

    def _write_stream(self, folder: Path, table: pa.Table) -> None:
        """Write a stream as one Parquet file per batch, cut by arrival.

        Spark's file source reads files in order of modification time, so this is set to follow the number.
        """
        folder.mkdir(parents=True)
        edges = ORIGIN + np.arange(self.batches + 1) * self.batch_seconds * _SECOND
        cuts = np.searchsorted(table["arrived"].cast(pa.int64()).to_numpy(), edges)
        for number in range(self.batches):
            start, end = int(cuts[number]), int(cuts[number + 1])
            path = folder / f"{number:05d}.parquet"
            pq.write_table(table.slice(start, end - start).drop_columns("arrived"), path)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@dataclass(frozen=True)
class DemoStreams(Streams):
    """Calls and suspicious numbers; one phone may become hot, and rows are late by up to `disorder`."""

    names = ("call records", "suspicious numbers")

    hot_share: float = HOT_SHARE
    disorder: str = LATENESS

    @property
    def hot_from(self) -> int:
        """The second from which one phone is hot: after a quarter of the time, at the border of a batch.

        In the remaining time the routing adapts, and the rows under the old routing leave the window.
        """
        return self.batches // 4 * self.batch_seconds

    def generate(self) -> dict[str, pa.Table]:
        """Four calls per sighting; the number of phones gives two results per call in streams of two minutes."""
        numbers = max(self.rows // 5, 1)
        calls = self.rows - numbers
        phones = max(self.rows // 60, 2)
        return {
            "calls": call_records(
                rows=calls,
                rate=calls / self.seconds,
                phones=phones,
                disorder=self.disorder,
                hot_share=self.hot_share,
                hot_from=f"{self.hot_from} seconds",
            ),
            "numbers": suspicious_numbers(
                rows=numbers, rate=numbers / self.seconds, phones=phones, disorder=self.disorder
            ),
        }


@dataclass(frozen=True)
class Legs(Streams):
    """Calls that enter a network and calls that leave it: a relayed call is one of each, equally long."""

    batch_seconds = 10
    names = ("incoming calls", "outgoing calls")

    def generate(self) -> dict[str, pa.Table]:
        """The same number of both."""
        rows = self.rows // 2
        return {
            name: call_records(
                rows=rows, rate=rows / self.seconds, phones=max(rows, 2), disorder=LEG_LATENESS, seed=seed
            )
            for name, seed in (("incoming", 2), ("outgoing", 3))
        }
