"""Topics: a directory that is a durable log with one manifest for each batch, created atomically and exclusively.

```
 path/_topic.json                    the schema, written by the first writer
 path/_manifests/000000000000.json   the log: batches with their files, and claims of writers
 path/_data/000000000007/...parquet  files of batch 7, including those of failed attempts
 path/_compact/A-B.json              the entries A to B with the same rows in fewer files
 path/_readers/NAME.json             the position of a registered reader
```

A file is part of the topic only if a manifest names it. A manifest is created exclusively, so the log fences writers:
a new writer claims the next slot with a new epoch, and the previous writer finds this slot taken when it commits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from braided.errors import TopicError
from braided.storage.files import Files, check_folder, files_at, is_remote, local_path
from braided.storage.manifest import FORMAT, Manifest, from_bytes, to_bytes
from braided.storage.merging import merge_files
from braided.storage.topic_progress import Progress
from braided.storage.writing import DataFile, batch_folder

# Spark only runs its last batches again; older entries may be compacted already.
_LOOK_BACK = 50
# The digest of a batch's input if the checkpoint cannot be read.
UNKNOWN = ""
# The owner of a topic that batch jobs write, instead of a query.
APPENDED = "batch jobs"
_TOPIC = "_topic.json"
_LOG = "_manifests"
_DATA = "_data"
_READERS = "_readers"
_COMPACT = "_compact"
_MARKS = "_marks.json"
# The next entry, and the oldest entry that was not deleted on purpose; with these, lost entries are detected.
_HEAD = "_head.json"
_TAIL = "_tail.json"
_SLOT = re.compile(r"([0-9]{12})\.json")
_RANGE = re.compile(r"([0-9]{12})-([0-9]{12})\.json")
_READER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_topic(location: str) -> bool:
    """Whether a directory is a topic."""
    files = files_at(_plain(location), "path")
    if files.read(_TOPIC) is not None:
        return True
    if files.names(_LOG):
        raise TopicError(f"{location}/{_TOPIC}: the file is missing, but there are manifests; restore it from a copy")
    return False


def _plain(location: str) -> str:
    return location.rstrip("/") if is_remote(location) else os.path.abspath(local_path(location))


class Topic:
    """An existing topic. Pass its path to `braided.files` for a stream, or its `files()` to any reader of Parquet.

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
            raise TopicError(f"path={location!r}: not a topic; braided.write_files creates one")
        try:
            about = json.loads(content)
            version, schema = about["format"], about["schema"]
        except (ValueError, KeyError, TypeError) as error:
            raise TopicError(f"{self.location}/{_TOPIC}: the file is damaged; restore it from a copy") from error
        if version != FORMAT:
            raise TopicError(
                f"{self.location}/{_TOPIC}: the topic has format {version!r}, but this version reads {FORMAT}; "
                "upgrade braided"
            )
        self.schema: str = str(schema)
        """The schema of its rows in Spark's JSON format."""

    @property
    def data(self) -> str:
        """The folder of its data files."""
        return f"{self.location}/{_DATA}"

    def first(self) -> int | None:
        """Return the number of the oldest entry; None if there is none."""
        starts = [start for start, _ in self._ranges()] + self._slots()[:1]
        oldest = self._marked(_TAIL)
        if starts and min(starts) > oldest:
            raise self._missing(_name(oldest))
        return min(starts) if starts else None

    def _marked(self, name: str, advice: str = "restore it from a copy") -> int:
        content = self._files.read(name)
        try:
            return 0 if content is None else int(json.loads(content)["slot"])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise TopicError(f"{self.location}/{name}: the file is damaged; {advice}") from error

    def _missing(self, name: str) -> TopicError:
        return TopicError(f"{self.location}/{name}: the manifest is missing; restore it from a copy")

    def _mark_slot(self, name: str, slot: int) -> None:
        self._files.replace(name, json.dumps({"slot": slot}).encode())

    def latest(self, known: int = -1) -> int:
        """Return the number of the newest manifest, -1 if there is none; `known` is a number that exists."""
        if known < 0:
            head = self._marked(_HEAD)  # read before the listing, because a writer may commit in between
            slots = self._slots()
            known = slots[-1] if slots else -1
            if head > known + 1:
                raise self._missing(_name(known + 1))
        while self._files.read(_name(known + 1)) is not None:
            known += 1
        return known

    def _slots(self) -> list[int]:
        matches = (_SLOT.fullmatch(name) for name in self._files.names(_LOG))
        return sorted(int(match[1]) for match in matches if match)

    def _ranges(self) -> list[tuple[int, int]]:
        matches = (_RANGE.fullmatch(name) for name in self._files.names(_COMPACT))
        return sorted((int(match[1]), int(match[2])) for match in matches if match)

    def manifest(self, slot: int) -> Manifest:
        """Return one entry of the log."""
        content = self._files.read(_name(slot))
        if content is None:
            first = self.first()
            if first is not None and slot < first:
                raise TopicError(
                    f"{self.location}: manifest {slot} was deleted before it was read, the oldest is {first}; start "
                    "the reader with a new checkpoint"
                )
            if any(start <= slot <= last for start, last in self._ranges()):
                raise TopicError(
                    f"{self.location}: manifest {slot} was compacted with others while a reader needed it; set "
                    "reader= to a name for each reader, so that its entries are kept"
                )
            raise self._missing(_name(slot))
        return self._checked(from_bytes(content, f"{self.location}/{_name(slot)}"), slot)

    def _checked(self, entry: Manifest, slot: int) -> Manifest:
        if entry.slot != slot:
            raise TopicError(f"{self.location}/{_name(slot)}: the file has manifest {entry.slot}; restore it")
        return entry

    def manifests(self, start: int | None = None, stop: int | None = None) -> Iterator[Manifest]:
        """Yield the entries from `start` to before `stop`; compacted entries instead of theirs if they fit."""
        first = self.first()
        if first is None:
            self.latest()  # raises if an entry is missing
            return
        slot = first if start is None else start
        stop = self.latest() + 1 if stop is None else stop
        ranges: dict[int, int] = {}
        for begin, last in self._ranges():
            ranges[begin] = max(last, ranges.get(begin, -1)) if last < stop else ranges.get(begin, -1)
        while slot < stop:
            last = ranges.get(slot, -1)
            entry = self.manifest(slot) if last < 0 else self._compacted(slot, last)
            yield entry
            slot = entry.next

    def _compacted(self, start: int, last: int) -> Manifest:
        name = _range_name(start, last)
        content = self._files.read(name)
        if content is None:
            raise self._missing(name)
        return self._checked(from_bytes(content, f"{self.location}/{name}"), start)

    def files(self, start: int | None = None, stop: int | None = None) -> list[str]:
        """Return the paths of the committed files, of all manifests or of those from `start` to before `stop`.

        ``pandas.read_parquet(topic.files())``, ``polars.read_parquet``, ``duckdb.read_parquet`` and
        ``spark.read.parquet(*topic.files())`` read them.
        """
        return [f"{self.data}/{file.name}" for entry in self.manifests(start, stop) for file in entry.files]

    def progress(self, start: int, stop: int) -> Mapping[str, Progress]:
        """Return the progress of the time columns after the last batch from `start` to before `stop`."""
        batches = [entry for entry in self.manifests(start, stop) if entry.kind != "claim"]
        return batches[-1].progress if batches else {}

    def discard(self) -> None:
        """Delete a topic that has no entries."""
        if self.latest() < 0:
            for name in (_TOPIC, _MARKS):
                self._files.delete(name)

    @property
    def marks(self) -> dict[str, Any]:
        """The last writer's description of the times in its columns."""
        content = self._files.read(_MARKS)
        try:
            return dict(json.loads(content)) if content is not None else {}
        except ValueError as error:
            raise TopicError(f"{self.location}/{_MARKS}: the file is damaged; delete it") from error

    def mark(self, marks: dict[str, Any]) -> None:
        """Store a description of the times in its columns."""
        self._files.replace(_MARKS, json.dumps(marks).encode())

    def claim(self, owner: str, batch: int = 0, epoch: int | None = None, *, written: bool = False) -> TopicWriter:
        """Become the writer, from a batch on: the previous writer cannot commit any more, and its files are deleted.

        `written` means that files of that batch are there already, and must be kept. `epoch` is the epoch of a lease,
        which only one process can have; if a writer of this or a higher epoch has claimed the topic, an error is
        raised.
        """
        while True:
            self.first()  # raises if older entries are missing
            latest = self.latest()
            if latest < 0 and batch:
                raise TopicError(
                    f"{self.location}: the topic is new, but the checkpoint has finished {batch} batches; use the path "
                    "that it wrote to, or a new checkpoint"
                )
            before = self.manifest(latest) if latest >= 0 else None
            if before is not None:
                self._check_owner(before, owner)
            newest = -1 if before is None else before.epoch
            if epoch is not None and epoch <= newest:
                raise TopicError(
                    f"{self.location}: a writer of epoch {newest} has taken the topic before this one of epoch {epoch}"
                )
            last = self._last_batch(latest)
            left = [] if written else self._uncommitted(last)
            claim = Manifest(latest + 1, "claim", newest + 1 if epoch is None else epoch, owner)
            if self._files.create(_name(claim.slot), to_bytes(claim)) or (
                # A store may have created it without a reply. The lease's epoch proves that the claim is ours.
                epoch is not None and self.manifest(claim.slot) == claim
            ):
                # No writer can commit these files any more, so they can be deleted at any time. Files written after the
                # claim are kept: this process may have paused here, and another writer may have claimed the topic.
                for name in left:
                    self._files.delete(f"{_DATA}/{name}")
                return TopicWriter(self, self._files, claim, last)

    def resume(self, owner: str, batch: int = 0) -> TopicWriter:
        """Continue as the writer of an owner without a claim, in a process that runs for one batch only.

        Two such processes cannot both commit a batch: the second one finds the batch in the log, or its slot taken. A
        writer with a claim finds its slot taken too.
        """
        latest = self.latest(self._marked(_HEAD) - 1)  # lists the log only if there is no batch yet
        if latest < 0:
            return self.claim(owner, batch, written=True)
        before = self.manifest(latest)
        self._check_owner(before, owner)
        return TopicWriter(self, self._files, before, before if before.kind == "batch" else self._last_batch(latest))

    def append(self, files: Sequence[DataFile]) -> None:
        """Add files that a batch job wrote, as the next entry of a log that has only such entries."""
        while files:
            writer = self.resume(APPENDED)
            if writer.append(files):
                return

    def names(self, files: Sequence[DataFile]) -> bool:
        """Whether one of the newest entries has one of these files."""
        wanted, latest = {file.name for file in files}, self.latest()
        newest = [slot for slot in self._slots() if slot > latest - _LOOK_BACK]
        return any(file.name in wanted for slot in newest for file in self.manifest(slot).files)

    def discard_files(self, files: Sequence[DataFile]) -> None:
        """Delete the files of a failed write, unless the log names them, because the commit may have succeeded."""
        if not self.names(files):
            for file in files:
                self._files.delete(f"{_DATA}/{file.name}")

    def _check_owner(self, before: Manifest, owner: str) -> None:
        if before.owner != owner:
            raise TopicError(
                f"{self.location}: the topic belongs to {_who(before.owner)}, but this is {owner}; use the checkpoint "
                "that wrote it, or another path"
            )

    def _last_batch(self, slot: int) -> Manifest | None:
        slots = self._slots()
        for known in reversed(slots[: slots.index(slot) + 1] if slot >= 0 else []):
            entry = self.manifest(known)
            if entry.kind == "batch":
                return entry
        return None

    def register(self, reader: str, slot: int) -> None:
        """Store the position of a reader: manifests from `slot` on are kept for it."""
        check_reader(reader)
        self._mark_slot(f"{_READERS}/{reader}.json", slot)

    def unregister(self, reader: str) -> None:
        """Remove a reader, so that nothing is kept for it."""
        self._files.delete(f"{_READERS}/{reader}.json")

    def readers(self) -> dict[str, int]:
        """Return the registered readers, and for each the first manifest that it still needs."""
        advice = "register the reader again"
        names = self._files.names(_READERS)
        return {name.removesuffix(".json"): self._marked(f"{_READERS}/{name}", advice) for name in names}

    def retain(self, keep: int) -> int:
        """Delete the oldest entries with their files, except the newest `keep` and those that a reader needs.

        Returns how many were deleted. The newest manifest is always kept, because it has the epoch.
        """
        if type(keep) is not int or keep < 1:
            raise TopicError(f"keep={keep!r}: not a number of entries; write how many of the newest to keep, 1 or more")
        first, latest = self.first(), self.latest()
        if first is None:
            return 0
        stop = min([latest, latest + 1 - keep, *self.readers().values()])
        if stop > first:
            # Stored first, so that entries before it do not count as lost.
            self._mark_slot(_TAIL, self._boundary(stop))
        return self._delete(first, stop)

    def _boundary(self, stop: int) -> int:
        """Return the first entry that is kept if all before `stop` are deleted; compacted entries are kept whole."""
        return min([stop, *(begin for begin, last in self._ranges() if begin < stop <= last)])

    def _delete(self, start: int, stop: int, *, but: tuple[int, int] | None = None) -> int:
        """Delete entries before `stop`: first the entry, which removes its files from the topic, then the files."""
        deleted = 0
        for slot in self._slots():
            if start <= slot < stop:
                entry = self.manifest(slot)
                self._files.delete(_name(slot))
                self._delete_files(entry)
                deleted += 1
        for begin, last in self._ranges():
            if start <= begin and last < stop and (begin, last) != but:
                entry = self._compacted(begin, last)
                self._files.delete(_range_name(begin, last))
                self._delete_files(entry)
                deleted += 1
        return deleted

    def _delete_files(self, entry: Manifest) -> None:
        for file in entry.files:
            self._files.delete(f"{_DATA}/{file.name}")
        for folder in {file.name.split("/", 1)[0] for file in entry.files}:
            self._files.delete_folder(f"{_DATA}/{folder}")

    def compact(self, *, keep: int = 100, at_least: int = 10, target_bytes: int = 256 << 20) -> int:
        """Rewrite runs of old small entries as few large files; return how many entries were replaced.

        The newest `keep` entries are not changed, because a query may run its last batches again. A run is compacted if
        it has `at_least` entries of about the same number of batches. So a row is rewritten only when it becomes part
        of an entry that is ten times as large, no matter how often this is called. Replaced entries are deleted when no
        registered reader is between the first and the last of them. Until then both exist, and readers that reach the
        first one read the new entry.
        """
        replaced = 0
        stop = self.latest() + 1 - keep
        run: list[Manifest] = []
        size = 0
        for entry in self.manifests(stop=stop) if stop > 0 else ():
            bytes_ = sum(file.bytes for file in entry.files)
            if run and (_level(entry) != _level(run[0]) or size + bytes_ > target_bytes):
                replaced += self._merge(run, at_least)
                run, size = [], 0
            run.append(entry)
            size += bytes_
        replaced += self._merge(run, at_least)
        for begin, last in self._ranges():
            # A reader at the first entry counts too: its batch may have been planned to end at an entry within.
            if not any(begin <= slot <= last for slot in self.readers().values()):
                self._delete(begin, last + 1, but=(begin, last))
        return replaced

    def _merge(self, run: Sequence[Manifest], at_least: int) -> int:
        if len(run) < at_least:
            return 0
        first, last = run[0], run[-1]
        files = merge_files(self.data, [file for entry in run for file in entry.files], f"c{first.slot:012d}")
        entry = Manifest(
            first.slot, "compact", last.epoch, last.owner, last.batch, last.offsets, tuple(files), last.next - 1,
            next((entry.progress for entry in reversed(run) if entry.kind != "claim"), {}),
        )  # fmt: skip
        if not self._files.create(_range_name(first.slot, last.next - 1), to_bytes(entry)):
            for file in files:  # another compaction was faster
                self._files.delete(f"{_DATA}/{file.name}")
            return 0
        return len(run)

    def sweep(self, batch: int, keep: Sequence[DataFile] = ()) -> None:
        """Delete the files of a batch that are not in `keep`: those of failed attempts."""
        folder = batch_folder(batch)
        committed = {file.name for file in keep}
        for name in self._files.names(f"{_DATA}/{folder}"):
            if f"{folder}/{name}" not in committed:
                self._files.delete(f"{_DATA}/{folder}/{name}")

    def _uncommitted(self, last: Manifest | None) -> list[str]:
        done, committed = (-1, set()) if last is None else (last.batch, {file.name for file in last.files})
        folders = [name for name in self._files.names(_DATA) if name.isdigit() and int(name) >= done]
        files = [f"{folder}/{name}" for folder in folders for name in self._files.names(f"{_DATA}/{folder}")]
        return [name for name in files if name not in committed]


