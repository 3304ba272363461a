"""Topics: a log that is committed whole and once, fenced between writers, kept and compacted for its readers."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.profiles import size

from braided.errors import TopicError
from braided.storage.manifest import FORMAT, Manifest, from_bytes, to_bytes
from braided.storage.topic import Topic, TopicWriter, create_topic, is_topic
from braided.storage.upkeep import Upkeep
from braided.storage.writing import DataFile, FileTarget, batch_folder

SCHEMA = pa.schema([("x", pa.int64())])


def _file(topic: Topic, batch: int, values: list[int], task: int = 0) -> list[DataFile]:
    writer = FileTarget(topic.data).writer(batch_folder(batch), task, SCHEMA)
    writer.write(pa.record_batch([pa.array(values, pa.int64())], schema=SCHEMA))
    return writer.close()


def _commit(writer: TopicWriter, batch: int, values: list[int]) -> bool:
    return writer.commit(batch, f"offsets {batch}", _file(writer.topic, batch, values))


def _values(topic: Topic, start: int | None = None, stop: int | None = None) -> list[int]:
    return [
        value for file in topic.files(start, stop) for value in pq.read_table(file, partitioning=None)["x"].to_pylist()
    ]


@pytest.fixture(params=["", "local://"])
def topic(tmp_path: Path, request: pytest.FixtureRequest) -> Topic:
    """A topic on a path, and on a URL that fsspec knows."""
    return create_topic(f"{request.param}{tmp_path}/t", "schema")


def _disk(location: str) -> Path:
    return Path(location.removeprefix("local://"))


def test_only_committed_files_are_part_of_a_topic(topic: Topic) -> None:
    writer = topic.claim("q")
    _file(topic, 0, [99])
    assert topic.files() == []
    assert _commit(writer, 0, [1, 2])
    assert _commit(writer, 1, [3])
    assert _values(topic) == [1, 2, 3]
    assert len(list(_disk(topic.data).rglob("*.parquet"))) == 2  # what the failed attempt left was swept
    _file(topic, 1, [98])  # of an attempt that lost, and goes on after its batch is done
    assert _commit(writer, 2, [4])
    assert _values(topic) == [1, 2, 3, 4]
    assert len(list(_disk(topic.data).rglob("*.parquet"))) == 3


def test_a_batch_is_committed_once(topic: Topic) -> None:
    writer = topic.claim("q")
    _commit(writer, 0, [1])
    _commit(writer, 1, [2])
    again = topic.claim("q")
    assert not _commit(again, 1, [2])
    assert not _commit(again, 0, [1])
    assert _commit(again, 2, [3])
    assert _values(topic) == [1, 2, 3]
    assert len(list(_disk(topic.data).rglob("*.parquet"))) == 3
    with pytest.raises(TopicError, match="batch 1 was committed with other input, so the checkpoint does not"):
        again.commit(1, "other offsets", [])


def test_a_batch_without_rows_leaves_no_entry(topic: Topic) -> None:
    writer = topic.claim("q")
    assert not writer.commit(0, "o", [])
    _commit(writer, 1, [1])
    assert [entry.kind for entry in topic.manifests()] == ["claim", "batch"]


def test_a_batch_that_is_written_elsewhere_is_announced_by_one_writer(topic: Topic) -> None:
    former = topic.claim("q", epoch=0)
    former.announce(0, "o")
    former.announce(0, "o")
    with pytest.raises(TopicError, match="batch 0 was committed with other input"):
        former.announce(0, "other")
    writer = topic.claim("q", epoch=1)
    writer.announce(0, "o")  # runs again over the same plan
    with pytest.raises(TopicError, match="another writer, of epoch 1, has taken the topic"):
        former.announce(1, "a plan of its own")
    writer.announce(1, "o")
    assert [(entry.kind, entry.batch) for entry in topic.manifests()] == [
        ("claim", -1), ("batch", 0), ("claim", -1), ("batch", 1),
    ]  # fmt: skip
    assert topic.files() == []


def test_the_commit_of_a_former_writer_fails(topic: Topic) -> None:
    former = topic.claim("q")
    _commit(former, 0, [1])
    topic.claim("q")
    with pytest.raises(
        TopicError, match=r"another writer, of epoch 1, has taken the topic from this one of epoch 0; batch 1"
    ):
        _commit(former, 1, [2])
    assert _values(topic) == [1]


def test_what_a_crash_left_is_swept_when_a_writer_starts(topic: Topic) -> None:
    writer = topic.claim("q")
    _commit(writer, 0, [1])
    _file(topic, 0, [1])
    _file(topic, 1, [2])
    topic.claim("q")
    assert list(_disk(topic.data).rglob("*.parquet")) == [_disk(file) for file in topic.files()]


def test_a_writer_that_was_stopped_after_its_claim_deletes_nothing_of_the_next(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commit(topic.claim("q"), 0, [1])
    _file(topic, 1, [9])
    create = topic._files.create

    def stopped(name: str, content: bytes) -> bool:
        monkeypatch.setattr(topic._files, "create", create)
        assert create(name, content)
        _commit(Topic(topic.location).claim("q"), 1, [2])
        return True

    monkeypatch.setattr(topic._files, "create", stopped)
    writer = topic.claim("q")
    assert _values(topic) == [1, 2]
    with pytest.raises(TopicError, match="another writer, of epoch 2, has taken the topic from this one of epoch 1"):
        _commit(writer, 1, [2])


def test_races_of_two_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    for race in range(size(quick=30, slow=100)):
        topic = create_topic(str(tmp_path / str(race)), "schema")
        first = topic.claim("q")
        _commit(first, 0, [0])
        errors: list[TopicError] = []

        def go_on(writer: TopicWriter, failed: list[TopicError] = errors) -> None:
            try:
                for batch in (1, 2, 3):
                    _commit(writer, batch, [batch])
            except TopicError as error:
                failed.append(error)

        def take_over(at: Topic = topic) -> None:
            go_on(at.claim("q"))

        threads = [threading.Thread(target=go_on, args=(first,)), threading.Thread(target=take_over)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _values(topic) == [0, 1, 2, 3], race
        epochs = [entry.epoch for entry in topic.manifests()]
        assert epochs == sorted(epochs)
        assert len(errors) <= 1


def test_a_topic_belongs_to_one_query_and_one_schema(topic: Topic, tmp_path: Path) -> None:
    topic.claim("one")
    with pytest.raises(
        TopicError, match="belongs to the query one, but this is other; use the checkpoint that wrote it"
    ):
        topic.claim("other")
    with pytest.raises(TopicError, match=r"the topic has another schema; write to a new path"):
        create_topic(topic.location, "another")
    assert create_topic(topic.location, "schema").schema == "schema"
    assert not is_topic(str(tmp_path))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "rows.parquet").write_bytes(b"")
    with pytest.raises(TopicError, match="has other files; use a new one, or one that this query wrote"):
        create_topic(str(tmp_path / "plain"), "schema")
    with pytest.raises(TopicError, match="is new, but the checkpoint has finished 3 batches"):
        create_topic(str(tmp_path / "other"), "schema").claim("q", 3)
    with pytest.raises(TopicError, match=r"not a topic; braided\.write_files creates one"):
        Topic(str(tmp_path))
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, what in (("file", ""), ("file/below", r"'.*/file' above it "), ("link/x", "'.*/link' above it ")):
        with pytest.raises(TopicError, match=f"path='{tmp_path}/{path}': {what}is not a directory; use another path"):
            create_topic(f"{tmp_path}/{path}", "schema")


def test_damage_stops_with_the_files_name(topic: Topic) -> None:
    writer = topic.claim("q")
    _commit(writer, 0, [1])
    _commit(writer, 1, [2])
    path = Path(_disk(topic.location), "_manifests", "000000000001.json")
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(TopicError, match=r"000000000001\.json: "):
            topic.files()
        path.write_bytes(good[:at])
        with pytest.raises(TopicError, match=r"000000000001\.json: the manifest is damaged; restore it"):
            topic.files()
    newer = json.loads(good)
    path.write_text(json.dumps({**newer, "format": FORMAT + 1}))
    with pytest.raises(TopicError, match=f"has format {FORMAT + 1}, but this version reads {FORMAT}; upgrade braided"):
        topic.files()
    path.unlink()
    with pytest.raises(TopicError, match=r"000000000001\.json: the manifest is missing; restore it from a copy"):
        topic.files()
    path.write_bytes(good)
    for lost in ("000000000000", "000000000002"):
        entry = Path(_disk(topic.location), "_manifests", f"{lost}.json")
        content = entry.read_bytes()
        entry.unlink()
        with pytest.raises(TopicError, match=rf"{lost}\.json: the manifest is missing; restore it from a copy"):
            topic.files()
        with pytest.raises(TopicError, match=rf"{lost}\.json: the manifest is missing"):
            topic.claim("q")
        entry.write_bytes(content)
    Path(_disk(topic.location), "_topic.json").write_text("{")
    with pytest.raises(TopicError, match=r"_topic\.json: the file is damaged; restore it from a copy"):
        Topic(topic.location)
    Path(_disk(topic.location), "_topic.json").unlink()
    with pytest.raises(TopicError, match=r"_topic\.json: the file is missing, but there are manifests; restore it"):
        is_topic(topic.location)


def test_a_log_that_is_gone_is_no_empty_topic(topic: Topic) -> None:
    assert topic.files() == []
    writer = topic.claim("q")
    _commit(writer, 0, [1])
    for path in (_disk(topic.location) / "_manifests").iterdir():
        path.unlink()
    with pytest.raises(TopicError, match=r"_manifests/000000000000\.json: the manifest is missing; restore it"):
        topic.files()


def test_what_was_made_for_a_query_that_did_not_start_is_taken_back(tmp_path: Path) -> None:
    create_topic(f"{tmp_path}/t", "schema").discard()
    topic = create_topic(f"{tmp_path}/t", "another schema")
    _commit(topic.claim("q"), 0, [1])
    topic.discard()
    assert _values(Topic(f"{tmp_path}/t")) == [1]


def test_names_that_lead_out_of_a_topic_are_refused() -> None:
    for name in ("../x.parquet", "/etc/passwd", "a/../../x.parquet", "a/b/c.parquet", "a/.x.parquet"):
        content = to_bytes(Manifest(0, "batch", 0, "q", 0, "o", (DataFile(name, 1, 1),)))
        with pytest.raises(TopicError, match="the manifest is damaged"):
            from_bytes(content, "here")


def test_retention_keeps_what_registered_readers_need(topic: Topic) -> None:
    writer = topic.claim("q")
    for batch in range(10):
        _commit(writer, batch, [batch])
    topic.register("slow", 4)
    assert topic.retain(2) == 4
    assert _values(topic) == list(range(3, 10))
    topic.unregister("slow")
    topic.retain(2)
    assert _values(topic) == [8, 9]
    assert len(list(_disk(topic.data).rglob("*.parquet"))) == 2
    with pytest.raises(
        TopicError, match=r"manifest 3 was deleted before it was read, the oldest is 9; start the reader"
    ):
        topic.files(3)
    assert _commit(topic.claim("q"), 10, [10])
    with pytest.raises(TopicError, match=r"keep=-1: not a number of entries; write how many of the newest to keep"):
        topic.retain(-1)
    with pytest.raises(TopicError, match=r"reader='\.\./x': not a valid name; use letters"):
        topic.register("../x", 0)


def test_compaction_changes_no_row_and_is_seen_by_no_reader(topic: Topic) -> None:
    writer = topic.claim("q")
    for batch in range(50):
        _commit(writer, batch, [batch])
    topic.register("inside", 20)
    before = {(start, stop): _values(topic, start, stop) for start in (0, 1, 20, 31) for stop in (32, 40, 51)}
    assert topic.compact(keep=10) == 41
    assert len(topic.files()) == 11
    for (start, stop), values in before.items():
        if start in (0, 20, 31):
            assert _values(topic, start, stop) == values
    topic.register("inside", 0)  # at the first of them, with a batch planned up to one within
    topic.compact(keep=10)
    assert _values(topic, 0, 20) == list(range(19))
    topic.register("inside", 45)
    assert topic.compact(keep=10) == 0
    assert _values(topic) == list(range(50))
    assert len(list(_disk(topic.data).rglob("*.parquet"))) == 11
    with pytest.raises(TopicError, match="manifest 20 was compacted with others while a reader needed it"):
        topic.files(20)
    assert topic.retain(5) == 5  # the reader still needs one more than the newest five
    assert _values(topic) == [44, 45, 46, 47, 48, 49]


def test_compacted_entries_are_compacted_again(topic: Topic) -> None:
    writer = topic.claim("q")
    rounds = 0
    written: dict[tuple[int, int], int] = {}
    for batch in range(500):
        _commit(writer, batch, [batch])
        if batch % 25 == 24:
            rounds += topic.compact(keep=10) > 0
            written |= {(entry.slot, entry.next): entry.rows for entry in topic.manifests() if entry.kind == "compact"}
        if batch == 300:
            topic.register("inside", 298)
    assert rounds > 10
    assert sum(written.values()) < 3 * 500  # rows are not written again in every round
    assert _values(topic, 298) == list(range(297, 500))
    topic.unregister("inside")
    topic.compact(keep=10)
    assert _values(topic) == list(range(500))
    files = topic.files()
    assert len(files) < 40
    assert sorted(map(_disk, files)) == sorted(_disk(topic.data).rglob("*.parquet"))  # what was replaced is gone


def test_upkeep_runs_beside_the_batches_and_survives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(f"{tmp_path}/t", "schema")
    started, go_on = threading.Event(), threading.Event()
    compact = Topic.compact

    def slowly(self: Topic) -> int:
        started.set()
        assert go_on.wait(10)
        return compact(self, keep=5)

    monkeypatch.setattr(Topic, "compact", slowly)
    upkeep = Upkeep(topic, compact=True, keep=None, every=20)
    writer = topic.claim("q")
    for batch in range(60):  # goes on while the first round waits
        _commit(writer, batch, [batch])
        upkeep.after_batch()
    assert started.wait(10)
    go_on.set()
    upkeep.wait()
    assert len(topic.files()) < 30
    assert _values(topic) == list(range(60))
    monkeypatch.setattr(Topic, "compact", lambda self: 1 // 0)
    upkeep = Upkeep(topic, compact=True, keep=3, every=1)
    with caplog.at_level("WARNING", "braided"):
        upkeep.after_batch()
        upkeep.wait()
    assert "not compacted, the next round tries again: integer division" in caplog.text
    assert _values(topic) == [57, 58, 59]  # retention came first


def test_upkeep_refuses_what_keeps_nothing(topic: Topic) -> None:
    with pytest.raises(
        TopicError, match=r"keep=0: not a number of entries; write how many of the newest to keep, 1 or more"
    ):
        Upkeep(topic, compact=False, keep=0)


def test_a_failed_attempt_leaves_no_file(topic: Topic) -> None:
    writer = FileTarget(topic.data).writer(batch_folder(3), 0, SCHEMA)
    writer.write(pa.record_batch([pa.array(range(2_000_000))], schema=SCHEMA))
    assert list(_disk(topic.data).rglob("*.parquet"))
    writer.discard()
    assert not list(_disk(topic.data).rglob("*.parquet"))
