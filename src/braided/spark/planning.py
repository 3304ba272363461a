"""What all joins do on the driver: find each stream's lateness, mark times, open the control directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.types import DataType, StringType, StructField, StructType

from braided.errors import BraidedError
from braided.joins.arrivals import OutputColumn
from braided.routing.control import ControlDir
from braided.routing.start import first_table
from braided.spark.dataflow import Routing
from braided.spark.watermark import BEHIND, DELAY, WATERMARK, lengthen_watermark, metadata_of
from braided.time.clocks import Span, Window
from braided.time.hand_on import HandOn
from braided.time.lateness import Lateness
from braided.time.resolve import learned_above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("braided")


class TimeNames(Protocol):
    """The time column of each input."""

    @property
    def times(self) -> tuple[str, ...]:
        """The columns."""


def stream_lateness(
    frame: DataFrame, names: TimeNames, side: int, given: tuple[int | Lateness | None, ...]
) -> int | Lateness:
    """Return a stream's lateness: as given, else of its watermark, else learned. What is learned hands its K on.

    A result of another braided operator brings the bound of its delay, as far as that is known beforehand.
    """
    metadata = metadata_of(frame, names.times[side])
    chosen, behind = given[side], int(metadata.get(DELAY, 0))
    if isinstance(chosen, int):
        return behind + chosen
    if chosen is None and DELAY not in metadata and WATERMARK in metadata:
        return int(metadata[WATERMARK]) * 1000
    return learned_above(Lateness() if chosen is None else chosen, behind)


def mark_time(frame: DataFrame, column: str, window: Window | Span, side: int) -> tuple[DataFrame, dict[str, int]]:
    """Return the input with its watermark long enough for the results, and the marks of its result column."""
    metadata = metadata_of(frame, column)
    # A source row is at most K behind its clock. A result of another join brings its distance from its inputs'
    # clocks; where it was given a watermark of its own, its K, the distance from its own largest time, counts.
    behind = max(int(metadata.get(BEHIND, 0)), window.lateness[side]) + window.watermark_reach(side)
    marks = {DELAY: window.result_delay(side), BEHIND: behind}
    if WATERMARK in metadata:
        frame, marks[WATERMARK] = lengthen_watermark(frame, column, behind)
    return frame, marks


def learned_delay(window: Window | Span, rules: Sequence[int | Lateness]) -> HandOn | None:
    """Return what results hand on; None where every lateness is fixed, so that the plan says it all."""
    return HandOn(window) if any(not isinstance(rule, int) for rule in rules) else None


def make_routing(workers: int, partition: str, control: str | None, redact: bool, *, keyed: bool) -> Routing:
    """Return how router tasks find their table; open the control directory, with its first table if it has none."""
    if control is None:
        if partition == "auto" and keyed:
            _log.info("no control=: the routing is fixed, so hot keys and hot workers stay where they are")
        return Routing(first_table(partition, workers, keyed=keyed, version=0))
    if not isinstance(control, (str, os.PathLike)) or not str(control):
        raise BraidedError(f"control={control!r}: write a directory or an fsspec URL that all executors can reach")
    first = first_table(partition, workers, keyed=keyed, version=1)
    location = str(control)
    directory = ControlDir(location if "://" in location else os.path.abspath(location))
    directory.check()
    if not directory.versions():
        directory.publish(first)
    newest = directory.newest()
    if newest.workers != workers:
        raise BraidedError(
            f"control={location!r}: its tables are for {newest.workers} workers, this session has {workers}; set "
            f"spark.sql.shuffle.partitions={newest.workers} or give another directory"
        )
    if newest.scheme != first.scheme:
        raise BraidedError(
            f"partition={partition!r}: control={location!r} was made for {newest.scheme!r}; give another directory"
        )
    return Routing(newest, directory, redact)


def is_collated(kind: DataType) -> bool:
    return isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()


def result_schema(
    columns: tuple[OutputColumn, ...],
    names: TimeNames,
    frames: Sequence[DataFrame],
    marks: list[dict[str, int]],
) -> StructType:
    """Return the Spark schema of the result, each column with the metadata it had and its time marks."""
    fields = []
    for column in columns:
        field = frames[column.side].schema[column.source]
        metadata = {k: v for k, v in (field.metadata or {}).items() if k not in (WATERMARK, DELAY, BEHIND)}
        if column.source == names.times[column.side]:
            metadata |= marks[column.side]
        fields.append(StructField(column.name, field.dataType, field.nullable, metadata))
    return StructType(fields)