class TopicWriter:
    """The one writer of a topic, until another claims it."""

    def __init__(self, topic: Topic, files: Files, claim: Manifest, last: Manifest | None) -> None:
        self.topic = topic
        self._files = files
        self._claim = claim
        self._next = claim.slot + 1
        self._last = last

    def commit(
        self, batch: int, offsets: str, files: Sequence[DataFile], progress: Mapping[str, Progress] | None = None
    ) -> bool:
        """Add a batch to the log; if it is there already, delete its files and return False.

        `offsets` is a digest of the batch's input: a batch that runs again must have the same input. A batch without
        files is added if the time columns have made progress, so that readers do not wait for rows.
        """
        if self._last is not None and batch <= self._last.batch:
            self._check_again(batch, offsets)
            for file in files:
                self._files.delete(f"{_DATA}/{file.name}")
            return False
        before = self._last
        if not files and (not progress or (before is not None and before.progress == progress)):
            return False
        self._add(batch, offsets, files, progress or {})
        self.topic.sweep(batch, files)
        if before is not None:  # a speculative attempt may still have written after its batch was committed
            self.topic.sweep(before.batch, before.files)
        return True

    def append(self, files: Sequence[DataFile]) -> bool:
        """Add the files as the next batch; return False if another writer was faster."""
        batch = 0 if self._last is None else self._last.batch + 1
        entry = Manifest(self._next, "batch", self._claim.epoch, self._claim.owner, batch, UNKNOWN, tuple(files))
        if not self._files.create(_name(entry.slot), to_bytes(entry)) and self.topic.manifest(entry.slot) != entry:
            return False
        self.topic._mark_slot(_HEAD, entry.next)
        return True

    def announce(self, batch: int, offsets: str) -> None:
        """Add a batch without files to the log, before it is written to another store that cannot fence writers.

        A writer that claims the topic later finds the plan of this batch and writes the same; until it claims the
        topic, it cannot announce a batch. A batch that is in the log already must have the same input.
        """
        if self._last is not None and batch <= self._last.batch:
            self._check_again(batch, offsets)
        else:
            self._add(batch, offsets, ())

    def _add(
        self, batch: int, offsets: str, files: Sequence[DataFile], progress: Mapping[str, Progress] | None = None
    ) -> None:
        entry = Manifest(
            self._next, "batch", self._claim.epoch, self._claim.owner, batch, offsets, tuple(files),
            progress=progress or {},
        )  # fmt: skip
        if not self._files.create(_name(self._next), to_bytes(entry)):
            other = self.topic.manifest(self._next)
            if other != entry:
                raise TopicError(
                    f"{self.topic.location}: another writer, of epoch {other.epoch}, has taken the topic from this one "
                    f"of epoch {self._claim.epoch}; batch {batch} was not committed here"
                )
        self._last = entry
        self._next += 1
        self.topic._mark_slot(_HEAD, self._next)

    def _check_again(self, batch: int, offsets: str) -> None:
        assert self._last is not None
        for slot in range(self._last.slot, max(-1, self._last.slot - _LOOK_BACK), -1):
            entry = self.topic.manifest(slot)
            if entry.kind == "batch" and entry.batch <= batch:
                if entry.batch == batch and UNKNOWN not in (offsets, entry.offsets) and entry.offsets != offsets:
                    raise TopicError(
                        f"{self.topic.location}: batch {batch} was committed with other input, so the checkpoint does "
                        "not belong to the topic; restore both, or start with a new path and a new checkpoint"
                    )
                return


