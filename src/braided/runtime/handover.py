"""The handover of state to other workers when the number of workers changes between two runs of a query.

`braided rescale` stores the bookkeeping of all workers after the last batch. In the next batch each new worker finds no
bookkeeping, or one from before the change, and takes over its share of the stored rows. That batch may run again, so
the old files are kept as long as Spark may go back to it: they count as dropped in that batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from braided.errors import StateError
from braided.routing.table import RoutingTable
from braided.runtime.blocks import Blocks
from braided.runtime.contract import Json
from braided.runtime.file_blocks import FolderReader, block_files


class Rescaling(Protocol):
    """The last change of a query's number of workers, for the task of a worker."""

    @property
    def generation(self) -> int:
        """The number of the change; it grows with every change."""

    @property
    def batch(self) -> int:
        """The number of the current batch."""

    def read(self, options: Json) -> Handover:
        """Return the handover of the operator with these options."""


@dataclass(frozen=True)
class Handover:
    """The bookkeeping of an operator's workers before a change of their number, and the routing before and after.

    generation : the number of the change; a worker's bookkeeping has the number of the last change that it has done.
    first : a function that returns the first table for a number of workers.
    table : the last routing table of the old workers, if it was not the first one.
    root : the folder with the state of all operators.
    """

    generation: int
    workers: int
    records: Sequence[Json]
    root: Path
    first: Callable[[int], RoutingTable]
    table: RoutingTable | None = None

    @cached_property
    def old(self) -> RoutingTable:
        """The last table under which rows were stored."""
        table = self.first(len(self.records)) if self.table is None else self.table
        known = {tuple(bookkeeping["table"]) for bookkeeping in self.records if bookkeeping["table"] is not None}
        if known - {(table.version, table.digest)}:
            raise StateError(
                "the state was stored under another routing than the one before `braided rescale`; restore the "
                "checkpoint from a copy, and the old value of partition="
            )
        return table

    @property
    def new(self) -> RoutingTable:
        """The table of the first batch after the change."""
        return self.first(self.workers)

    def states(self) -> Iterator[tuple[Json | None, Blocks]]:
        """Yield the state of each old worker, and its blocks."""
        for bookkeeping in self.records:
            folder = self.root / str(bookkeeping["home"]) / str(bookkeeping["worker"])
            yield (
                bookkeeping["state"],
                Blocks(FolderReader(folder), int(bookkeeping["worker"]), dict(bookkeeping["blocks"])),
            )

    def bookkeeping(self, worker: int, batch: int) -> Json:
        """Return the first bookkeeping of a new worker, without its state; the first worker gets the totals."""
        old = self.records[0]
        counts: dict[str, int] = {}
        for bookkeeping in self.records if worker == 0 else ():
            counts = {
                name: counts.get(name, 0) + bookkeeping["counts"].get(name, 0)
                for name in {*counts, *bookkeeping["counts"]}
            }
        same = ("options", "batches", "streams", "home", "store", "lateness", "control")
        unchanged = {name: old[name] for name in same if name in old}
        return {
            **unchanged,
            **({"inputs": old["inputs"]} if worker == 0 and "inputs" in old else {}),
            "worker": worker,
            "workers": self.workers,
            "generation": self.generation,
            "counts": counts,
            "table": None,
            "blocks": {},
            "dropped": self._dropped(worker, batch),
            "state": None,
        }

    def _dropped(self, worker: int, batch: int) -> list[list[str | int]]:
        """Return the old files that this worker deletes when no version needs them any more.

        These are in its own folder, and in the folders of some workers that no longer exist. All are from earlier
        batches, because another attempt of this batch may be writing.
        """
        own = self.records[worker].get("dropped", []) if worker < len(self.records) else []
        dropped = {str(name): int(since) for name, since in own}
        home = self.root / str(self.records[0]["home"])
        for name, born in block_files(home / str(worker)):
            if born < batch:
                dropped.setdefault(name, batch)
        for number in range(worker + self.workers, len(self.records), self.workers):
            for name, since in self.records[number].get("dropped", []):
                if str(name).startswith("../"):
                    dropped[str(name)] = int(since)
            for name, born in block_files(home / str(number)):
                if born < batch:
                    dropped[f"../{number}/{name}"] = batch
        return [[name, since] for name, since in sorted(dropped.items())]
