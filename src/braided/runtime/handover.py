"""What the workers of an operator leave to other workers, when their number changes between two runs of a query.

`braided rescale` writes down the bookkeeping of all workers as the last batch left them. In the first batch after it
each new worker finds no bookkeeping of its own, or one from before, and takes over its share of what they name. That
batch may run again, so what they name stays as long as Spark may go back to it: it counts as dropped in that batch.
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
    """The last change of the number of workers of a query, as a worker's task sees it."""

    @property
    def generation(self) -> int:
        """Grows with every change."""

    @property
    def batch(self) -> int:
        """The number of the batch that runs."""

    def read(self, options: Json) -> Handover:
        """Return what the operator with these options left."""


@dataclass(frozen=True)
class Handover:
    """The bookkeeping of an operator's workers before a change of their number, and the routing before and after.

    generation : grows with every change; the bookkeeping of a worker has that of the last one it has seen.
    first : the first table for a number of workers.
    table : the last routing table of the old workers, where it was not the first.
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
        """The table under which rows were stored last."""
        table = self.first(len(self.records)) if self.table is None else self.table
        known = {tuple(bookkeeping["table"]) for bookkeeping in self.records if bookkeeping["table"] is not None}
        if known - {(table.version, table.digest)}:
            raise StateError(
                "the routing before `braided rescale` is not the one that the state was stored under; restore the "
                "checkpoint from a copy, and partition= as it was"
            )
        return table

    @property
    def new(self) -> RoutingTable:
        """The table of the first batch after the change."""
        return self.first(self.workers)

    def states(self) -> Iterator[tuple[Json | None, Blocks]]:
        """Yield what each old worker remembers, and its blocks."""
        for bookkeeping in self.records:
            folder = self.root / str(bookkeeping["home"]) / str(bookkeeping["worker"])
            yield (
                bookkeeping["state"],
                Blocks(FolderReader(folder), int(bookkeeping["worker"]), dict(bookkeeping["blocks"])),
            )

    def bookkeeping(self, worker: int, batch: int) -> Json:
        """Return what a new worker begins with, but for its state: totals are the first worker's."""
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
        """Return the files from before that this worker deletes once nobody needs them.

        Those in its own folder, and in the folders of some workers that there are no more. All are from earlier
        batches: another attempt at this one may be writing.
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