def create_topic(location: str, schema: str) -> Topic:
    """Return the topic at a location: a new one, or an existing one with this schema."""
    check_place(location, schema)
    files = files_at(_plain(location), "path")
    files.make_folder("")  # with the permissions of the umask; `create` would make it private
    about: dict[str, Any] = {"format": FORMAT, "schema": schema}
    if not files.create(_TOPIC, json.dumps(about).encode()):
        check_place(location, schema)  # another writer was faster
    return Topic(location)


def check_place(location: str, schema: str) -> None:
    """Raise if a location cannot be a topic with this schema; nothing is created."""
    check_folder(location, "path")
    plain = _plain(location)
    if is_topic(plain):
        existing = Topic(location).schema
        if existing != schema:
            raise TopicError(
                f"path={location!r}: the topic has another schema; write to a new path. It has {existing}, "
                f"the rows have {schema}"
            )
    elif [name for name in files_at(plain, "path").names("") if name not in (_DATA, _LOG)]:
        raise TopicError(
            f"path={location!r}: the directory has other files; use a new one, or one that this query wrote"
        )


def check_reader(reader: str) -> None:
    """Raise if a reader's name cannot be a file name."""
    if not isinstance(reader, str) or not _READER.fullmatch(reader):
        raise TopicError(f"reader={reader!r}: not a valid name; use letters, digits, dots, dashes and underscores")


def digest(text: str) -> str:
    """Return the digest of a batch's offsets."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_digest(plan: str) -> str:
    """Return the digest of a batch's input, from its file in the checkpoint's offset log.

    The first two lines are a version and the batch's watermark and time; the other lines are the inputs' offsets.
    """
    return digest("\n".join(plan.splitlines()[2:]))


def _who(owner: str) -> str:
    return owner if owner == APPENDED else f"the query {owner}"


def _level(entry: Manifest) -> int:
    """Return how many batches an entry includes, in powers of ten."""
    return len(str(entry.next - entry.slot)) - 1


def _range_name(start: int, last: int) -> str:
    return f"{_COMPACT}/{start:012d}-{last:012d}.json"


def _name(slot: int) -> str:
    return f"{_LOG}/{slot:012d}.json"
