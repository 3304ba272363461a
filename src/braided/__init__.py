"""Braided: exact stream joins for PySpark that spread any load over all workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braided.api import explain, join, join_group, merge, multijoin, order, report, scale
from braided.errors import BraidedError
from braided.version import __version__

if TYPE_CHECKING:
    from braided import local
    from braided.buffers.policies.gdj import GDJ
    from braided.specs.group_options import Join
    from braided.time.lateness import Lateness

__all__ = [
    "GDJ",
    "BraidedError",
    "Join",
    "Lateness",
    "__version__",
    "explain",
    "join",
    "join_group",
    "local",
    "merge",
    "multijoin",
    "order",
    "report",
    "scale",
]


def __getattr__(name: str) -> Any:
    if name == "local":
        import importlib

        return importlib.import_module("braided.local")
    if name == "GDJ":
        from braided.buffers.policies.gdj import GDJ

        return GDJ
    if name == "Lateness":
        from braided.time.lateness import Lateness

        return Lateness
    if name == "Join":
        from braided.specs.group_options import Join

        return Join
    raise AttributeError(f"module 'braided' has no attribute {name!r}")
