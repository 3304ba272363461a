"""A worker's bookkeeping. It is refused if it is damaged, or if it was written with other options.

```
 bookkeeping  "braided", format, digest, then JSON: options, counts, the state of the operator, digests of the blocks
 blocks       as the operator wrote them; `braided.runtime.blocks` returns them, or reports that they are damaged
```
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

import pyarrow as pa

from braided.durations import format_duration
from braided.errors import StateError
from braided.runtime.blocks import RESTORE
from braided.runtime.contract import Json, TimedStreams
from braided.runtime.router import FORMAT

_HEAD = re.compile(rb"braided (\d{1,9}) ([0-9a-f]{32})\n")
# Options that do not affect the meaning of stored state; they may change from one start to the next.
_FREE = ("idle",)
_NAMES = {"adaptive": "adaptive (control=)"}
_DURATIONS = ("lateness", "between", "within")


def write_bookkeeping(bookkeeping: Json) -> bytes:
    """Return the stored form of the bookkeeping: a line with the format and a digest, then JSON."""
    body = json.dumps(bookkeeping, separators=(",", ":")).encode()
    return b"braided %d %s\n%s" % (FORMAT, _digest(FORMAT, body), body)


def read_bookkeeping(content: bytes) -> Json:
    """Read the bookkeeping of a worker; raise if it is damaged or of another format."""
    head = _HEAD.match(content)
    body = content[head.end() :] if head else b""
    if head is None or head[2] != _digest(int(head[1]), body):
        raise StateError(f"the bookkeeping in the state of a worker is damaged; {RESTORE}")
    if int(head[1]) != FORMAT:
        raise StateError(
            f"the checkpoint has state format {int(head[1])}, but this version of braided writes {FORMAT}; "
            "start with a new checkpoint"
        )
    bookkeeping: Json = json.loads(body)
    return bookkeeping


def write_inputs(operator: TimedStreams) -> list[list[str]]:
    """Return the schema and the time column of each input, for readers without the operator (`braided.inspection`)."""
    schemas = (base64.b64encode(schema.remove_metadata().serialize()).decode() for schema in operator.inputs)
    return [[schema, time] for schema, time in zip(schemas, operator.times, strict=True)]


def read_inputs(written: Iterable[list[str]]) -> list[tuple[pa.Schema, str]]:
    """Return the schema and the time column of each input."""
    return [(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(schema))), time) for schema, time in written]


def _digest(format_: int, body: bytes) -> bytes:
    return hashlib.sha256(b"%d %s" % (format_, body)).hexdigest()[:32].encode()


def check_options(stored: Json, now: Json) -> None:
    """Raise if options changed that affect the meaning of stored state; the message names each of them."""
    # Compare them as JSON: a tuple in the options comes back as a list.
    changed = list(_changes(stored, json.loads(json.dumps(now))))
    if changed:
        details = ", ".join(
            f"{_NAMES.get(name, name)} was {_value_text(name, old)} and is {_value_text(name, new)}"
            for name, old, new in changed
        )
        raise StateError(
            f"the checkpoint was written with other options: {details}; restore them or start with a new checkpoint"
        )


def lasting(options: Json) -> Json:
    """Return the options that never change during the life of a checkpoint."""
    return {
        name: [lasting(part) for part in value] if _is_parts(value) else value
        for name, value in options.items()
        if name not in (*_FREE, "lateness")
    }


def _changes(stored: Json, now: Json, of: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the old and the new value of each changed option that affects the meaning of stored state."""
    for name in sorted({*stored, *now}):
        old, new = stored.get(name), now.get(name)
        if old == new or name in _FREE or (name == "lateness" and _only_longer(old, new)):
            continue
        if _is_parts(old) and _is_parts(new) and len(old) == len(new):
            for number, (before, after) in enumerate(zip(old, new, strict=True)):
                yield from _changes(before, after, f"{of}{name}[{number}].")
        else:
            yield of + name, old, new


def _is_parts(value: Any) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and all(isinstance(part, dict) for part in value)


def _only_longer(old: Any, new: Any) -> bool:
    """Whether rows are stored for longer than before, which is compatible with the stored state."""
    if not isinstance(old, list) or not isinstance(new, list):
        return False
    return len(old) == len(new) and all(
        before == after or (isinstance(before, int) and isinstance(after, int) and before < after)
        for before, after in zip(old, new, strict=True)
    )


def _value_text(name: str, value: Any) -> str:
    if name.rpartition(".")[2] in _DURATIONS:
        parts = [format_duration(part) if isinstance(part, int) else part for part in _listed(value)]
        value = parts if isinstance(value, list) else parts[0]
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
