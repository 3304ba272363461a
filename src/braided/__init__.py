"""Braided: exact stream joins for PySpark that spread any load over all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# The package `braided.join` is loaded before the function of the same name takes its place here.
# Inside the project it is imported as `from braided.join.runs import Run`, which goes by the full name.
import braided.join  # noqa: F401  # isort: skip

from braided.api import explain, join, join_group, multijoin, report, scale
from braided.errors import BraidedError
from braided.version import __version__

if TYPE_CHECKING:
    from braided import local
    from braided.buffers.gdj import Gdj as GDJ
    from braided.join.group_options import Join

__all__ = [
    "GDJ",
    "BraidedError",
    "Join",
    "__version__",
    "explain",
    "join",
    "join_group",
    "local",
    "multijoin",
    "report",
    "scale",
]


def __getattr__(name: str) -> Any:
    if name == "local":
        import importlib

        return importlib.import_module("braided.local")
    if name == "GDJ":
        from braided.buffers.gdj import Gdj

        return Gdj
    if name == "Join":
        from braided.join.group_options import Join

        return Join
    raise AttributeError(f"module 'braided' has no attribute {name!r}")
