"""Manifests: the numbered entries of a topic's log, each a batch's files or a writer's claim."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from braided.errors import TopicError
from braided.storage.progress import Progress, read_progress
from braided.storage.writing import DataFile

FORMAT = 1
# Names come from files that others may have written: nothing above the data's own folder can be named.
_NAME = re.compile(r"[0-9a-z]{1,40}/[0-9A-Za-z-]{1,80}\.parquet")
_ADVICE = "restore it from a copy; a topic cannot be read past it"


@dataclass(frozen=True)
class Manifest:
    """One entry of a topic's log.

    slot : its number in the log, the offset of readers.
    kind : "batch" has files; "claim" only says that writers of earlier epochs may not go on; "compact" stands for all
        entries from `slot` to `last`, with the same rows in fewer files.
    epoch : which writer made it; it never goes back along the log.
    owner : the query whose results these are.
    batch, offsets : the batch of that query, and a digest of the input that it covers.
    progress : how far its time columns have come with this batch; a batch may bring this alone, without files.
    """

    slot: int
    kind: Literal["batch", "claim", "compact"]
    epoch: int
    owner: str
    batch: int = -1
    offsets: str = ""
    files: tuple[DataFile, ...] = ()
    last: int = -1
    progress: Mapping[str, Progress] = field(default_factory=dict)

    @property
    def next(self) -> int:
        """The slot after what it stands for."""
        return (self.last if self.kind == "compact" else self.slot) + 1

    @property
    def rows(self) -> int:
        """How many rows it adds."""
        return sum(file.rows for file in self.files)


def to_bytes(manifest: Manifest) -> bytes:
    """Return a manifest as it is stored, with a digest of itself."""
    content = {"format": FORMAT, **asdict(manifest)}
    if not manifest.progress:  # as versions before this one wrote it
        del content["progress"]
    return json.dumps({**content, "digest": _digest(content)}, separators=(",", ":")).encode()


def from_bytes(content: bytes, where: str) -> Manifest:
    """Return a stored manifest, or say what is wrong with it."""
    try:
        fields = json.loads(content)
        digest = fields.pop("digest")
        version = fields["format"]
        if version == FORMAT:
            if digest != _digest(fields):
                raise ValueError
            del fields["format"]
            progress = {str(name): read_progress(one) for name, one in fields.pop("progress", {}).items()}
            files = tuple(_file(entry) for entry in fields["files"])
            return Manifest(**{**fields, "files": files, "progress": progress})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise TopicError(f"{where}: the manifest is damaged; {_ADVICE}") from error
    raise TopicError(f"{where}: the manifest has format {version!r}, this version reads {FORMAT}; upgrade braided")


def _file(entry: Any) -> DataFile:
    file = DataFile(str(entry["name"]), int(entry["rows"]), int(entry["bytes"]))
    if not _NAME.fullmatch(file.name):
        raise ValueError
    return file


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
