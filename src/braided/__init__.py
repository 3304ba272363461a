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
    join_group,
    match,
    merge,
    multijoin,
    order,
    report,
    row_windows,
    scale,
    sql,
    stream,
    topic,
    write_files,
)
from braided.detection.detector import Detector, KeyedDetector
from braided.errors import (
    BraidedError,
    ControlError,
    DetectorError,
    HistoryError,
    JobError,
    OptionError,
    PeerError,
    StateError,
    TopicError,
)
from braided.spark.conf import FAST_START, SPARK_CONF
from braided.specs.detect import Pattern
from braided.specs.group import Join
from braided.time.lateness import Lateness
from braided.version import __version__

if TYPE_CHECKING:
    from braided import kafka, local, testing
    from braided.buffers.policies.age import AGE
    from braided.buffers.policies.auto import AUTO
    from braided.buffers.policies.fifo import FIFO
    from braided.buffers.policies.gdj import GDJ
    from braided.buffers.policies.prob import PROB
    from braided.buffers.policies.random import RAND
    from braided.buffers.policies.recent import RECENT
    from braided.peers.client import Fleet

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
    "TopicError",
    "__version__",
    "dashboard",
    "deploy",
    "detect",
    "explain",
    "files",
    "forget_control",
    "join",
    "join_group",
    "kafka",
    "local",
    "match",
    "merge",
    "multijoin",
    "order",
    "report",
    "row_windows",
    "scale",
    "sql",
    "stream",
    "testing",
    "topic",
    "write_files",
]

# Loaded when first asked for: they need numpy or more.
_LATER = {
    "AGE": ("braided.buffers.policies.age", "AGE"),
    "AUTO": ("braided.buffers.policies.auto", "AUTO"),
    "Fleet": ("braided.peers.client", "Fleet"),
    "FIFO": ("braided.buffers.policies.fifo", "FIFO"),
    "GDJ": ("braided.buffers.policies.gdj", "GDJ"),
    "PROB": ("braided.buffers.policies.prob", "PROB"),
    "RAND": ("braided.buffers.policies.random", "RAND"),
    "RECENT": ("braided.buffers.policies.recent", "RECENT"),
}


def __getattr__(name: str) -> Any:
    if name in ("kafka", "local", "testing"):
        return importlib.import_module(f"braided.{name}")
    if name in _LATER:
        module, attribute = _LATER[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'braided' has no attribute {name!r}")
