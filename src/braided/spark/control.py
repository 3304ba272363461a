"""The control directory of an operator: in the checkpoint, a given one, or none, with the reason."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from braided.errors import OptionError
from braided.operators.join.spec import JoinSpec
from braided.operators.spec import Spec
from braided.routing.control_directory import ControlDir
from braided.routing.root import ControlRoot, user_root
from braided.spark.checkpoint_folder import folder_of
from braided.spark.sessions import is_connect
from braided.typing import Control

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("braided")
CONTROL = "spark.braided.control"
_REACHED = "that the driver and all executors reach"


@dataclass(frozen=True)
class InCheckpoint:
    """Routing tables are in the checkpoint of the query, wherever that is when it starts."""

    def directory(self, query: str, operator: str) -> ControlDir | None:
        """Return the control directory of an operator of a query; None if Python cannot reach the checkpoint."""
        folder = folder_of(query)
        return None if folder is None else ControlDir(folder.control(operator))


@dataclass(frozen=True)
class Fixed:
    """A fixed routing: the reason, and the warning for a user who may not want it."""

    why: str
    warning: str = ""


def find_control(
    session: SparkSession, spec: Spec, control: Control, *, streaming: bool
) -> ControlDir | ControlRoot | InCheckpoint | Fixed:
    """Return where an operator's routing tables are, or why its routing is fixed. Its directory is not created yet.

    By default an operator adapts wherever its rows are the same for every routing, by tables in the query's checkpoint,
    or below what `spark.braided.control` names.
    """
    if control is False:
        return Fixed("control=False")
    if control is not None and control is not True:
        if not isinstance(control, str | os.PathLike) or not str(control):
            raise OptionError(f"control={control!r}: write a directory or an fsspec URL {_REACHED}, True or False")
        return open_control(control)
    if not streaming:
        return Fixed("the inputs are not streams")
    if control is None:
        why = _why_fixed(spec)
        if why is not None:
            return Fixed(why)
    setting = str(session.conf.get(CONTROL, "") or "")
    if setting.lower() == "false" and control is None:
        return Fixed(f"{CONTROL}=false")
    if setting.lower() not in ("", "false", "true"):
        return ControlRoot(_absolute(setting))
    if not is_connect(session):
        return InCheckpoint()
    if control is True:
        raise OptionError(f"control=True: set {CONTROL} to a path or an fsspec URL {_REACHED}")
    todo = f"set {CONTROL} to a path or an fsspec URL {_REACHED}, and it adapts"
    return Fixed(todo, f"the routing is fixed, so hot keys and hot workers stay where they are; {todo}")


def open_control(location: str | os.PathLike[str]) -> ControlDir:
    """Return the control directory at a path or URL."""
    return ControlDir(_absolute(location))


def forget(query: str | None, root: str | os.PathLike[str] | None) -> list[str]:
    """See `braided.forget_control`."""
    if query is not None and not isinstance(query, str):
        raise OptionError(f"query={query!r}: write the id of a query, a string")
    if root is not None and os.path.isfile(root):
        raise OptionError(f"root={str(root)!r}: not a directory; give the one that {CONTROL} names")
    control_root = user_root() if root is None else ControlRoot(_absolute(root))
    if control_root is None:
        raise OptionError(f"root=None: the user has no home directory; give the directory that {CONTROL} names")
    if query is None:
        return control_root.forget_deleted()
    if query not in control_root.queries():
        return []
    control_root.forget(query)
    return [query]


def warn_if_fixed(fixed: Fixed) -> None:
    """Warn the user why a routing cannot adapt, if this is not their own choice; once per process."""
    if fixed.warning:
        _warn(fixed.warning)


@cache
def _warn(message: str) -> None:
    _log.warning("%s", message)


def _absolute(location: str | os.PathLike[str]) -> str:
    text = str(location)
    return text if "://" in text else os.path.abspath(text)


def _why_fixed(spec: Spec) -> str | None:
    """Return why an operator does not adapt by default; None if it does."""
    if getattr(spec, "memory", None) is not None:
        return "with a budget the routing decides which rows are kept; control=True lets it adapt"
    if isinstance(spec, JoinSpec) and spec.join_kind == "full":
        return f"how={spec.how!r}: rows of both streams are returned without a match, so keys never move"
    if isinstance(spec, JoinSpec) and spec.rows is not None:
        return "rows=: the last rows of a key must be on one worker"
    if getattr(spec, "partition", "hash") == "hash":
        return "partition='hash'"
    return None
