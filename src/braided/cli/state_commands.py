"""`braided state` and `braided rescale`: show the state of a query, and change its number of workers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from braided.cli.exits import CANNOT_START, first_line, refuse
from braided.cli.local_spark import find_java_problem, local_session, quiet_output
from braided.errors import BraidedError
from braided.inspection.query_state import QueryState, text_table
from braided.runtime.contract import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def show_state(
    checkpoint: str, *, operator: str | None, rows: int | None, keys: int, as_json: bool, redact: bool
) -> int:
    """Print the summary of a query's state, and some of its rows."""

    def show(session: SparkSession) -> str:
        from braided.spark.state_reader import read_state

        state = read_state(checkpoint, session, redact=redact)
        if operator is not None:
            state = replace(state, operators=[state[operator]])
        return _as_json(state, rows, keys) if as_json else _as_text(state, rows, keys)

    return _with_spark("state", checkpoint, show, as_json=as_json)


def rescale_checkpoint(checkpoint: str, workers: int) -> int:
    """Change the number of workers of a stopped query."""

    def change(session: SparkSession) -> str:
        from braided.spark.rescaling import rescale

        return rescale(session, checkpoint, workers)

    return _with_spark("rescale", checkpoint, change)


def _with_spark(command: str, checkpoint: str, answer: Callable[[SparkSession], str], *, as_json: bool = False) -> int:
    """Print the result of a function of a local session."""
    try:
        from braided.spark.state_reader import check_place

        check_place(checkpoint)
    except BraidedError as error:
        return refuse(command, first_line(error), CANNOT_START, as_json=as_json)
    problem = find_java_problem()
    if problem is not None:
        return refuse(command, problem, CANNOT_START, as_json=as_json)
    with tempfile.TemporaryDirectory(prefix="braided-state-") as folder:
        try:
            with quiet_output(Path(folder) / "log") as screen, local_session(Path(folder), 1) as session:
                print(answer(session), file=screen)
        except BraidedError as error:
            return refuse(command, first_line(error), CANNOT_START, as_json=as_json)
    return 0


def _as_json(state: QueryState, rows: int | None, keys: int) -> str:
    plain: Json = state.to_dict(keys)
    for described, operator in zip(plain["operators"], state.operators, strict=True):
        if rows is not None:
            described["rows"] = {name: operator.rows(name, rows).to_pylist() for name in operator.inputs}
    return json.dumps(plain, indent=1, default=str)


def _as_text(state: QueryState, rows: int | None, keys: int) -> str:
    lines = [state.text(keys)]
    for operator in state.operators if rows is not None else ():
        for name in operator.inputs:
            lines += [f"rows of {name} in {operator.name}", *text_table(operator.rows(name, rows))]
    return "\n".join(lines)
