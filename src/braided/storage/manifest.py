"""Manifests: the numbered entries of a topic's log. Each has the files of a batch, or the claim of a writer."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from braided.errors import TopicError
from braided.storage.topic_progress import Progress, read_progress
from braided.storage.writing import DataFile

FORMAT = 1
# Manifests may come from other programs, so names outside of the data folder are not accepted.
_NAME = re.compile(r"[0-9a-z]{1,40}/[0-9A-Za-z-]{1,80}\.parquet")
_ADVICE = "restore it from a copy; the entries after it cannot be read without it"


@dataclass(frozen=True)
class Manifest:
    """One entry of a topic's log.

    slot : its number in the log, the offset of readers.
    kind : "batch" has files; "claim" stops writers of earlier epochs; "compact" replaces all entries from `slot` to
        `last`, with the same rows in fewer files.
    epoch : the number of the writer; it never decreases along the log.
    owner : the query whose results these are.
    batch, offsets : the batch of that query, and a digest of its input.
    progress : the progress of its time columns after this batch; a batch may have progress without files.
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
        """The slot after the last entry that this one includes."""
        return (self.last if self.kind == "compact" else self.slot) + 1

    @property
    def rows(self) -> int:
        """The number of rows in its files."""
        return sum(file.rows for file in self.files)


def to_bytes(manifest: Manifest) -> bytes:
    """Return the stored form of a manifest, with a digest of its content."""
    content = {"format": FORMAT, **asdict(manifest)}
    if not manifest.progress:  # the same bytes as from earlier versions
        del content["progress"]
    return json.dumps({**content, "digest": _digest(content)}, separators=(",", ":")).encode()


def from_bytes(content: bytes, where: str) -> Manifest:
    """Read a stored manifest; raise if it is damaged or of a newer version."""
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
    raise TopicError(f"{where}: the manifest has format {version!r}, but this version reads {FORMAT}; upgrade braided")


def _file(entry: Any) -> DataFile:
    file = DataFile(str(entry["name"]), int(entry["rows"]), int(entry["bytes"]))
    if not _NAME.fullmatch(file.name):
        raise ValueError
    return file


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
