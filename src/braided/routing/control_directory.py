"""The control directory: the tables, the pin of each batch, and the decisions. Tables and pins never change.

```
 control/
   owner.json            the query and the join that use it
   tables/000000000001.json ...   complete, never changed
   pins/<batch>.json     which table a batch uses: its first router task decides it, and it never changes
   wanted.json           a user's request for a number of workers
   decisions.jsonl       every decision with its reason
```

A file appears complete or not at all, and only one of several writers of a name succeeds. A file may be damaged or
forged, so everything that is read is checked, and the query stops if anything is wrong.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from braided.errors import BraidedError, ControlError
from braided.routing.table import RoutingTable
from braided.storage.files import Files, files_at

_LARGEST = 16 << 20
_AGAIN = 1.0
_OWNER = "owner.json"
_FORMAT = 1


class ControlDir:
    """One join's control directory, by path or fsspec URL. Only its location is pickled, and each process opens it."""

    def __init__(self, location: str) -> None:
        self.location = location

    def __reduce__(self) -> tuple[Any, ...]:
        return ControlDir, (self.location,)

    @property
    def _files(self) -> Files:
        return files_at(self.location)

    def check(self) -> None:
        """Raise if the file system cannot create a file exclusively: two tasks could pin a batch to two tables."""
        self._files.check()

    def claim(self, query: str, join: str) -> None:
        """Make a query the owner, or raise if another query is the owner."""
        mine = {"format": _FORMAT, "query": query, "join": join}
        # Every task calls this, and the file almost always exists: reading costs less than failing to create.
        known = self._files.read(_OWNER) is not None
        if known or not self._files.create(_OWNER, _bytes(mine)):
            owner = self._json(_OWNER)
            if owner.get("query") != query:
                raise self._error(
                    f"the directory belongs to query {owner.get('query')!r}, but this is query {query!r}; if "
                    "the checkpoint of the other query was deleted, delete the directory, otherwise use another "
                    "directory for this query"
                )
            if owner != mine:
                raise self._error(
                    "the directory belongs to a join of this query with other options; use one directory for each "
                    "join; if you changed the options, restore them, or start with a new checkpoint and delete the "
                    "directory"
                )

    def owner(self) -> str | None:
        """Return the id of the query that owns the directory."""
        return str(self._field(_OWNER, "query", str)) if self._files.read(_OWNER) is not None else None

    def publish(self, table: RoutingTable) -> bool:
        """Write a table; return False if its version exists."""
        return self._files.create(_table_name(table.version), table.to_bytes())

    def versions(self) -> list[int]:
        """Return the existing versions, ascending."""
        names = [name.removesuffix(".json") for name in self._files.names("tables")]
        return sorted(int(name) for name in names if name.isdigit())

    def newest(self, first: RoutingTable | None = None) -> RoutingTable:
        """Return the newest table; if there is none, publish `first`."""
        versions = self.versions()
        if not versions and first is not None:
            self.publish(first)
            versions = self.versions()
        if not versions:
            raise self._error(
                "there is no routing table; restore it from a copy, or start with a new checkpoint and a new directory"
            )
        return self.table(versions[-1])

    def table(self, version: int) -> RoutingTable:
        """Read a table and check it."""
        name = _table_name(version)
        content = self._files.read(name)
        if content is None:  # in some stores, a new file is not visible to all readers at once
            time.sleep(_AGAIN)
            content = self._files.read(name)
        if content is None:
            raise self._error(f"{name} is missing; restore it from a copy")
        if len(content) > _LARGEST:
            raise self._error(f"{name} has {len(content)} bytes, too many for a table; restore it from a copy")
        try:
            table = _checked(content)
        except BraidedError as error:
            raise self._error(f"{name} is damaged: {error}") from error
        if table.version != version:
            raise self._error(f"{name} has version {table.version}; restore it from a copy")
        return table

    def pin(self, batch: int, query: str, first: RoutingTable | None = None) -> RoutingTable:
        """Return the table of a batch: the one that its pin names; without a pin, pin the newest table.

        If there is no table at all, `first` is published.
        """
        name = _pin_name(batch)
        content = self._files.read(name)
        # Pins of old batches are deleted, so a batch without a pin may be older than all pins that are left.
        later = range(batch + 1, batch + 2) if content is not None else (b for b in self._pinned() if b > batch)
        after = next((b for b in later if self._files.read(_pin_name(b)) is not None), None)
        if after is not None:
            raise self._error(
                f"batch {after} has run already, but this is batch {batch}, so the checkpoint is "
                "older than the directory; restore the directory that belongs to the checkpoint, or start with a new "
                "checkpoint and a new directory"
            )
        if content is None:
            newest = self.newest(first)
            mine = {"format": _FORMAT, "query": query, "version": newest.version, "digest": newest.digest}
            if self._files.create(name, _bytes(mine)):
                return newest
        pin = self._json(name)
        if pin.get("query") != query or type(pin.get("version")) is not int:
            raise self._error(f"{name} is damaged or belongs to another query; restore it from a copy")
        table = self.table(pin["version"])
        if table.digest != pin.get("digest"):
            raise self._error(f"table {table.version} is not the one that {name} names; restore both from a copy")
        return table

    def wanted(self) -> int | str | None:
        """Return the number of workers that the user requested, "auto", or None."""
        if self._files.read("wanted.json") is None:
            return None
        value = self._json("wanted.json").get("workers")
        if value == "auto" or (type(value) is int and value > 0):
            return value
        raise self._error(f"wanted.json requests {value!r} workers; write a number or 'auto'")

    def want(self, workers: int | str) -> None:
        """Request a number of workers, or "auto"."""
        self._files.replace("wanted.json", _bytes({"workers": workers}))

    def log(self, decisions: Sequence[dict[str, Any]]) -> None:
        if decisions:
            self._files.append("decisions.jsonl", b"".join(_bytes(decision) + b"\n" for decision in decisions))

    def decisions(self, last: int = 50) -> list[dict[str, Any]]:
        """Return the last decisions; a line that a crash left incomplete is skipped."""
        entries = []
        for line in (self._files.read("decisions.jsonl") or b"").splitlines()[-last:]:
            try:
                entries.append(json.loads(line))
            except ValueError:
                continue
        return entries

    def prune(self, oldest_batch: int, oldest_version: int) -> None:
        """Delete pins and tables that no batch can need any more."""
        for batch in self._pinned():
            if batch < oldest_batch:
                self._files.delete(_pin_name(batch))
        for version in self.versions()[:-1]:
            if version < oldest_version:
                self._files.delete(_table_name(version))

    def oldest_pinned(self, from_batch: int) -> int | None:
        """Return the oldest version that a pin of this batch or a later one names."""
        pins = [_pin_name(batch) for batch in self._pinned() if batch >= from_batch]
        return min((int(self._field(name, "version", int)) for name in pins), default=None)

    def _pinned(self) -> list[int]:
        names = [name.removesuffix(".json") for name in self._files.names("pins")]
        return [int(name) for name in names if name.isdigit()]

    def _json(self, name: str) -> dict[str, Any]:
        content = self._files.read(name)
        try:
            value = json.loads(content if content is not None and len(content) <= _LARGEST else b"")
        except (ValueError, RecursionError) as error:
            raise self._damaged(name) from error
        if not isinstance(value, dict):
            raise self._damaged(name)
        return value

    def _error(self, text: str) -> ControlError:
        return ControlError(f"control={self.location!r}: {text}")

    def _damaged(self, name: str) -> ControlError:
        todo = "delete it, and it is written again" if name == _OWNER else "restore it from a copy"
        return self._error(f"{name} is damaged; {todo}")

    def _field(self, name: str, field: str, kind: type) -> Any:
        value = self._json(name).get(field)
        if type(value) is not kind:
            raise self._damaged(name)
        return value


def _table_name(version: int) -> str:
    return f"tables/{version:012d}.json"


def _pin_name(batch: int) -> str:
    return f"pins/{batch}.json"


@lru_cache(maxsize=16)
def _checked(content: bytes) -> RoutingTable:
    """Cached by content, not by path: a directory may be deleted and created again while this process runs."""
    return RoutingTable.from_bytes(content)


def _bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
