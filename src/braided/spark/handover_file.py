"""The file in a checkpoint with the state of the workers of all operators before their number changed.

It is `<checkpoint>/braided/rescale/<batch>`: the batch without rows in which Spark repartitioned its own state.
The content is a line with a digest and JSON, as in bookkeeping.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from braided.errors import StateError
from braided.routing.table import RoutingTable
from braided.runtime.bookkeeping import lasting, read_bookkeeping, write_bookkeeping
from braided.runtime.contract import Json
from braided.runtime.handover import Handover
from braided.runtime.worker import fingerprint

FOLDER = "rescale"


@dataclass(frozen=True)
class OperatorBefore:
    """The bookkeeping of an operator's workers, and their last routing table if it is in the checkpoint."""

    records: Sequence[Json]
    table: RoutingTable | None


def identity(options: Json) -> str:
    """Return the identity of an operator within its query, which does not depend on names."""
    return fingerprint(lasting(options))


def write_handover(path: Path, workers: int, operators: Sequence[OperatorBefore]) -> None:
    """Write the file atomically."""
    content = {
        "workers": workers,
        "operators": {
            identity(before.records[0]["options"]): {
                "books": list(before.records),
                "table": None if before.table is None else before.table.to_bytes().decode(),
            }
            for before in operators
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_bytes(write_bookkeeping(content))
    temporary.replace(path)


@lru_cache(maxsize=4)
def read_handover(path: Path) -> Json:
    """Return what `write_handover` wrote, after checking its digest."""
    try:
        return read_bookkeeping(path.read_bytes())
    except FileNotFoundError as error:
        raise StateError(f"the file {path} is missing; restore the checkpoint from a copy") from error


@dataclass(frozen=True)
class WorkersBefore:
    """The last change of the number of workers, for a task in one batch. See `Rescaling`."""

    folder: Path
    generation: int
    batch: int
    first: Callable[[int], RoutingTable]

    def read(self, options: Json) -> Handover:
        """See `Rescaling`."""
        path = self.folder / FOLDER / str(self.generation)
        content = read_handover(path)
        before = content["operators"].get(identity(options))
        if before is None:
            raise StateError(
                f"{path} has no operator with these options: the query has changed since `braided rescale`; start it "
                "with the options that it had"
            )
        table = None if before["table"] is None else RoutingTable.from_bytes(before["table"].encode())
        return Handover(
            self.generation, int(content["workers"]), before["books"], self.folder / "state", self.first, table
        )
