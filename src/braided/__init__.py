"""Braided: exact stream joins for PySpark that spread any load over all workers."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from braided.api import (
    dashboard,
    deploy,
    detect,
    explain,
    files,
    forget_control,
    join,
    join_asof,
    join_group,
    match,
    merge,
    metrics,
    multijoin,
    order,
    register,
    report,
    row_windows,
    scale,
    sql,
    state,
    stream,
    table,
    topic,
    write_files,
    write_table,
)
from braided.errors import (
    BraidedError,
    ControlError,
    DetectorError,
    HistoryError,
    JobError,
    OptionError,
    PeerError,
    StateError,
    TableError,
    TopicError,
)
from braided.operators.bounded.group_spec import Join
from braided.operators.detect.detector import Detector, KeyedDetector
from braided.operators.detect.spec import Pattern
from braided.spark.conf import FAST_START, SPARK_CONF
from braided.time.lateness import Lateness
from braided.version import __version__

if TYPE_CHECKING:
    from braided import kafka, local, testing
    from braided.eviction.policies.age import AGE
    from braided.eviction.policies.auto import AUTO
    from braided.eviction.policies.fifo import FIFO
    from braided.eviction.policies.gdj import GDJ
    from braided.eviction.policies.prob import PROB
    from braided.eviction.policies.random import RAND
    from braided.eviction.policies.recent import RECENT
    from braided.eviction.policies.tail import TAIL
    from braided.fleet.client import Fleet

__all__ = [
    "AGE",
    "AUTO",
    "FAST_START",
    "FIFO",
    "GDJ",
    "PROB",
    "RAND",
    "RECENT",
    "SPARK_CONF",
    "TAIL",
    "BraidedError",
    "ControlError",
    "Detector",
    "DetectorError",
    "Fleet",
    "HistoryError",
    "JobError",
    "Join",
    "KeyedDetector",
    "Lateness",
    "OptionError",
    "Pattern",
    "PeerError",
    "StateError",
    "TableError",
    "TopicError",
    "__version__",
    "dashboard",
    "deploy",
    "detect",
    "explain",
    "files",
    "forget_control",
    "join",
    "join_asof",
    "join_group",
    "kafka",
    "local",
    "match",
    "merge",
    "metrics",
    "multijoin",
    "order",
    "register",
    "report",
    "row_windows",
    "scale",
    "sql",
    "state",
    "stream",
    "table",
    "testing",
    "topic",
    "write_files",
    "write_table",
]

# These are loaded at their first use, because they need numpy or more.
_LATER = {
    "AGE": ("braided.eviction.policies.age", "AGE"),
    "AUTO": ("braided.eviction.policies.auto", "AUTO"),
    "Fleet": ("braided.fleet.client", "Fleet"),
    "FIFO": ("braided.eviction.policies.fifo", "FIFO"),
    "GDJ": ("braided.eviction.policies.gdj", "GDJ"),
    "PROB": ("braided.eviction.policies.prob", "PROB"),
    "RAND": ("braided.eviction.policies.random", "RAND"),
    "RECENT": ("braided.eviction.policies.recent", "RECENT"),
    "TAIL": ("braided.eviction.policies.tail", "TAIL"),
}


def __getattr__(name: str) -> Any:
    if name in ("kafka", "local", "testing"):
        return importlib.import_module(f"braided.{name}")
    if name in _LATER:
        module, attribute = _LATER[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'braided' has no attribute {name!r}")
