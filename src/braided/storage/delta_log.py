"""A Delta table as a stream: first all its files, then the files that each version adds.

```
 version   7 (where the stream begins)   8          9               10
           all files of the table        + a, b     compaction      + c
 read      in order of their age         a, b       nothing         c
```

A stream cannot take rows back, so a version that deletes or changes rows stops it. Deletion vectors and column mapping
stop it too, because the files alone do not have the right rows or column names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from braided.errors import OptionError, TableError
from braided.storage.delta_table import check_mapping, library, log_name
from braided.storage.files import files_at
from braided.storage.tables import plain_location, reached, shown

_READER_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_ELSE = "use Spark's own connector for Delta, if there is one for this version of Spark"


@dataclass(frozen=True)
class AddedFile:
    """A file of the table: its path, its size, and the values of the partition columns as text, as in the log."""

    path: str
    bytes: int
    values: tuple[str | None, ...]


@dataclass(frozen=True)
class Position:
    """All versions before `version` have been read, and the first `index` files of `version`.

    whole : whether all files of the table in that version are read, as at the beginning of a stream, or only new ones.
    """

    table: str
    version: int
    index: int = 0
    whole: bool = False


class DeltaLog:
    """The log of a table, as a stream reads it. `options` are the storage options of deltalake."""

    def __init__(
        self,
        location: str,
        options: Mapping[str, str] | None = None,
        *,
        add_columns: bool = False,
        columns: Sequence[str] | None = None,
    ) -> None:
        """`columns` are the columns of the stream, by default all columns that the table has now.

        With `add_columns`, columns that are added later are left out until the stream is made again.
        """
        self.location = plain_location(location)
        self.name = f"table='delta:{location}'"
        self._options = dict(options or {}) or None
        self._add_columns = add_columns
        self._whole: tuple[int, list[AddedFile]] | None = None
        with reached(self.name):
            self._table = self._at(None)
            self._files = files_at(self.location, "path")
            self._newest: tuple[int, bytes | None] = (int(self._table.version()), None)
            """The newest version that is known, and its commit, once it was read."""
            metadata = self._table.metadata()
        self.id = str(metadata.id)
        self.partitions: list[str] = list(metadata.partition_columns)
        check_mapping(self.name, metadata.configuration)
        self._check_features(self._table.protocol().reader_features or ())
        self.schema = str(self._table.schema().to_json())
        """The table's schema in Spark's JSON format."""
        kinds = _kinds(self.schema)
        for column in self.partitions:
            if kinds.get(column) == "binary":  # writers differ in how they write such a value as text
                raise TableError(f"{self.name}: partition column {column!r} is binary; {_ELSE}")
        self._kinds = kinds if columns is None else {name: kinds[name] for name in columns if name in kinds}

    def _at(self, version: int | None) -> Any:
        deltalake = library()
        try:
            return deltalake.DeltaTable(self.location, version=version, storage_options=self._options)
        except deltalake.exceptions.TableNotFoundError:
            raise OptionError(f"{self.name}: there is no Delta table; braided.write_table creates one") from None

    def _again(self) -> Any:
        try:
            return self._at(None)
        except OptionError:
            raise TableError(
                f"{self.name}: the table is missing; restore it, or start a new query with a new checkpoint"
            ) from None

    def begin(self) -> Position:
        """Return where a new stream begins: with all files of the newest version."""
        return Position(self.id, self.latest(), whole=True)

    def latest(self) -> int:
        """Return the number of the newest version."""
        with reached(self.name):
            # The library adds new commits to those it has read, and does not look whether these are still there.
            version, content = self._newest
            there = self._files.read(log_name(version))
            if there is None or (content is not None and there != content):  # cleaned up, or of another table
                self._table = self._again()
            self._table.update_incremental()
            if str(self._table.metadata().id) != self.id:
                raise TableError(
                    f"{self.name}: the table was replaced by another one; start a new query with a new checkpoint"
                )
            newest = int(self._table.version())
            if newest != version or content is None:
                self._newest = newest, self._files.read(log_name(newest))
            return newest

    def end(self, start: Position | None, newest: int, most: int | None) -> Position:
        """Return where a batch ends: at the newest version, or after `most` files."""
        if start is None or most is None:
            version = newest + 1 if start is None else max(newest + 1, start.version)
            return start if start is not None and start.version == version else Position(self.id, version)
        at, left = start, most
        while at.version <= newest:
            there = len(self.files(at.version, at.whole)) - at.index
            if there > left:
                return Position(self.id, at.version, at.index + left, at.whole)
            left -= there
            at = Position(self.id, at.version + 1)
        return at

    def between(self, start: Position, end: Position) -> list[AddedFile]:
        """Return the files from one position to another, in the order in which they were added."""
        for position in (start, end):
            if position.table != self.id:
                raise TableError(
                    f"{self.name}: this is not the table that the checkpoint has read from; start with a new checkpoint"
                )
        files: list[AddedFile] = []
        at = start
        while at.version < end.version:
            files += self.files(at.version, at.whole)[at.index :]
            at = Position(self.id, at.version + 1)
        if end.index:
            files += self.files(at.version, at.whole)[at.index : end.index]
        return files

    def files(self, version: int, whole: bool) -> list[AddedFile]:
        """Return the files that a version adds, or with `whole` all files that the table has in that version."""
        if not whole:
            return self._added(version)
        if self._whole is None or self._whole[0] != version:
            self._whole = version, self._all(version)
        return self._whole[1]

    def _all(self, version: int) -> list[AddedFile]:
        with reached(self.name):
            table = self._at(version)
            if pa.table(table.deletion_vectors()).num_rows:
                raise self._vectors(version)
            actions = pa.table(table.get_add_actions()).sort_by([
                ("modification_time", "ascending"), ("path", "ascending"),
            ])  # fmt: skip
            values = [actions["partition"].combine_chunks().field(name) for name in self.partitions]
        texts = [column.cast(pa.string()).to_pylist() for column in values]
        rows: Iterable[tuple[str | None, ...]] = zip(*texts, strict=True) if texts else [()] * len(actions)
        return [
            AddedFile(self._place(path), size, tuple(row))
            for path, size, row in zip(
                actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), rows, strict=True
            )
        ]

    def _added(self, version: int) -> list[AddedFile]:
        name = log_name(version)
        with reached(self.name):
            content = self._files.read(name)
        if content is None:
            raise TableError(
                f"{self.name}: version {version} was deleted from the log before the stream read it; start the query "
                "with a new checkpoint"
            )
        try:
            actions = [json.loads(line) for line in content.splitlines() if line.strip()]
            return self._new_files(version, actions)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, TableError):
                raise
            raise TableError(f"{self.name}: {name} is damaged; restore it from a copy") from error

    def _new_files(self, version: int, actions: Sequence[Mapping[str, Any]]) -> list[AddedFile]:
        done = next((action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), None)
        files = []
        for action in actions:
            if "protocol" in action:
                self._check_features(action["protocol"].get("readerFeatures") or ())
            if "metaData" in action:
                self._check_schema(version, action["metaData"])
            if action.get("remove", {}).get("dataChange"):
                raise TableError(
                    f"{self.name}: version {version} deletes or changes rows ({done or 'unknown operation'}), but a "
                    "stream can only add rows; start a new query with a new checkpoint, or read the table's change "
                    f"data feed: {_ELSE}"
                )
            add = action.get("add")
            if add is None or not add["dataChange"]:
                continue
            if add.get("deletionVector") is not None:
                raise self._vectors(version)
            values = tuple(add["partitionValues"].get(column) or None for column in self.partitions)
            files.append(AddedFile(self._place(add["path"]), int(add["size"]), values))
        return files

    def _place(self, path: str) -> str:
        plain = unquote(path)
        if "://" in path or plain.startswith("/"):  # of a clone
            return plain_location(plain)
        return f"{self.location}/{plain}"

    def _vectors(self, version: int) -> TableError:
        return TableError(
            f"{self.name}: version {version} has deletion vectors, so its files have rows that were deleted; "
            f"run REORG TABLE ... APPLY (PURGE) and start with a new checkpoint, or {_ELSE}"
        )

    def _check_features(self, features: Sequence[str]) -> None:
        for feature in features:
            if feature not in _READER_FEATURES:
                raise TableError(f"{self.name}: the table has the unsupported feature {feature!r}; {_ELSE}")

    def _check_schema(self, version: int, metadata: Mapping[str, Any]) -> None:
        check_mapping(self.name, metadata.get("configuration") or {})
        if list(metadata["partitionColumns"]) != self.partitions:
            raise TableError(
                f"{self.name}: version {version} is partitioned by {metadata['partitionColumns']}, not by "
                f"{self.partitions}; start with a new checkpoint"
            )
        for column, kind in _kinds(metadata["schemaString"]).items():
            known = self._kinds.get(column)
            if known is None and not self._add_columns:
                raise TableError(
                    f"{self.name}: version {version} adds the column {column!r}; start the query again to read it, or "
                    "set add_columns=True to continue without it"
                )
            if known is not None and known != kind:
                raise TableError(
                    f"{self.name}: column {column!r} is {kind} in version {version}, but {known} in the stream; start "
                    "with a new checkpoint"
                )


def _kinds(schema: str) -> dict[str, str]:
    return {field["name"]: shown(field["type"]) for field in json.loads(schema)["fields"]}


def partition_scalar(text: str | None, kind: pa.DataType, column: str) -> pa.Scalar[Any]:
    """Return the value of a partition from its text in the log.

    >>> partition_scalar("2024-05-01", pa.date32(), "day").as_py().isoformat()
    '2024-05-01'
    """
    try:
        if pa.types.is_binary(kind):
            raise pa.ArrowInvalid("no text of bytes is the same everywhere")
        if text is not None and pa.types.is_timestamp(kind) and kind.tz is not None and not text.endswith("Z"):
            text += "Z"
        return pa.array([text], pa.string()).cast(kind)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(f"partition column {column!r}: the value {text!r} is not of type {kind}") from error
