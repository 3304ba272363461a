"""Topics: a directory that is a durable log, one manifest for each batch, created whole and exclusively.

```
 path/_topic.json                    the schema, made by the first writer
 path/_manifests/000000000000.json   the log: batches with their files, and claims of writers
 path/_data/000000000007/...parquet  files of batch 7, those of failed attempts too
 path/_readers/NAME.json             how far a registered reader has come
```

Nothing but a manifest makes a file part of the topic. Creating the next one is exclusive, so the log is the fence
between writers: a writer that starts claims the next slot with an epoch of its own, and the one before it finds that
slot taken when it wants to commit.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from braided.direct.manifest import FORMAT, Manifest, from_bytes, to_bytes
from braided.direct.places import delete_file, delete_folder, is_remote, local_path
from braided.direct.writing import DataFile
from braided.errors import TopicError
from braided.routing.files import Files, files_at

_TOPIC = "_topic.json"
_LOG = "_manifests"
_DATA = "_data"
_READERS = "_readers"
_SLOT = re.compile(r"([0-9]{12})\.json")
_READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_topic(location: str) -> bool:
    """Whether a directory is a topic."""
    return files_at(_plain(location), "path").read(_TOPIC) is not None


def _plain(location: str) -> str:
    return location.rstrip("/") if is_remote(location) else (local_path(location).rstrip("/") or "/")


class Topic:
    """A topic that exists. Give its path to `braided.files` for a stream, and `files()` to any reader of Parquet.

    >>> import tempfile
    >>> topic = create_topic(tempfile.mkdtemp(), "{}")
    >>> topic.files()
    []
    """

    def __init__(self, location: str) -> None:
        self.location = _plain(location)
        self._files: Files = files_at(self.location, "path")
        content = self._files.read(_TOPIC)
        if content is None:
            raise TopicError(f"path={location!r}: is no topic; braided.write_files makes one")
        try:
            about = json.loads(content)
            version = about["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise TopicError(f"{self.location}/{_TOPIC}: is damaged; restore it from a copy") from error
        if version != FORMAT:
            raise TopicError(
                f"{self.location}/{_TOPIC}: the topic has format {version!r}, this version reads {FORMAT}; "
                "upgrade braided"
            )
        self.schema: str = str(about["schema"])
        """The schema of its rows, as Spark writes it in JSON."""

    @property
    def data(self) -> str:
        """Where its data files are."""
        return f"{self.location}/{_DATA}"

    def first(self) -> int | None:
        """Return the number of the oldest manifest, None if there is none."""
        slots = self._slots()
        return slots[0] if slots else None

    def latest(self, known: int = -1) -> int:
        """Return the number of the newest manifest, -1 if there is none; `known` is one that is known to exist."""
        if known < 0:
            slots = self._slots()
            known = slots[-1] if slots else -1
        while self._files.read(_name(known + 1)) is not None:
            known += 1
        return known

    def _slots(self) -> list[int]:
        found = (_SLOT.fullmatch(name) for name in self._files.names(_LOG))
        return sorted(int(match[1]) for match in found if match)

    def manifest(self, slot: int) -> Manifest:
        """Return one entry of the log."""
        content = self._files.read(_name(slot))
        if content is None:
            first = self.first()
            if first is not None and slot < first:
                raise TopicError(
                    f"{self.location}: manifest {slot} is gone, the oldest kept is {first}; a reader that is so far "
                    "behind must start anew"
                )
            raise TopicError(f"{self.location}/{_name(slot)}: the manifest is missing; restore it from a copy")
        manifest = from_bytes(content, f"{self.location}/{_name(slot)}")
        if manifest.slot != slot:
            raise TopicError(f"{self.location}/{_name(slot)}: says that it is manifest {manifest.slot}; restore it")
        return manifest

    def manifests(self, start: int | None = None, stop: int | None = None) -> Iterator[Manifest]:
        """Yield the entries from `start` up to `stop`, which is not included."""
        first = self.first()
        if first is None:
            return
        for slot in range(first if start is None else start, self.latest() + 1 if stop is None else stop):
            yield self.manifest(slot)

    def files(self, start: int | None = None, stop: int | None = None) -> list[str]:
        """Return the paths of the committed files, of all manifests or of those from `start` up to before `stop`.

        ``pandas.read_parquet(topic.files())``, ``polars.read_parquet``, ``duckdb.read_parquet`` and
        ``spark.read.parquet(*topic.files())`` read them.
        """
        return [f"{self.data}/{file.name}" for entry in self.manifests(start, stop) for file in entry.files]

    def claim(self, owner: str) -> TopicWriter:
        """Become the writer: whoever was before can commit no more."""
        while True:
            latest = self.latest()
            before = self.manifest(latest) if latest >= 0 else None
            if before is not None and before.owner != owner:
                raise TopicError(
                    f"{self.location}: belongs to the query {before.owner}, this is {owner}; give the checkpoint that "
                    "wrote it, or another path"
                )
            epoch = 0 if before is None else before.epoch + 1
            claim = Manifest(latest + 1, "claim", epoch, owner)
            if self._files.create(_name(claim.slot), to_bytes(claim)):
                return TopicWriter(self, self._files, claim, self._last_batch(latest))

    def _last_batch(self, slot: int) -> Manifest | None:
        """Return the newest entry with files at or before a slot."""
        first = self.first()
        while first is not None and slot >= first:
            entry = self.manifest(slot)
            if entry.kind == "batch":
                return entry
            slot -= 1
        return None

    def register(self, reader: str, slot: int) -> None:
        """Say how far a reader has come: manifests from `slot` on are kept for it."""
        if not _READER.fullmatch(reader):
            raise TopicError(f"reader={reader!r}: write letters, digits, dots, dashes and underscores")
        self._files.replace(f"{_READERS}/{reader}.json", json.dumps({"slot": slot}).encode())

    def unregister(self, reader: str) -> None:
        """Let go of what was kept for a reader."""
        self._files.delete(f"{_READERS}/{reader}.json")

    def readers(self) -> dict[str, int]:
        """Return the registered readers and the first manifest that each still needs."""
        found = {}
        for name in self._files.names(_READERS):
            content = self._files.read(f"{_READERS}/{name}")
            try:
                found[name.removesuffix(".json")] = int(json.loads(content or b"")["slot"])
            except (ValueError, KeyError, TypeError) as error:
                raise TopicError(f"{self.location}/{_READERS}/{name}: is damaged; register the reader anew") from error
        return found

    def retain(self, keep: int) -> int:
        """Delete all but the newest `keep` manifests with their files, none that a registered reader needs.

        Returns how many were deleted. The newest manifest always stays: it has the epoch.
        """
        first, latest = self.first(), self.latest()
        if first is None:
            return 0
        stop = min([latest, latest + 1 - keep, *self.readers().values()])
        deleted = 0
        for slot in range(first, stop):
            entry = self.manifest(slot)
            # First the entry: what it named is then no part of the topic. In this order the log has never a gap.
            self._files.delete(_name(slot))
            for file in entry.files:
                delete_file(f"{self.data}/{file.name}")
            for folder in {file.name.split("/", 1)[0] for file in entry.files}:
                delete_folder(f"{self.data}/{folder}")
            deleted += 1
        return deleted

    def sweep(self, batch: int, keep: Sequence[DataFile] = ()) -> None:
        """Delete the files of a batch that no manifest names: those of failed attempts."""
        folder = f"{batch:012d}"
        kept = {file.name for file in keep}
        for name in self._files.names(f"{_DATA}/{folder}"):
            if f"{folder}/{name}" not in kept:
                delete_file(f"{self.data}/{folder}/{name}")

    def batches_with_files(self) -> list[int]:
        """Return the batches that have a folder, committed or not."""
        return sorted(int(name) for name in self._files.names(_DATA) if name.isdigit())


class TopicWriter:
    """The one writer of a topic, until another claims it."""

    def __init__(self, topic: Topic, files: Files, claim: Manifest, last: Manifest | None) -> None:
        self.topic = topic
        self._files = files
        self._claim = claim
        self._next = claim.slot + 1
        self._last = last
        done = -1 if last is None else last.batch
        for batch in topic.batches_with_files():
            if batch > done:
                topic.sweep(batch)
        if last is not None:
            topic.sweep(last.batch, last.files)

    def commit(self, batch: int, offsets: str, files: Sequence[DataFile]) -> bool:
        """Add a batch to the log; False, and its files are deleted, if it is there already.

        `offsets` is a digest of the input that the batch covers: a batch that is run again must cover the same.
        """
        if self._last is not None and batch <= self._last.batch:
            self._check_again(batch, offsets)
            for file in files:
                delete_file(f"{self.topic.data}/{file.name}")
            return False
        if not files:
            return False
        entry = Manifest(self._next, "batch", self._claim.epoch, self._claim.owner, batch, offsets, tuple(files))
        if not self._files.create(_name(self._next), to_bytes(entry)):
            other = self.topic.manifest(self._next)
            if other != entry:
                raise TopicError(
                    f"{self.topic.location}: another writer, of epoch {other.epoch}, has taken the topic from this one "
                    f"of epoch {self._claim.epoch}; batch {batch} was not committed here"
                )
        self._last = entry
        self._next += 1
        self.topic.sweep(batch, files)
        return True

    def _check_again(self, batch: int, offsets: str) -> None:
        assert self._last is not None
        slot = self._last.slot
        first = self.topic.first() or 0
        while slot >= first:
            entry = self.topic.manifest(slot)
            if entry.kind == "batch" and entry.batch <= batch:
                if entry.batch == batch and entry.offsets != offsets:
                    raise TopicError(
                        f"{self.topic.location}: batch {batch} was committed over other input; the checkpoint and the "
                        "topic do not belong together: restore both, or start with a new path and a new checkpoint"
                    )
                return
            slot -= 1


def create_topic(location: str, schema: str) -> Topic:
    """Return the topic at a location, new or with this very schema."""
    plain = _plain(location)
    files = files_at(plain, "path")
    about: dict[str, Any] = {"format": FORMAT, "schema": schema}
    if not files.create(_TOPIC, json.dumps(about).encode()):
        found = Topic(location)
        if found.schema != schema:
            raise TopicError(
                f"path={location!r}: the topic has another schema; write to a new path. It has {found.schema}, "
                f"the rows have {schema}"
            )
        return found
    return Topic(location)


def digest(text: str) -> str:
    """Return the digest of a batch's offsets."""
    return hashlib.sha256(text.encode()).hexdigest()


def _name(slot: int) -> str:
    return f"{_LOG}/{slot:012d}.json"
