"""Reads the state of a running or stopped query from its checkpoint, by Spark's state readers.

Only the bookkeeping in Spark's state store lists the live files, so it is read by the `state-metadata` and
`statestore` sources, as of the last committed batch. Nothing is written to the checkpoint.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from braided.errors import OptionError, StateError
from braided.inspection.operator_state import Files, OperatorState, WorkerState
from braided.inspection.query_state import QueryState
from braided.runtime.blocks import RESTORE
from braided.runtime.bookkeeping import read_bookkeeping
from braided.runtime.contract import Json
from braided.runtime.file_blocks import map_block
from braided.runtime.store import UnusableBlockError, digest_of
from braided.spark.checkpoint_folder import is_on_a_path
from braided.spark.tasks import IN_FILES, IN_OBJECTS, IN_SPARK
from braided.storage.files import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_state(checkpoint: str | os.PathLike[str], spark: SparkSession | None, *, redact: bool) -> QueryState:
    """Return the stored state of a query's operators."""
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import SparkSession

    place = os.fspath(checkpoint)
    session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    check_place(place)
    try:
        batch, partitions, numbers = _find_operators(session, place)
        operators = [_read_operator(session, place, batch, number, redact) for number in numbers]
    except (AnalysisException, PySparkException) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise StateError(f"{place}: Spark cannot read the state of this checkpoint: {reason}") from error
    return QueryState(place, batch, operators, partitions)


def check_place(place: str) -> None:
    if not is_on_a_path(place) and "://" in place:
        return
    path = Path(local_path(place))
    for part in ("offsets", "commits", "state"):
        if not (path / part).is_dir():
            raise OptionError(
                f"checkpoint={place!r}: expected the checkpoint of a query that has committed a batch; it has no "
                f"folder {part!r}"
            )
    if not any(entry.name.isdigit() for entry in (path / "commits").iterdir()):
        raise OptionError(f"checkpoint={place!r}: this query has not committed a batch yet; run it first")


def _find_operators(session: SparkSession, place: str) -> tuple[int, int, list[int]]:
    """Return the last committed batch, Spark's partitions, and the numbers of operators with our state variables."""
    batch, partitions, ours = -1, 0, []
    for row in session.read.format("state-metadata").load(place).collect():
        batch, partitions = max(batch, int(row["maxBatchId"])), int(row["numPartitions"])
        properties = json.loads(row["operatorProperties"] or "{}")
        names = {variable.get("stateName") for variable in properties.get("stateVariables", ())}
        if {"book", "blocks"} <= names:
            ours.append(int(row["operatorId"]))
    return batch, partitions, sorted(ours)


def _read_operator(session: SparkSession, place: str, batch: int, number: int, redact: bool) -> OperatorState:
    values = _variable(session, place, batch, number, "book").selectExpr("value.content").collect()
    records = _newest([read_bookkeeping(bytes(row[0])) for row in values])
    if [bookkeeping["worker"] for bookkeeping in records] != list(range(records[0]["workers"] if records else 1)):
        raise StateError(f"{place}: operator {number} lacks the state of some workers; {RESTORE}")
    home = records[0].get("home", records[0]["options"]["operator"])
    workers = []
    for bookkeeping in records:
        if bookkeeping.get("store", IN_SPARK) == IN_FILES:
            folder = _Folder(
                Path(local_path(place)) / "braided" / "state" / str(bookkeeping["home"]) / str(bookkeeping["worker"]),
                bookkeeping,
            )
            workers.append(WorkerState(bookkeeping, folder.read, folder.count()))
        elif bookkeeping.get("store") == IN_OBJECTS:
            raise StateError(
                f"{place}: operator {number} keeps its state in objects, which cannot be read here yet; "
                "use `braided.report` while the query runs"
            )
        else:
            blocks = _variable(session, place, batch, number, "blocks")
            workers.append(WorkerState(bookkeeping, _SparkBlocks(blocks, bookkeeping).read))
    return OperatorState(number, str(home), workers, redact)


def _newest(records: list[Json]) -> list[Json]:
    """Return the records since the last change of the number of workers, by worker; Spark keeps older ones too."""
    newest = max((int(bookkeeping.get("generation", -1)) for bookkeeping in records), default=-1)
    current = [bookkeeping for bookkeeping in records if int(bookkeeping.get("generation", -1)) == newest]
    return sorted(current, key=lambda bookkeeping: int(bookkeeping["worker"]))


def _variable(session: SparkSession, place: str, batch: int, operator: int, name: str) -> DataFrame:
    options = {"operatorId": str(operator), "batchId": str(batch), "stateVarName": name}
    return session.read.format("statestore").options(**options).load(place)


def _names(bookkeeping: Json) -> dict[int, str]:
    return {int(number): str(name) for number, name in bookkeeping["blocks"].items() if number != "next"}


@dataclass(frozen=True)
class _Folder:
    """The files of one worker, read-only."""

    path: Path
    bookkeeping: Json

    def read(self, number: int) -> pa.Buffer:
        try:
            return map_block(self.path / _names(self.bookkeeping)[number])[0][0]
        except UnusableBlockError as error:
            raise StateError(
                f"the state of worker {self.bookkeeping['worker']}: {error}; read it again if the query runs, "
                f"else {RESTORE}"
            ) from error

    def count(self) -> dict[str, Files]:
        """Return how many files there are: live, dropped, and those that this bookkeeping does not name."""
        live = set(_names(self.bookkeeping).values())
        dropped = {str(name) for name, _ in self.bookkeeping["dropped"]}
        counts = {"live": [0, 0], "dropped": [0, 0], "unnamed": [0, 0]}
        for name, size in self._sizes():
            counted = counts["live" if name in live else "dropped" if name in dropped else "unnamed"]
            counted[0] += 1
            counted[1] += size
        return {kind: Files(*counted) for kind, counted in counts.items()}

    def _sizes(self) -> Iterator[tuple[str, int]]:
        if self.path.is_dir():
            for entry in os.scandir(self.path):
                try:
                    yield entry.name, entry.stat().st_size
                except FileNotFoundError:  # the query is running
                    continue


@dataclass(frozen=True)
class _SparkBlocks:
    """The blocks of one worker in Spark's state store, fetched one at a time."""

    blocks: DataFrame
    bookkeeping: Json

    def read(self, number: int) -> pa.Buffer:
        chosen = self.blocks.where(f"user_map_key.id = {number}").selectExpr("partition_id", "user_map_value.content")
        name = _names(self.bookkeeping)[number].partition("-")[0]
        for row in chosen.toLocalIterator():
            if digest_of(bytes(row["content"])) == name:
                return pa.py_buffer(bytes(row["content"]))
        raise StateError(
            f"the state of worker {self.bookkeeping['worker']}: block {number} is missing or damaged; {RESTORE}"
        )
