"""Changes the number of workers of a stopped query: `braided rescale`.

```
 1. Spark repartitions its own state        its tool commits a batch B that has no rows
 2. write braided/rescale/<B>               the bookkeeping of all workers, and the last routing tables
 3. put these tables aside                  they are for the old workers
```

If this is interrupted after 1 or 2, the query refuses to start until the command has run again to its end. Rows move in
the first batch after it, in which each worker takes over its share (`braided.runtime.handover`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from braided.errors import OptionError, StateError
from braided.inspection.operator_state import OperatorState
from braided.routing.control_directory import ControlDir
from braided.spark.catalyst import can_divide_state, divide_state
from braided.spark.checkpoint_folder import is_on_a_path, newest_rescaling
from braided.spark.handover_file import FOLDER, OperatorBefore, identity, read_handover, write_handover
from braided.spark.state_reader import check_place, read_state
from braided.spark.tasks import IN_FILES
from braided.storage.files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WHOLE = "start with a new checkpoint and the number of workers that you want, from the offsets where this one ends"


def rescale(session: SparkSession, checkpoint: str, workers: int) -> str:
    """Redistribute the state of a query to another number of workers; return a sentence about the result.

    Precondition: the query is not running.
    """
    check_place(checkpoint)
    if not is_on_a_path(checkpoint):
        raise OptionError(f"checkpoint={checkpoint!r}: only checkpoints on local and mounted paths can be rescaled")
    folder = Path(local_path(checkpoint)) / "braided"
    state = read_state(checkpoint, session, redact=False)
    if not state.operators:
        raise OptionError(f"checkpoint={checkpoint!r}: this query has no operator of braided")
    done = (
        f"{checkpoint}: {workers} workers from the next start on; its first batch redistributes the stored rows to them"
    )
    if newest_rescaling(folder) == state.batch:
        _put_tables_aside(folder, state.batch)
        chosen = read_handover(folder / FOLDER / str(state.batch))["workers"]
        if chosen != workers:
            raise StateError(
                f"{checkpoint}: was changed to {chosen} workers and has not run since; start it once before the next "
                "change"
            )
        return done
    before = [_workers_before(folder, operator) for operator in state.operators]
    if len({identity(old.records[0]["options"]) for old in before}) < len(before):
        raise StateError(f"{checkpoint}: two operators have the same options and cannot be distinguished; {_WHOLE}")
    if {len(old.records) for old in before} == {workers}:
        raise OptionError(f"--workers {workers}: the query already has {workers}; write another number")
    if state.partitions != workers:
        if not can_divide_state(session):
            raise StateError(
                "Spark before 4.2 has no tool that changes the partitions of a checkpoint; use a later one, or "
                + _WHOLE
            )
        divide_state(session, checkpoint, workers)
    batch = read_state(checkpoint, session, redact=False).batch
    write_handover(folder / FOLDER / str(batch), workers, before)
    _put_tables_aside(folder, batch)
    return done


def _workers_before(folder: Path, operator: OperatorState) -> OperatorBefore:
    """Return the state of an operator's old workers; refuse an operator whose state cannot be redistributed."""
    records, options = [worker.bookkeeping for worker in operator.workers], operator.options
    special = [name for name in ("how", "shed", "partials") if options.get(name) is not None]
    if operator.kind != "join" or special:
        raise StateError(
            f"{operator.name}: only inner joins of two streams can be rescaled, this is a {operator.kind}"
            f"{f' with {special[0]}' if special else ''}; {_WHOLE}"
        )
    if any(bookkeeping.get("store") != IN_FILES for bookkeeping in records):
        raise StateError(f"{operator.name}: its rows are in Spark's state store, not in files; {_WHOLE}")
    if records[0].get("control") is None:
        return OperatorBefore(records, None)
    location = folder / "control" / Path(records[0]["control"][0]).name
    if not location.is_dir():
        raise StateError(
            f"{operator.name}: its routing tables are not in the checkpoint but at "
            f"{records[0]['control'][0]!r}; {_WHOLE}"
        )
    return OperatorBefore(records, ControlDir(str(location)).table(records[0]["table"][0]))


def _put_tables_aside(folder: Path, batch: int) -> None:
    workers = read_handover(folder / FOLDER / str(batch))["workers"]
    for path in sorted((folder / "control").glob("*")):
        directory = ControlDir(str(path))
        if directory.versions() and directory.newest().workers != workers:
            aside = folder / FOLDER / f"tables-{batch}"
            aside.mkdir(parents=True, exist_ok=True)
            path.replace(aside / path.name)
