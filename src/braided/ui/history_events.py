"""The events of a history: plain JSON objects, which are checked when they are read from a file.

```
 started   a run of a query: its name and time
 graph     the compiled query as placed boxes
 table     a routing table: workers in use, owners of the buckets, grids
 batch     times, rows, and the report of every operator, with workers as columns
 decision  a decision of the routing after a batch, and its reason
 ended     the end of the run, with the first line of its error if it failed
 note      the demo's text about a run: its call, and facts by their labels; `right` if the result was checked
 fleet     peers and their loads, components and their hosts, recent events; replaces the previous one
```

All but ``fleet`` name their run in ``query``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from braided.errors import HistoryError
from braided.runtime.contract import Json
from braided.runtime.report import Report

_NUMBER = (int, float)
# The required fields of each event, with their type or types.
_FIELDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "started": {"query": str, "name": str, "time": _NUMBER},
    "graph": {"query": str, "boxes": list, "arrows": list},
    "table": {
        "query": str, "operator": str, "version": int, "scheme": str, "workers": int, "in_use": list, "owners": list,
        "grids": list,
    },
    "batch": {"query": str, "batch": int, "time": _NUMBER, "ms": dict, "sources": list, "operators": list},
    "decision": {"query": str, "operator": str, "batch": int, "action": str, "reason": str},
    "ended": {"query": str, "time": _NUMBER},
    "note": {"query": str, "title": str, "text": str, "code": str, "facts": dict, "right": bool},
    "fleet": {"peers": list, "components": list, "happened": list},
}  # fmt: skip
# The required fields of the objects in a list of an event.
_PARTS: Mapping[tuple[str, str], Mapping[str, type | tuple[type, ...]]] = {
    ("batch", "operators"): {
        "operator": str, "name": str, "query": dict, "streams": list, "workers": dict, "keys": list,
    },
    ("batch", "sources"): {"name": str, "rows": _NUMBER},
    ("table", "grids"): {"key": (str, type(None)), "label": (str, type(None)), "columns": list},
    ("graph", "boxes"): {"title": str, "kind": str, "lines": list, "x": _NUMBER, "y": _NUMBER},
    ("fleet", "peers"): {"name": str, "address": str, "load": _NUMBER, "cores": _NUMBER, "loads": list},
    ("fleet", "components"): {"name": str, "operator": str, "peer": str, "epoch": int, "output": str},
    ("fleet", "happened"): {"time": _NUMBER, "peer": str, "component": str, "what": str},
}  # fmt: skip


def check_event(event: Any, where: str) -> Json:
    """Return an event that has all its fields, or raise; `where` is its place in the message."""
    if not isinstance(event, dict) or not isinstance(event.get("event"), str) or event["event"] not in _FIELDS:
        raise HistoryError(f"{where}: not an event of a braided history; name a file that braided wrote")
    kind = event["event"]
    _check_fields(event, _FIELDS[kind], f"{where}: {kind}")
    for (owner, name), fields in _PARTS.items():
        for part in event[name] if owner == kind else ():
            _check_fields(part, fields, f"{where}: {kind}.{name}")
    if kind == "batch":
        for operator in event["operators"]:
            report_of(operator, event["batch"], where)
    return event


def _check_fields(fields_: Any, fields: Mapping[str, type | tuple[type, ...]], where: str) -> None:
    for name, kind in fields.items():
        if not isinstance(fields_, dict) or not isinstance(fields_.get(name), kind):
            raise HistoryError(f"{where}.{name}: the field is missing or damaged; restore the file from a copy")


def columns_of(workers: list[Json]) -> Json:
    """Return the workers of a report as columns, which need a third of the text.

    >>> columns_of([{"worker": 0, "share": 1.5, "last": {"rows": 3}}, {"worker": 1, "share": 0.5, "last": {"rows": 1}}])
    {'worker': [0, 1], 'share': [1.5, 0.5], 'last': {'rows': [3, 1]}}
    """
    first = workers[0] if workers else {}
    return {
        name: columns_of([worker[name] for worker in workers])
        if isinstance(value, dict)
        else [worker.get(name) for worker in workers]
        for name, value in first.items()
    }


def rows_of(columns: Json) -> list[Json]:
    """Undo `columns_of`."""
    parts = {name: rows_of(column) if isinstance(column, dict) else column for name, column in columns.items()}
    if len({len(part) for part in parts.values()}) > 1:
        raise HistoryError("workers: the columns have different lengths; restore the file from a copy")
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def report_of(operator: Json, batch: int, where: str = "history") -> Report:
    """Return the report of an operator in a batch, like `braided.report`, but without the routing."""
    try:
        report = Report({**operator["query"], "batch": batch}, operator["streams"], rows_of(operator["workers"]))
        str(report)
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"{where}: the report of {operator['name']!r} is damaged; restore the file") from error
    return report
